#!/bin/sh
# Can processors of the machine be taken away and brought back (by the kernel's driver for it), again and again, while two disks
# and a network card are under load, and is everything right afterwards?
# xt.bytes, xt.md5: what is on both disks; xt.away: processors that are away at the start; xt.stays: the one that cannot go,
# because a virtual processor runs there and nowhere else; xt.rounds: how often.
. /xt/lib.sh
need_module sd_mod
need_module ahci
need_module usb_storage
need_module xhci_pci
need_module e1000e
cd /sys/devices/system/xen_cpu || fail "the kernel shows no processors of the machine"
disks() {
	for size in /sys/block/sd*/size; do
		[ -e "$size" ] || return
		[ $(($(cat "$size") * 512)) -eq "$(option bytes)" ] && basename "$(dirname "$size")"
	done
}
two_disks() {
	[ "$(disks | wc -l)" -eq 2 ]
}
# state CPU: 1 if it is online, as the driver has it.
state() {
	cat "xen_cpu$1/online"
}
is() {
	[ "$(state "$1")" = "$2" ]
}
wait_for 60 two_disks || fail "wanted two disks of $(option bytes) bytes: $(ls /sys/block)"
wait_for 30 test -e /sys/class/net/eth0 || fail "no eth0: $(ls /sys/class/net)"
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up || fail "eth0 does not go up"
wait_for 20 grep -q 1 /sys/class/net/eth0/carrier || fail "no carrier"
cpus=$(ls -d xen_cpu* | grep -c .)
note "$cpus processors, $(nproc) virtual ones"
[ ! -e xen_cpu0/online ] || fail "the first processor has a switch"
for cpu in $(option away | tr , ' '); do
	expect "parked processor $cpu" 0 "$(state "$cpu")"
	echo 1 >xen_cpu$cpu/online || fail "parked processor $cpu does not come"
	wait_for 10 is "$cpu" 1 || fail "parked processor $cpu is not online"
done
(ping -c 100000 -i 0.05 10.0.2.2 >/tmp/ping 2>&1 & echo $! >/tmp/ping.pid)
for disk in $(disks); do
	(
		while [ ! -e /tmp/stop ]; do
			# Past the cache.
			dd if="/dev/$disk" bs=64k iflag=direct 2>/dev/null | md5sum | cut -d' ' -f1 >>"/tmp/md5.$disk"
		done
		touch "/tmp/done.$disk"
	) &
done
# Spread the interrupts, so that each processor has some to lose.
target=0
for irq in $(awk -F: '/ahci|xhci|eth0/ { print $1 }' /proc/interrupts); do
	target=$(((target + 1) % $(nproc)))
	echo $target >"/proc/irq/$irq/smp_affinity_list" 2>/dev/null
done
round=0
while [ $round -lt "$(option rounds)" ]; do
	cpu=1
	while [ $cpu -lt "$cpus" ]; do
		if [ "$cpu" = "$(option stays)" ]; then
			echo 0 2>/dev/null >xen_cpu$cpu/online && fail "round $round: processor $cpu goes"
			cpu=$((cpu + 1))
			continue
		fi
		echo 0 >xen_cpu$cpu/online || fail "round $round: processor $cpu does not go"
		wait_for 10 is $cpu 0 || fail "round $round: processor $cpu is not off line"
		cpu=$((cpu + 1))
	done
	# Everything on one processor for a while.
	sleep 1
	cpu=1
	while [ $cpu -lt "$cpus" ]; do
		echo 1 >xen_cpu$cpu/online || fail "round $round: processor $cpu does not come back"
		wait_for 10 is $cpu 1 || fail "round $round: processor $cpu is not online"
		cpu=$((cpu + 1))
	done
	round=$((round + 1))
done
note "$round rounds"
touch /tmp/stop
for disk in $(disks); do
	wait_for 200 test -e "/tmp/done.$disk" || fail "reading $disk does not end"
	grep -v "$(option md5)" "/tmp/md5.$disk" && fail "wrong digests of $disk"
	note "$(grep -c . "/tmp/md5.$disk") right digests of $disk"
done
kill -INT "$(cat /tmp/ping.pid)"
wait_for 20 grep -q 'packet loss' /tmp/ping || fail "ping does not end"
grep transmitted /tmp/ping
# A few may be under way when ping ends.
missing=$(awk '/transmitted/ { print $1 - $4 }' /tmp/ping)
[ "$missing" -le 5 ] || fail "$missing packets are lost"
# Every virtual processor still runs.
cpu=0
while [ $cpu -lt "$(nproc)" ]; do
	taskset -c $cpu true || fail "virtual processor $cpu runs nothing"
	cpu=$((cpu + 1))
done
dmesg | grep -iE 'lost interrupt|nobody cared|qc timeout|exception Emask|Detected Hardware Unit Hang|transmit queue.*timed out|No irq handler|rcu.*stall|soft lockup|clocksource.*unstable' && fail "the kernel complains"
exit 0
