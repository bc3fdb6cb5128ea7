#!/bin/sh
# Which guests run? For `cargo xtask compat`: /guest/list has one line for each, NAME KIND VCPUS KERNEL RAMDISK. Prints for each
#   COMPAT NAME pass SECONDS                         until its user space
#   COMPAT NAME fail SECONDS REASON                  and the end of its console as lines COMPAT-TAIL NAME TEXT
# KIND is pvh, pv, grub (a boot loader that finds kernel and RAM disk on the guest's disk) or shim (Xen's, with the kernel as a
# PV guest in it). xt.guests=NAME,... runs only these.
. /xt/lib.sh
export PATH=$PATH:/usr/sbin
only=$(option guests)
slow=$(option slow)
if [ -e /etc/dom0-init.conf ]; then
	for process in xenstored xenconsoled devd; do
		wait_for 20 pidof "$process" || fail "$process does not run"
	done
	# Only Debian's xl knows the shim; our program runs in place of its scripts.
	mkdir -p /usr/local /var/lock
	ours=/sbin
	debian=/usr/sbin
else
	. /xt/tests/debian-start.sh
	ours=/usr/sbin
	debian=/usr/sbin
fi
shim=$(find /sbin/dom0-shim /ours/dom0-shim 2>/dev/null | head -n 1)
ln -sf "$shim" /etc/xen/scripts/block
ln -sf "$shim" /etc/xen/scripts/vif-bridge
need_module crc32c_generic
need_module ext4

# grub_disk KERNEL RAMDISK: a disk with a boot loader's menu.
grub_disk() {
	truncate -s 48M /tmp/disk.img
	mke2fs -F /tmp/disk.img >/dev/null 2>&1 && mount -o loop -t ext4 /tmp/disk.img /mnt || return 1
	mkdir -p /mnt/boot/grub
	cp "/guest/$1" /mnt/boot/vmlinuz
	cp "/guest/$2" /mnt/boot/initrd
	cat >/mnt/boot/grub/grub.cfg <<-TEXT
		set timeout=0
		menuentry guest {
			linux /boot/vmlinuz console=hvc0 gt.ip=192.168.77.2/255.255.255.0
			initrd /boot/initrd
		}
	TEXT
	umount /mnt
}
gone() { ! "$xl" domid "$name" >/dev/null 2>&1; }
crashed() { "$xl" list "$name" 2>/dev/null | awk 'NR == 2 { print $5 }' | grep -q c; }
# came_up: 0 when it is up, 1 when it cannot be any more.
came_up() {
	grep -q "XENOLITH-GUEST-READY .* cpus=$vcpus " "$log" 2>/dev/null && return 0
	crashed && why="the guest has crashed" && return 1
	grep -q 'Kernel panic' "$log" 2>/dev/null && why="its kernel panics" && return 1
	gone && why="the guest is gone" && return 1
	return 2
}
# one NAME KIND VCPUS KERNEL RAMDISK: sets why if it fails.
one() {
	name=$1 kind=$2 vcpus=$3 why=
	log=/var/log/xen/console/guest-$name.log
	rm -f /tmp/disk.img
	type=pvh kernel=$4 ramdisk=$5 xl=$ours/xl console=console=hvc0
	truncate -s 4M /tmp/disk.img
	case $kind in
	pv) type=pv ;;
	shim) xl=$debian/xl console="earlyprintk=xen console=hvc0" ;;
	grub)
		grub_disk "vmlinuz-${ramdisk#initrd-}" "$ramdisk" || { why="no disk for it" && return 1; }
		ramdisk=
		;;
	esac
	{
		printf 'type = "%s"\nname = "%s"\nmemory = 384\nvcpus = %s\n' $type "$name" "$vcpus"
		printf 'kernel = "/guest/%s"\n' "$kernel"
		[ -z "$ramdisk" ] || printf 'ramdisk = "/guest/%s"\n' "$ramdisk"
		[ $kind != shim ] || printf 'pvshim = 1\npvshim_path = "/guest/xen-shim"\npvshim_extra = "loglvl=all guest_loglvl=all console_timestamps=boot"\n'
		printf 'extra = "%s gt.ip=192.168.77.2/255.255.255.0"\n' "$console"
		printf 'disk = ["file:/tmp/disk.img,xvda,w"]\nvif = ["bridge=xenbr0"]\non_crash = "preserve"\non_reboot = "destroy"\n'
	} >"/tmp/$name.cfg"
	"$xl" create -q "/tmp/$name.cfg" >/tmp/said 2>&1 || {
		why="$(grep -v '^ ' /tmp/said | head -n 1 | sed "s#/tmp/$name.cfg:##")"
		[ "$(wc -l </tmp/said)" -le 1 ] || cat /tmp/said >>"$log"
		return 1
	}
	# A boot loader takes minutes where many emulators share a processor: only silence ends the wait. A kernel that unpacks itself
	# is silent for long, too.
	silence=$((120 * slow))
	[ $kind != grub ] || silence=$((600 * slow))
	seen=none
	while true; do
		size=$(stat -c %s "$log" 2>/dev/null)
		[ "$size" = "$seen" ] || until=$(($(cut -d. -f1 /proc/uptime) + silence))
		seen=$size
		came_up
		case $? in
		0) break ;;
		1) return 1 ;;
		esac
		[ "$(cut -d. -f1 /proc/uptime)" -lt $until ] || { why="no user space, and silence for $silence s" && return 1; }
		usleep 200000
	done
	up=$(cut -d. -f1 /proc/uptime)
	wait_for 20 grep -q 'GUEST-DISK xvda' "$log" || { why="it has no disk" && return 1; }
	wait_for 20 grep -q 'GUEST-NET eth0' "$log" || { why="it has no network interface" && return 1; }
	ping -c 1 -w 30 192.168.77.2 >/dev/null || { why="it does not answer pings" && return 1; }
	"$xl" shutdown -w "$name" >/tmp/said 2>&1 || { why="xl shutdown: $(tail -n 1 /tmp/said)" && return 1; }
	wait_for 30 gone || { why="it is there after its shutdown" && return 1; }
}

while read -r name kind vcpus kernel ramdisk <&3; do
	case ",${only:-$name}," in
	*,"$name",*) ;;
	*) continue ;;
	esac
	start=$(cut -d. -f1 /proc/uptime)
	up=
	"$ours/xl" dmesg -c >/dev/null
	if one "$name" "$kind" "$vcpus" "$kernel" "$ramdisk" 3<&-; then
		echo "COMPAT $name pass $((up - start))"
	else
		echo "COMPAT $name fail $(($(cut -d. -f1 /proc/uptime) - start)) $why"
		# For the log: what its vCPUs are at.
		"$xl" vcpu-list "$name" 2>/dev/null
		xen-hvmctx "$("$xl" domid "$name")" 2>/dev/null | grep -E -A 14 '^ *(CPU|LAPIC):'
		"$xl" dmesg | grep -E "\(XEN\) .*(d[1-9][0-9]*|domain [1-9])" | head -n 6 | sed "s/^/COMPAT-TAIL $name /"
		tail -n 12 "$log" 2>/dev/null | tr -d '\r' | sed "s/^/COMPAT-TAIL $name /"
		while ! gone; do
			"$xl" destroy "$name" >/dev/null 2>&1
			sleep 1
		done
	fi
done 3</guest/list
