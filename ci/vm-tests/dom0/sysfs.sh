#!/bin/sh
# Are /sys/hypervisor and /proc/xen right, and do the modules of a dom0 load?
. /xt/lib.sh
cd /sys/hypervisor || fail "no /sys/hypervisor"
expect type xen "$(cat type)"
major=$(cat version/major)
minor=$(cat version/minor)
note "version $major.$minor$(cat version/extra)"
[ "$major" -eq 4 ] || fail "major version $major: tools look for 4"
[ "$minor" -ge 17 ] || fail "minor version $minor"
expect uuid 00000000-0000-0000-0000-000000000000 "$(cat uuid)"
note "features $(cat properties/features)"
case $(cat properties/features) in
*[1-9a-f]*) ;;
*) fail "no feature is announced" ;;
esac
expect capabilities control_d "$(cat /proc/xen/capabilities)"
[ -e /proc/xen/privcmd ] || fail "no /proc/xen/privcmd"
for module in xen-evtchn xen-privcmd xen-gntdev xen-gntalloc xen-blkback xen-netback; do
	need_module $module
	note "$module is loaded"
done
for node in evtchn privcmd gntdev gntalloc hypercall; do
	[ -e /dev/xen/$node ] || [ $node = hypercall ] || fail "no /dev/xen/$node"
done
