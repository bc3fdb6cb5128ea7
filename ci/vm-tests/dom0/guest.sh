#!/bin/sh
# Does a Linux guest run, with disk, network and console, and is everything given back when it is gone?
# xt.xl=debian takes Debian's xl, which runs our program in place of its scripts; the daemons are ours.
. /xt/lib.sh
log=/var/log/xen/console/guest-sample.log
if [ "$(option xl)" = debian ]; then
	export PATH=/usr/sbin:/usr/bin:$PATH LC_ALL=C
	mkdir -p /usr/local /var/lock
	ln -sf /sbin/dom0-shim /etc/xen/scripts/block
	ln -sf /sbin/dom0-shim /etc/xen/scripts/vif-bridge
fi
note "$(command -v xl)"

# said SECONDS TEXT: waits for a text on the guest's console, behind what was waited for last.
# The next search begins behind the line found, not at the end of the log: the next text may be there already.
seen=0
said() {
	tries=$(($1 * 5))
	until line=$(tail -n "+$((seen + 1))" "$log" 2>/dev/null | grep -n -m 1 "$2"); do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || {
			tail -n 20 "$log"
			fail "the guest does not say '$2'"
		}
		usleep 200000
	done
	seen=$((seen + ${line%%:*}))
}
# guest SECONDS COMMAND: types a command and waits until it has succeeded.
count=0
guest() {
	count=$((count + 1))
	printf '%s && echo done-%s-$((%d+%d)) || echo failed\r' "$2" "$count" "$count" 1 >"$tty"
	said "$1" "done-$count-$((count + 1))"
}

for process in xenstored xenconsoled devd; do
	wait_for 20 pidof "$process" || fail "$process does not run"
done
expect "the name of the CPU pool" Pool-0 "$(xenstore read /local/pool/0/name)"
free=$(xl info free_memory)
nodes=$(xenstore-ls -f | wc -l)
start=$(cut -d. -f1 /proc/uptime)
xl create /etc/xen/sample.cfg
status=$?
[ $status = 0 ] || {
	cat /var/log/xen/*.log
	fail "xl create: exit status $status"
}
note "xl create took $(($(cut -d. -f1 /proc/uptime) - start)) s"
id=$(xl domid sample) || fail "xl domid"
tty=$(xenstore read "/local/domain/$id/console/tty") || fail "no terminal"
said 120 "XENOLITH-GUEST-READY .* cpus=2"
note "user space of the guest $(($(cut -d. -f1 /proc/uptime) - start)) s after the start"
said 30 "GUEST-SHELL"
grep -q "GUEST-DISK xvda bytes=100663296 mode=w" "$log" || fail "no disk: $(tail -n 5 "$log")"
grep -q "GUEST-NET eth0 mac=00:16:3e:77:00:02" "$log" || fail "no interface"
expect "the state of the disk" 4 "$(xenstore read "/local/domain/0/backend/vbd/$id/51712/state")"
[ -e "/sys/class/net/xenbr0/brif/vif$id.0" ] || fail "the interface is not in the bridge: $(ls /sys/class/net/xenbr0/brif)"
[ "$(losetup -a | wc -l)" = 1 ] || {
	xenstore ls -f | grep -E 'udev|vbd'
	fail "more than one loop device: $(losetup -a)"
}

ping -c 5 -i 0.2 -w 60 192.168.77.2 >/tmp/ping || { cat /tmp/ping; fail "the guest does not answer"; }
tail -n 2 /tmp/ping
ping -c 3 -s 1400 -w 60 192.168.77.2 >/tmp/ping || fail "large packets get no answer"
guest 60 "ping -c 3 192.168.77.1"

# The daemons are started again when they end, and the guest does not mind.
for process in xenconsoled devd; do
	old=$(pidof "$process")
	kill "$old"
	wait_for 20 sh -c "p=\$(pidof $process) && [ \$p != $old ]" || fail "$process does not come back"
done
wait_for 20 sh -c "[ \$(xenstore read /local/domain/$id/console/tty) != $tty ]" || note "the terminal has the same name"
tty=$(xenstore read "/local/domain/$id/console/tty")
guest 20 "echo again"

guest 20 "mkdir -p /mnt && mount -t ext4 /dev/xvda /mnt"
start=$(cut -d. -f1 /proc/uptime)
guest 300 "dd if=/dev/urandom of=/mnt/file bs=1M count=64 && sync"
note "64 MiB written in $(($(cut -d. -f1 /proc/uptime) - start)) s"
guest 120 "echo digest-\$(md5sum </mnt/file | cut -c1-32)-"
digest=$(sed -n 's/.*digest-\([0-9a-f]\{32\}\)-.*/\1/p' "$log" | tail -n 1)
[ -n "$digest" ] || fail "no digest: $(tail -n 5 "$log")"
guest 20 "umount /mnt"

xl shutdown -w sample || fail "xl shutdown: exit status $?"
wait_for 30 sh -c '! xl domid sample' || fail "the guest is still there: $(xl list)"
tail -n 1 "$log" | grep -q "reboot: " || fail "the last words are not in the log: $(tail -n 3 "$log")"
/sbin/xl console sample >/tmp/words 2>&1 && fail "xl console finds a domain that is gone"
grep -q "reboot: " /tmp/words || fail "xl console does not show the last words: $(cat /tmp/words)"
expect "loop devices" "" "$(losetup -a)"
expect "interfaces of guests" 0 "$(ls /sys/class/net | grep -c vif)"
mount -o loop,ro -t ext4 /guest/disk.img /mnt || fail "the disk cannot be mounted"
expect "the digest from dom0" "$digest" "$(md5sum </mnt/file | cut -c1-32)"
umount /mnt
wait_for 20 sh -c "[ \$(xl info free_memory) -ge $free ]" || fail "memory before $free MiB, after $(xl info free_memory) MiB"
note "nodes in the store: $nodes before, $(xenstore ls -f | wc -l) after"
hvlog=/var/log/xen/console/hypervisor.log
grep -q "(XEN).*d$id" "$hvlog" || fail "the hypervisor's log is not kept"
# It follows by an interrupt.
lines=$(wc -l <"$hvlog")
xl debug-keys h || fail "debug-keys: exit status $?"
wait_for 10 grep -q "key 'h'" "$hvlog" || fail "no new line in the log: $lines lines, then $(wc -l <"$hvlog")"
cat /var/log/xen/xen*.log /var/log/xen/devd.log
