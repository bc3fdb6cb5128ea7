#!/bin/sh
# A guest that our xl makes while Debian's daemons and hotplug scripts run: does it live, and is everything given back?
# xt.store=xenstored takes Debian's store in C instead of the one in OCaml.
. /xt/lib.sh
XENSTORED=$(option store)
. /xt/tests/debian-lib.sh
theirs=/usr/sbin/xl
export PATH=/ours:$PATH
expect "xl" /ours/xl "$(command -v xl)"
nodes() { xenstore-ls -f / | cut -d' ' -f1 | sort; }
nodes >/tmp/before

dd if=/dev/zero of=/tmp/disk.img bs=1M count=16 2>/dev/null
mke2fs -F /tmp/disk.img >/dev/null 2>&1 || fail "mke2fs"
# Stands for pygrub: takes dom0's kernel as if it had found it on the disk, its last word.
cat >/tmp/loader <<'TEXT'
#!/bin/sh
for word; do
	case $word in
	--output=*) out=${word#*=} ;;
	--output-directory=*) dir=${word#*=} ;;
	--args=*) args=${word#*=} ;;
	esac
done
[ -f "$word" ] || exit 1
cp /guest/vmlinuz "$dir/kernel" && cp /guest/initrd.gz "$dir/ramdisk" || exit 1
printf 'kernel %s\0ramdisk %s\0args %s gt.by=loader\0' "$dir/kernel" "$dir/ramdisk" "$args" >"$out"
TEXT
chmod +x /tmp/loader
grep -q ' rdrand' /proc/cpuinfo || fail "the machine has no rdrand to be taken away"
guest one 'memory = 192' 'vcpus = 2' 'bootloader = "/tmp/loader"' 'cpuid = "host,rdrand=0"' 'extra = "console=hvc0 quiet gt.ip=192.168.77.2/255.255.255.0"' \
	'disk = ["file:/tmp/disk.img,xvda,w"]' 'vif = ["bridge=xenbr0,mac=00:16:3e:00:00:01"]'
# Ours does not make dom0 smaller by itself.
xl mem-set 0 $(($(field 0 3) - 220)) || fail "xl mem-set 0"
enough() { [ "$(xl info free_memory)" -ge 205 ]; }
wait_for 60 enough || fail "dom0 gives no memory: $(xl list 0)"
# kib: what is free, and what dom0 has. To make dom0 smaller costs tables, one for each large page that it gives up a part of.
kib() {
	xl dmesg -c >/dev/null && xl debug-keys m || fail "xl debug-keys"
	free=$(xl dmesg | sed -n "s/.*'m' pressed.* \([0-9]*\) KiB free.*/\1/p" | tail -n 1)
	own=$(xl list 0 --json | sed -n 's/.*"memory_kib": \([0-9]*\),*$/\1/p')
	echo $((free + own))
}
# dom0 is still becoming smaller.
settled() {
	last=$kib_before
	kib_before=$(kib)
	[ "$last" = "$kib_before" ]
}
wait_for 60 settled || fail "dom0's memory does not come to rest"
xl create -q /tmp/one.cfg || fail "xl create: $?"
wait_line 120 one "XENOLITH-GUEST-READY .* cpus=2"
wait_line 60 one "GUEST-DISK xvda bytes=16777216 mode=w"
wait_line 60 one "GUEST-NET eth0 mac=00:16:3e:00:00:01"
wait_line 60 one "GUEST-SHELL"
ping -c 3 -w 60 192.168.77.2 >/dev/null || fail "the guest does not answer"
expect "xl list and Debian's" "$($theirs list one | awk 'NR == 2 { print $1, $2, $3, $4 }')" \
	"$(xl list one | awk 'NR == 2 { print $1, $2, $3, $4 }')"
expect "Debian's list -l" '"one"' "$($theirs list -l one | sed -n 's/^ *"name": \(.*\),$/\1/p')"
xl list -l one | grep -q '"vdev": "xvda"' || fail "list -l: $(xl list -l one)"
type_in one 'echo "console-$((40+2))-$(grep -c gt.by=loader /proc/cmdline)-$(grep -c rdrand /proc/cpuinfo)."'
wait_line 60 one "console-42-1-0\."
xl pause one && in_state one p || fail "xl pause: $(state one)"
xl unpause one || fail "xl unpause"
xl mem-set one 160 || fail "xl mem-set"
wait_for 60 has one 3 160 || fail "xl mem-set: $(xl list one)"
dd if=/dev/zero of=/tmp/more.img bs=1M count=4 2>/dev/null
xl block-attach one file:/tmp/more.img,xvdb,r || fail "xl block-attach"
type_in one 'sleep 2; echo "size-$(cat /sys/block/xvdb/size)."'
wait_line 60 one "size-8192\."
xl block-detach one xvdb || fail "xl block-detach"

note "a reboot, by the process that waits for the guest's end"
old=$(xl domid one)
xl reboot one || fail "xl reboot"
wait_line 240 one "GUEST-SHELL" 2
[ "$(xl domid one)" != "$old" ] || fail "the number is still $old"

note "shutdown"
xl shutdown -w one >/dev/null || fail "xl shutdown -w"
wait_for 60 gone one || fail "xl list after shutdown: $(xl list)"
wait_for 20 sh -c '! losetup -a | grep -q img' || fail "a loop device is left: $(losetup -a)"
# The first guest leaves behind what later ones use again: caches, and tables of dom0's for what it maps of guests.
given_back() { [ "$(kib)" -ge $((kib_before - 512)) ]; }
wait_for 20 given_back || fail "free and dom0's memory was $kib_before KiB, is $(kib)"
note "of $kib_before KiB $((kib_before - $(kib))) have not come back"
nodes >/tmp/after
# dom0's own memory target, and the directories of back ends, are made once and stay.
diff /tmp/before /tmp/after | grep '^>' | grep -vE '/local/domain/0/(memory|backend)(/(target|static-max|vbd|vif|console))?$' >/tmp/left &&
	fail "nodes are left: $(cat /tmp/left)"
cat /var/log/xen/xl-one.log
