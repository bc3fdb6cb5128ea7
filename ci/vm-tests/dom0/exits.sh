#!/bin/sh
# What does dom0's way up to here cost in exits? Prints it as a table and as JSON, the latter to be compared with another run's
# by `xl exits --diff`.
. /xt/lib.sh
xenstored --pid-file=/run/xenstored.pid || fail "xenstored does not start"
xenstore write /local/domain/0/name Domain-0 /local/domain/0/domid 0 || fail "no write"
xl exits 0 --json >/tmp/exits.json || fail "xl exits --json: exit status $?"
xl exits 0 >/tmp/exits || fail "xl exits: exit status $?"
total=$(awk '/ all exits$/ { print $1 }' /tmp/exits)
[ "${total:-0}" -gt 1000 ] || fail "that few exits: $(cat /tmp/exits)"
echo "XT-EXITS-TABLE"
cat /tmp/exits
echo "XT-EXITS-JSON"
cat /tmp/exits.json
echo "XT-EXITS-END"
