#!/bin/sh
# Does the whole test disk read back with the right digest, by interrupts?
# xt.module: driver; xt.irq: its name in /proc/interrupts; xt.chip: by which chip they come there; xt.bytes, xt.md5: what is on the disk.
. /xt/lib.sh
need_module sd_mod
case $(option module) in
ahci) need_module ahci ;;
ata_piix) need_module ata_piix ;;
virtio_blk) need_module virtio_pci; need_module virtio_blk ;;
usb_storage) need_module xhci_pci; need_module usb_storage ;;
*) fail "unknown driver '$(option module)'" ;;
esac

find_disk() {
	for size in /sys/block/*/size; do
		[ -e "$size" ] || return 1
		case $size in */loop* | */ram* | */sr*) continue ;; esac
		if [ $(($(cat "$size") * 512)) -eq "$(option bytes)" ]; then
			disk=$(basename "$(dirname "$size")")
			return 0
		fi
	done
	return 1
}
tries=150
while ! find_disk; do
	tries=$((tries - 1))
	[ $tries -gt 0 ] || fail "no disk of $(option bytes) bytes appeared: $(ls /sys/block)"
	usleep 200000
done
before=$(interrupts "$(option irq)")
start=$(cut -d. -f1 /proc/uptime)
md5=$(md5sum "/dev/$disk" | cut -d' ' -f1)
note "read $(option bytes) bytes of $disk in $(($(cut -d. -f1 /proc/uptime) - start)) s"
after=$(interrupts "$(option irq)")
grep "$(option irq)" /proc/interrupts
chip=$(option chip)
[ -z "$chip" ] || grep "$(option irq)" /proc/interrupts | grep -q "$chip" || fail "the interrupts do not come by $chip"
expect digest "$(option md5)" "$md5"
[ $((after - before)) -gt 10 ] || fail "only $((after - before)) interrupts of $(option irq)"
note "$((after - before)) interrupts"
dmesg | grep -iE 'lost interrupt|nobody cared|timeout|qc timeout|exception Emask' && fail "the kernel complains about the disk"
exit 0
