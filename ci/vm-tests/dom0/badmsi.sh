#!/bin/sh
# A device sends an interrupt message that no entry is for (QEMU's `edu` device writes anything to anywhere): the hypervisor
# reports it, and the machine goes on. The console is looked at from outside; here only that the message was sent.
. /xt/lib.sh
find_edu() {
	for d in /sys/bus/pci/devices/*; do
		[ "$(cat "$d/vendor")" = 0x1234 ] && [ "$(cat "$d/device")" = 0x11e8 ] && edu=$d && return 0
	done
	return 1
}
find_edu || fail "no edu device"
# Memory and bus mastering on.
setpci_byte=$(printf '\006')
printf '%s' "$setpci_byte" | dd of="$edu/config" bs=1 seek=4 conv=notrunc 2>/dev/null || fail "cannot enable the device"
bar=$(head -n 1 "$edu/resource" | cut -d' ' -f1)
note "edu at $(basename "$edu"), registers at $bar"
at() {
	printf '0x%x' $((bar + $1))
}
expect "identification" 0x010000ED "$(devmem "$(at 0)" 32)"
for message in $(option messages | tr , ' '); do
	devmem "$(at 0x80)" 64 0x40000
	devmem "$(at 0x88)" 64 "$message"
	devmem "$(at 0x90)" 64 4
	devmem "$(at 0x98)" 64 3
	tries=50
	while [ $(($(devmem "$(at 0x98)" 32) & 1)) -ne 0 ]; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail "the device does not finish"
		usleep 100000
	done
	note "sent $message"
done
sleep 1
exit 0
