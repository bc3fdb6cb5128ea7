#!/bin/sh
# Does no interrupt get lost while dom0 moves interrupts between its CPUs all the time, with two disks and a network card under
# load? A lost one shows as a wrong digest, a time-out of a driver, or a packet that does not come back.
# xt.bytes, xt.md5: what is on both disks; xt.rounds: how often each disk is read.
. /xt/lib.sh
need_module sd_mod
need_module ahci
need_module usb_storage
need_module xhci_pci
need_module e1000e
disks() {
	for size in /sys/block/sd*/size; do
		[ -e "$size" ] || return
		[ $(($(cat "$size") * 512)) -eq "$(option bytes)" ] && basename "$(dirname "$size")"
	done
}
two_disks() {
	[ "$(disks | wc -l)" -eq 2 ]
}
wait_for 60 two_disks || fail "wanted two disks of $(option bytes) bytes: $(ls /sys/block)"
wait_for 30 test -e /sys/class/net/eth0 || fail "no eth0: $(ls /sys/class/net)"
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up || fail "eth0 does not go up"
wait_for 20 grep -q 1 /sys/class/net/eth0/carrier || fail "no carrier"
names='ahci|xhci|eth0'
cpus=$(nproc)
irqs=$(awk -F: "/$names/ { print \$1 }" /proc/interrupts)
before=$(interrupts "$names")
# In short series, each of which waits for its last answers: on a busy host they take their time.
(
	while [ ! -e /tmp/stop ]; do
		ping -c 20 -i 0.05 -W 20 10.0.2.2
	done >/tmp/ping 2>&1
	touch /tmp/ping.done
) &
(
	moves=0
	cpu=0
	while [ ! -e /tmp/stop ]; do
		for irq in $irqs; do
			cpu=$(((cpu + 1) % cpus))
			echo $cpu >"/proc/irq/$irq/smp_affinity_list" && moves=$((moves + 1))
		done
		usleep 50000
	done
	echo $moves >/tmp/moves
) 2>/dev/null &
for disk in $(disks); do
	(
		round=0
		while [ $round -lt "$(option rounds)" ]; do
			# Past the cache.
			dd if="/dev/$disk" bs=64k iflag=direct 2>/dev/null | md5sum | cut -d' ' -f1 >>"/tmp/md5.$disk"
			round=$((round + 1))
		done
		touch "/tmp/done.$disk"
	) &
done
for disk in $(disks); do
	wait_for 400 test -e "/tmp/done.$disk" || fail "reading $disk does not end"
	expect "rounds of $disk with the right digest" "$(option rounds)" "$(grep -c "$(option md5)" "/tmp/md5.$disk")"
done
touch /tmp/stop
wait_for 20 test -s /tmp/moves || fail "the mover does not end"
wait_for 60 test -e /tmp/ping.done || fail "ping does not end"
missing=$(awk '/transmitted/ { sent += $1; lost += $1 - $4 } END { print lost; print sent " packets sent" >"/tmp/sent" }' /tmp/ping)
note "$(cat /tmp/sent), $missing lost"
grep -q '^[1-9]' /tmp/sent || fail "no packet was sent"
[ "$missing" -le 5 ] || fail "$missing packets are lost"
grep -E "$names" /proc/interrupts
note "$(cat /tmp/moves) changes of affinity accepted, $(($(interrupts "$names") - before)) interrupts"
[ "$(cat /tmp/moves)" -gt 20 ] || fail "too few changes of affinity"
dmesg | grep -iE 'lost interrupt|nobody cared|qc timeout|exception Emask|Detected Hardware Unit Hang|transmit queue.*timed out|No irq handler|reset .*USB device' && fail "the kernel complains"
note "asking for the hypervisor's table"
# Whoever reads it answers. Output each second makes the hypervisor look for input where QEMU loses the serial port's interrupt.
tries=0
while ! read -r -t 1 answer; do
	tries=$((tries + 1))
	[ $tries -lt 200 ] || fail "nobody has seen the table"
	note "waiting $tries"
done
expect "answer" seen "$answer"
exit 0
