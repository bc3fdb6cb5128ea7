#!/bin/sh
# Do all siblings go and come back at once by Debian's xen-hptool, does the kernel's driver see it, and does every virtual
# processor run all the while?
. /xt/lib.sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
hptool=/usr/lib/xen-$(cat /sys/hypervisor/version/major).$(cat /sys/hypervisor/version/minor)/bin/xen-hptool
[ -x "$hptool" ] || fail "no $hptool"
cd /sys/devices/system/xen_cpu || fail "the kernel shows no processors of the machine"
online() { cat xen_cpu1/online xen_cpu2/online xen_cpu3/online | tr -d '\n'; }
is() { [ "$(online)" = "$1" ]; }
all_run() {
	cpu=0
	while [ $cpu -lt "$(nproc)" ]; do
		taskset -c $cpu true || fail "virtual processor $cpu runs nothing"
		cpu=$((cpu + 1))
	done
}
expect "online at the start" 111 "$(online)"
for round in 1 2 3; do
	"$hptool" smt-disable || fail "round $round: smt-disable: exit status $?"
	wait_for 10 is 010 || fail "round $round: online without siblings: $(online)"
	all_run
	"$hptool" smt-disable || fail "round $round: smt-disable a second time"
	"$hptool" smt-enable || fail "round $round: smt-enable: exit status $?"
	wait_for 10 is 111 || fail "round $round: online with siblings: $(online)"
	all_run
done
# One that its owner has taken away stays away, and each can go and come on its own.
"$hptool" cpu-offline 2 || fail "cpu-offline 2"
"$hptool" smt-disable || fail "smt-disable with processor 2 away"
wait_for 10 is 000 || fail "online without siblings and 2: $(online)"
"$hptool" smt-enable || fail "smt-enable with processor 2 away"
wait_for 10 is 101 || fail "online without 2: $(online)"
"$hptool" cpu-online 2 || fail "cpu-online 2"
wait_for 10 is 111 || fail "online at the end: $(online)"
exit 0
