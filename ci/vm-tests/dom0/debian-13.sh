#!/bin/sh
# The test of Debian 12's toolstack with Debian 13's: in a root of its own, since it needs that release's libraries.
. /xt/lib.sh
new=/debian-13
for dir in proc sys dev tmp run var xt guest; do
	mkdir -p "$new/$dir"
	mount -o bind "/$dir" "$new/$dir" || fail "$dir cannot be shared with $new"
done
mount -o bind /dev/pts "$new/dev/pts" && mount -o bind /proc/xen "$new/proc/xen" || fail "pts or xenfs in $new"
mount -o bind /lib/modules "$new/usr/lib/modules" 2>/dev/null || {
	mkdir -p "$new/usr/lib/modules" && mount -o bind /lib/modules "$new/usr/lib/modules" || fail "modules in $new"
}
# Debian's scripts use commands that busybox has as well.
cp /bin/busybox "$new/usr/bin/busybox"
chroot "$new" /usr/bin/busybox --install -s /usr/bin 2>/dev/null
cp /etc/passwd /etc/group "$new/etc/"
exec chroot "$new" /usr/bin/busybox sh /xt/tests/debian-xl.sh
