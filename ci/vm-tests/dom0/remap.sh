#!/bin/sh
# Do a disk and a network card under load at the same time get all of their interrupts? Lines too: the disk's controller by
# its pin where the kernel is told not to use messages.
# xt.bytes, xt.md5: what is on the disk; xt.irq, xt.net: names of the two in /proc/interrupts.
. /xt/lib.sh
need_module sd_mod
need_module ahci
need_module e1000e
find_disk() {
	for size in /sys/block/sd*/size; do
		[ -e "$size" ] || return 1
		[ $(($(cat "$size") * 512)) -eq "$(option bytes)" ] || continue
		disk=$(basename "$(dirname "$size")")
		return 0
	done
	return 1
}
wait_for 30 test -e /sys/class/net/eth0 || fail "no eth0: $(ls /sys/class/net)"
tries=150
while ! find_disk; do
	tries=$((tries - 1))
	[ $tries -gt 0 ] || fail "no disk of $(option bytes) bytes: $(ls /sys/block)"
	usleep 200000
done
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up || fail "eth0 does not go up"
wait_for 20 grep -q 1 /sys/class/net/eth0/carrier || fail "no carrier"
disk_before=$(interrupts "$(option irq)")
net_before=$(interrupts "$(option net)")
(ping -c 40 -i 0.1 -w 90 10.0.2.2 >/tmp/ping; echo $? >/tmp/ping.status) &
round=0
# The interrupts' affinity moves between rounds, as irqbalance does it.
for cpu in 0 1 0; do
	for irq in $(awk -F: "/$(option irq)|$(option net)/ { print \$1 }" /proc/interrupts); do
		echo $cpu >"/proc/irq/$irq/smp_affinity_list" || note "interrupt $irq stays where it is"
	done
	echo 3 >/proc/sys/vm/drop_caches
	expect "digest of round $round" "$(option md5)" "$(md5sum "/dev/$disk" | cut -d' ' -f1)"
	round=$((round + 1))
done
wait_for 100 test -s /tmp/ping.status || fail "ping does not end"
tail -n 2 /tmp/ping
expect "ping's status" 0 "$(cat /tmp/ping.status)"
grep -q ' 0% packet loss' /tmp/ping || fail "packets are lost"
grep -E "$(option irq)|$(option net)" /proc/interrupts
disk_count=$(($(interrupts "$(option irq)") - disk_before))
net_count=$(($(interrupts "$(option net)") - net_before))
[ $disk_count -gt 100 ] || fail "only $disk_count interrupts of the disk"
[ $net_count -ge 40 ] || fail "only $net_count interrupts of the network card for 40 answers"
note "$disk_count interrupts of the disk, $net_count of the network card"
dmesg | grep -iE 'lost interrupt|nobody cared|qc timeout|exception Emask|Detected Hardware Unit Hang|transmit queue.*timed out' && fail "the kernel complains"
exit 0
