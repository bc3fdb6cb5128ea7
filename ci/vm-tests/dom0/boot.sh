#!/bin/sh
# Does dom0 see the CPUs that it was promised, and does its clock run?
. /xt/lib.sh
expect "number of CPUs" "$(option cpus)" "$(nproc)"
before=$(cut -d' ' -f1 /proc/uptime | tr -d .)
sleep 1
after=$(cut -d' ' -f1 /proc/uptime | tr -d .)
passed=$((after - before))
[ "$passed" -ge 95 ] || fail "a sleep of 1 s took $passed hundredths of a second"
note "a sleep of 1 s took $passed hundredths of a second"
