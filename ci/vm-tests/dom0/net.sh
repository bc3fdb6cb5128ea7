#!/bin/sh
# Does the network card reach the emulator's gateway, by interrupts?
. /xt/lib.sh
need_module virtio_pci
need_module "$(option module)"
wait_for 20 test -e /sys/class/net/eth0 || fail "no eth0: $(ls /sys/class/net)"
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up || fail "eth0 does not go up"
wait_for 20 grep -q 1 /sys/class/net/eth0/carrier || fail "no carrier"
before=$(interrupts "$(option irq)")
ping -c 10 -i 0.2 -w 60 10.0.2.2 >/tmp/ping || { cat /tmp/ping; fail "ping gets no answer"; }
tail -n 2 /tmp/ping
grep -q ' 0% packet loss' /tmp/ping || fail "packets are lost"
# Something larger than a packet, both ways.
ping -c 5 -i 0.2 -s 1400 -w 60 10.0.2.2 >/tmp/ping || fail "large packets get no answer"
after=$(interrupts "$(option irq)")
grep "$(option irq)" /proc/interrupts
[ $((after - before)) -ge 10 ] || fail "only $((after - before)) interrupts for 15 answers"
note "$((after - before)) interrupts"
