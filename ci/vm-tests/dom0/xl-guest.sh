#!/bin/sh
# A guest that Debian's xl made: does ours show the same of it, and change it? A PVH guest; on Xen in an emulator, where those
# do not run, a PV guest.
. /xt/lib.sh
. /xt/tests/debian-start.sh
. /xt/tests/beside.sh
log=/var/log/xen/console/guest-one.log
type=pvh
xl info xen_extra | grep -q xenolith || type=pv
# Disks and interfaces are served by our program in place of the scripts.
for script in block vif-bridge; do
	ln -sf /ours/dom0-shim /etc/xen/scripts/$script
done
truncate -s 16M /tmp/disk.img /tmp/second.img
cat >/tmp/one.cfg <<TEXT
type = "$type"
name = "one"
kernel = "/guest/vmlinuz"
ramdisk = "/guest/initrd.gz"
memory = 256
vcpus = 2
extra = "console=hvc0 quiet gt.ip=192.168.77.2/255.255.255.0"
disk = ["file:/tmp/disk.img,xvda,w"]
vif = ["bridge=xenbr0,mac=00:16:3e:00:00:01"]
TEXT
xl create -q /tmp/one.cfg || fail "xl create: $?"
said() { grep -q "$1" "$log"; }
wait_for 120 said 'XENOLITH-GUEST-READY .* cpus=2' || fail "the guest does not come up: $(tail -n 5 "$log")"
wait_for 60 said 'GUEST-NET eth0' || fail "the guest has no network: $(tail -n 5 "$log")"
ping -c 2 192.168.77.2 >/dev/null || fail "no ping"

same list
same list -v -c -n
same list one
same vcpu-list
same vm-list
same domid one
same uptime
same claims
same sharing one
same sched-credit2
same network-list one
same block-list one 0
same cpupool-list
same vcpu-pin one all 1
same vcpu-list one
alike
domid=$(/ours/xl domid one)
expect "name" one "$(/ours/xl domname "$domid")"
/ours/xl list one --json | grep -q "\"type\": \"$type\"" || fail "$(/ours/xl list one --json)"

# Its console, both ways. The shell's echo has no 42 in it.
mkdir -p /var/lock
(sleep 1; echo 'echo answer-$((40 + 2))'; sleep 600) | /ours/xl console one >/tmp/console &
wait_for 30 grep -q answer-42 /tmp/console || fail "no answer on the console: $(cat /tmp/console)"
/ours/xl console one </dev/null >/dev/null 2>/tmp/err && fail "two consoles at a time"
grep -q 'open elsewhere' /tmp/err || fail "a second console: $(cat /tmp/err)"

# What ours changes, Debian's shows.
/ours/xl mem-set one 192 || fail "mem-set"
smaller() { [ "$(xl list one | awk 'NR == 2 { print $3 }')" -le 194 ]; }
wait_for 30 smaller || fail "the guest gives no memory back: $(xl list one)"
/ours/xl mem-max one 512 || fail "mem-max"
expect "static-max" 524288 "$(xenstore-read "/local/domain/$domid/memory/static-max")"
/ours/xl vcpu-set one 1 || fail "vcpu-set"
off() { xl vcpu-list one | grep -q -- '--p'; }
wait_for 30 off || fail "the guest keeps its vCPU: $(xl vcpu-list one)"
same vcpu-list one
/ours/xl sched-credit2 -d one -w 100 || fail "sched-credit2"
expect "weight" 100 "$(xl sched-credit2 -d one | awk 'NR == 2 { print $3 }')"
/ours/xl sysrq one h || fail "sysrq"
wait_for 30 said 'sysrq: HELP' || fail "no sysrq: $(tail -n 5 "$log")"
same trigger one nonsense

# Devices that come and go, made by one and undone by the other.
/ours/dom0-shim devd -a -p /run/devd.pid || fail "devd"
connected() { xl "$1" one | awk -v id="$2" '$1 == id { print $'"$3"' }' | grep -qx 4; }
/ours/xl block-attach one file:/tmp/second.img xvdb w || fail "block-attach"
wait_for 30 connected block-list 51728 4 || fail "xvdb is not connected: $(xl block-list one)"
same block-list one
xl block-detach one xvdb || fail "Debian's block-detach"
expect "disks" 1 "$(/ours/xl block-list one | tail -n +2 | wc -l)"
let_go() { ! losetup | grep -q second.img; }
wait_for 10 let_go || fail "the loop device is left: $(losetup)"
/ours/xl network-attach one bridge=xenbr0 mac=00:16:3e:00:00:02 || fail "network-attach"
wait_for 30 connected network-list 1 5 || fail "interface 1 is not connected: $(xl network-list one)"
same network-list one
/ours/xl network-detach one 00:16:3e:00:00:02 || fail "network-detach"
expect "interfaces" 1 "$(xl network-list one | tail -n +2 | wc -l)"
same block-detach one xvdb
same network-detach one 7
/ours/xl top -b -i 1 >/tmp/top || fail "top"
expect "interfaces and disks in top" "1 1" "$(awk '$1 == "one" { print $(NF - 9), $(NF - 6) }' /tmp/top)"
xentop -b -i 1 >/tmp/xentop || fail "xentop"
expect "head of top" "$(grep 'NAME  STATE' /tmp/xentop)" "$(grep 'NAME  STATE' /tmp/top)"

# A dump has the guest's memory in it, and the guest goes on.
if [ $type = pvh ]; then
	# The console is a terminal, to which the progress would go.
	/ours/xl dump-core one /tmp/core 2>/tmp/said || fail "dump-core: $(cat /tmp/said)"
	expect "start of the dump" "$(printf '\177ELF')" "$(head -c 4 /tmp/core)"
	expect "its sections" 5 "$(head -c 65536 /tmp/core | strings | grep -cE '^\.(shstrtab|note\.Xen|xen_(prstatus|pfn|pages))$')"
	mib=$(($(stat -c %s /tmp/core) >> 20))
	[ "$mib" -ge 180 ] && [ "$mib" -le 270 ] || fail "the dump has $mib MiB"
	grep -q 'gt.ip=192.168.77.2/255.255.255.0' /tmp/core || fail "the guest's command line is not in its dump"
	rm /tmp/core
	ping -c 2 192.168.77.2 >/dev/null || fail "no ping after the dump"
fi

# The console ends with the guest.
xl destroy one || fail "xl destroy"
ended() { ! pidof xl >/dev/null; }
wait_for 20 ended || fail "xl console does not end"
same list
alike
