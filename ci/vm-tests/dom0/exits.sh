#!/bin/sh
# What does dom0's way up to here cost in exits? Prints it as a table and as JSON, the latter to be compared with another run's
# by `xl exits --diff`; and how its interrupts came.
# xt.apic: the mode that its local APICs must be in.
. /xt/lib.sh
mode=xapic
dmesg | grep -q 'x2apic enabled' && mode=x2apic
dmesg | grep -i 'APIC routing'
apic=$(option apic)
[ -z "$apic" ] || expect "mode of local APICs" "$apic" "$mode"
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
# How many of them nobody counted, because they were settled below.
xl exits --cpus || fail "xl exits --cpus: exit status $?"
cat /proc/interrupts
