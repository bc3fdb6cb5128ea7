#!/bin/sh
# How long does it take from `xl create` until a Linux guest's first line, and until its user space? For
# `cargo xtask bench create`: one line XT-TIME for each of xt.rounds= guests, in milliseconds.
# xt.xl=debian takes Debian's xl with its daemons.
. /xt/lib.sh
if [ "$(option xl)" = debian ]; then
	. /xt/tests/debian-start.sh
else
	for process in xenstored xenconsoled devd; do
		wait_for 20 pidof "$process" || fail "$process does not run"
	done
	timing=--timing
fi
# A PVH Linux guest dies on Xen in an emulator of AMD-V: Xen intercepts reads of CR0, and QEMU sends it those of CR2 as well.
type=pvh
xl info xen_extra | grep -q xenolith || type=pv
# now: sets `now` to the milliseconds since boot, without starting a program.
now() {
	read -r now rest </proc/uptime
	now=${now%.*}${now#*.}0
}
gone() { ! xl domid "$name" >/dev/null 2>&1; }
for round in $(seq "$(option rounds)"); do
	name=timed$round
	log=/var/log/xen/console/guest-$name.log
	cat >/tmp/timed.cfg <<-TEXT
		type = "$type"
		name = "$name"
		kernel = "/guest/vmlinuz"
		ramdisk = "/guest/initrd.gz"
		memory = 256
		vcpus = 1
		extra = "console=hvc0"
	TEXT
	now
	start=$now
	{
		xl create -q $timing /tmp/timed.cfg 2>/tmp/said || echo failed >/tmp/failed
		now
		echo "$now" >/tmp/made
	} &
	until [ -s "$log" ]; do
		[ ! -e /tmp/failed ] || fail "xl create: $(cat /tmp/said)"
		usleep 20000
	done
	now
	first=$((now - start))
	until grep -q XENOLITH-GUEST-READY "$log"; do usleep 50000; done
	now
	user=$((now - start))
	wait
	grep -q 'Linux version' "$log" || fail "the guest does not begin with its version: $(head -n 3 "$log")"
	[ -z "$timing" ] || sed 's/^/XT-NOTE /' /tmp/said
	echo "XT-TIME $name made=$(($(cat /tmp/made) - start)) first=$first user=$user"
	xl destroy "$name" || fail "xl destroy"
	wait_for 30 gone || fail "the guest stays"
done
