#!/bin/sh
# Starts Debian's toolstack in dom0 as its /etc/init.d/xen does, without systemd: to be sourced by tests, or by hand.
# XENSTORED=xenstored chooses the C daemon instead of the OCaml one. Does nothing when they run already.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
root=/usr/lib/xen-$(cat /sys/hypervisor/version/major).$(cat /sys/hypervisor/version/minor)/bin
[ ! -e /run/xenstored.pid ] || return 0
ln -sfn /run /var/run
mkdir -p /run/xen /run/xenstored /run/lock /var/lib/xen /var/log/xen/console /var/lock /usr/local
# What udev makes elsewhere; the scripts' lock looks at /dev/stdin and tries for ever without it.
ln -sfn /proc/self/fd /dev/fd
for link in 0:stdin 1:stdout 2:stderr; do
	ln -sfn "/proc/self/fd/${link%:*}" "/dev/${link#*:}"
done
grep -q control_d /proc/xen/capabilities || fail "no control_d in /proc/xen/capabilities"
for module in xen-gntalloc xen-blkback xen-netback bridge loop; do
	need_module "$module"
done
export XENSTORED_ROOTDIR=/run/xenstored
"$root/${XENSTORED:-oxenstored}" --pid-file /run/xenstored.pid || fail "Debian's xenstored does not start"
wait_for 30 xenstore-read -s / || fail "xenstored does not answer"
"$root/xen-init-dom0" || fail "xen-init-dom0: exit status $?"
"$root/xenconsoled" --log=guest --pid-file=/run/xenconsoled.pid || fail "xenconsoled does not start"
brctl addbr xenbr0 && ifconfig xenbr0 192.168.77.1 netmask 255.255.255.0 up
