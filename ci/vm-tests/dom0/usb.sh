#!/bin/sh
# By which interrupts does a USB controller (xHCI) work with the device that is plugged in?
# xt.chip: how they must be called in /proc/interrupts; xt.feature: whether the hypervisor offers pirqs (bit 10 of its features).
. /xt/lib.sh
feature=$(option feature)
if [ -n "$feature" ]; then
	features=$(cat /sys/hypervisor/properties/features)
	expect "XENFEAT_hvm_pirqs" "$feature" "$(((0x${features#0x} >> 10) & 1))"
fi
need_module xhci_pci
found() { ls /sys/bus/usb/devices | grep -q '^[12]-[0-9]'; }
# It is given an address and read by some twenty transfers, each with an interrupt.
wait_for 120 found || fail "no device: $(dmesg | grep -iE 'xhci|usb' | tail -n 8)"
sleep 1
cat /proc/interrupts
[ "$(interrupts xhci)" -ge 10 ] || fail "$(interrupts xhci) interrupts of the controller"
chip=$(option chip)
grep xhci /proc/interrupts | grep -q "$chip" || fail "they do not come by $chip"
[ "$chip" = xen-pirq ] || ! grep -q xen-pirq /proc/interrupts || fail "pirqs are in use"
note "$(interrupts xhci) interrupts of the controller, by $(grep xhci /proc/interrupts | sed 's/.*[0-9] \+//')"
