#!/bin/sh
# In a dom0 with our toolstack: says that the system is usable and runs the test that the command line names, then powers off.
export PATH=/sbin:/bin HOME=/root TERM=vt100
. /xt/lib.sh
echo "XENOLITH-DOM0-READY $(uname -r) cpus=$(nproc) mem=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)"
test=$(option test)
[ -n "$test" ] || exit 0
"/xt/tests/$test.sh"
status=$?
case $status in
0) echo "XT-RESULT $test pass" ;;
*) echo "XT-RESULT $test fail: exit status $status" ;;
esac
sleep 1
poweroff
