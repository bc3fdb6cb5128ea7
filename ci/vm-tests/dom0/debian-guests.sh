#!/bin/sh
# Guests with disks and network interfaces, made and driven by Debian's toolstack, from create to crash.
. /xt/tests/debian-lib.sh

note "a guest with two vCPUs, a disk and a network interface, for which dom0 balloons down"
dd if=/dev/zero of=/tmp/disk.img bs=1M count=24 2>/dev/null
mke2fs -F /tmp/disk.img >/dev/null 2>&1 || fail "mke2fs"
guest one 'memory = 256' 'vcpus = 2' 'extra = "console=hvc0 quiet gt.ip=192.168.77.2/255.255.255.0"' \
	'disk = ["file:/tmp/disk.img,xvda,w"]' 'vif = ["bridge=xenbr0,mac=00:16:3e:00:00:01"]'
xl create -q /tmp/one.cfg || fail "xl create: $?"
wait_line 120 one "XENOLITH-GUEST-READY .* cpus=2"
wait_line 30 one "GUEST-DISK xvda bytes=25165824 mode=w"
wait_line 30 one "GUEST-NET eth0 mac=00:16:3e:00:00:01"
wait_line 30 one "GUEST-SHELL"
expect "memory and vCPUs" "256 2" "$(xl list one | awk 'NR == 2 { print $3, $4 }')"
[ "$(xl info free_memory)" -lt "$all" ] || fail "the guest takes no memory"
ping -c 3 -w 20 192.168.77.2 >/dev/null || fail "the guest does not answer pings"
expect "xl block-list" "51712 0" "$(xl block-list one | awk 'NR == 2 { print $1, $2 }')"
expect "xl network-list" "0 0 00:16:3e:00:00:01" "$(xl network-list one | awk 'NR == 2 { print $1, $2, $3 }')"

note "its console and its disk"
# Without a terminal it shows what the guest says and types nothing.
timeout 60 xl console one </dev/null >/tmp/console.out 2>&1 &
sleep 1
type_in one 'mount /dev/xvda /mnt && echo written-by-guest >/mnt/file && umount /mnt && echo disk-$((40+2))'
wait_for 40 grep -q disk-42 /tmp/console.out || fail "xl console: $(cat /tmp/console.out)"
kill $!
expect "xl console 0" 22 "$(xl console 0 >/dev/null 2>&1 </dev/null; echo $?)"

note "pause, pins, shares"
xl pause one || fail "xl pause"
in_state one p || fail "state after xl pause: $(state one)"
ping -c 1 -w 3 192.168.77.2 >/dev/null && fail "a paused guest answers"
xl unpause one || fail "xl unpause"
in_state one p && fail "state after xl unpause: $(state one)"
ping -c 2 -w 20 192.168.77.2 >/dev/null || fail "the guest does not answer after xl unpause"
xl vcpu-pin one 0 1 1 || fail "xl vcpu-pin"
expect "pinned" "1 / 1" "$(xl vcpu-list one | awk '$3 == 0 { print $7, $8, $9 }')"
xl vcpu-pin one all all all || fail "xl vcpu-pin all"
expect "not pinned" "all / all" "$(xl vcpu-list one | awk '$3 == 0 { print $7, $8, $9 }')"
xl vcpu-pin one 0 77 2>/dev/null && fail "pinned to a CPU that is not there"
xl sched-credit2 -d one -w 512 || fail "xl sched-credit2"
expect "weight" 512 "$(xl sched-credit2 -d one | awk '$1 == "one" { print $3 }')"

note "vCPUs and memory while it runs"
xl vcpu-set one 1 || fail "xl vcpu-set 1"
wait_for 30 has one 4 1 || fail "vCPU 1 does not go: $(xl vcpu-list one)"
xl vcpu-set one 2 || fail "xl vcpu-set 2"
type_in one 'sleep 2; echo 1 >/sys/devices/system/cpu/cpu1/online; echo "cpus-$(nproc)."'
wait_line 30 one "cpus-2\."
expect "vCPUs again" 2 "$(field one 4)"
xl mem-set one 200 || fail "xl mem-set"
wait_for 30 has one 3 200 || fail "xl mem-set 200: $(xl list one)"
xl mem-set one 256 || fail "xl mem-set"
wait_for 30 has one 3 256 || fail "xl mem-set 256: $(xl list one)"
xl mem-max one 300 || fail "xl mem-max"

note "names, keys, triggers"
xl rename one uno && expect "xl domname" uno "$(xl domname "$(xl domid uno)")" && xl rename uno one
xl sysrq one h || fail "xl sysrq"
wait_line 20 one "sysrq: HELP"
xl trigger one nmi || fail "xl trigger"
wait_line 20 one "Dazed and confused"
xl debug-keys q && xl dmesg | grep -q "(XEN) d[1-9].*Alive" || fail "debug key q"
expect "xl uptime" one "$(xl uptime one | awk 'NR == 2 { print $1 }')"
expect "xl list -l" '"one"' "$(xl list -l one | sed -n 's/^ *"name": \(.*\),$/\1/p')"
expect "xl vm-list" 2 "$(xl vm-list | tail -n +2 | wc -l)"
xl claims | grep -q "^one " || fail "xl claims"
xl sharing | grep -q "^one " || fail "xl sharing"

note "a second disk and interface, added and taken away"
dd if=/dev/zero of=/tmp/more.img bs=1M count=4 2>/dev/null
xl block-attach one file:/tmp/more.img,xvdb,r || fail "xl block-attach"
type_in one 'sleep 2; echo "size-$(cat /sys/block/xvdb/size)-ro$(cat /sys/block/xvdb/ro)."'
wait_line 30 one "size-8192-ro1\."
xl block-detach one xvdb || fail "xl block-detach"
xl network-attach one bridge=xenbr0 mac=00:16:3e:00:00:02 || fail "xl network-attach"
type_in one 'sleep 2; echo "mac-$(cat /sys/class/net/eth1/address)."'
wait_line 30 one "mac-00:16:3e:00:00:02\."
xl network-detach one 1 || fail "xl network-detach"
expect "interfaces left" 1 "$(xl network-list one | tail -n +2 | wc -l)"

note "shutdown"
xl shutdown -w one >/dev/null || fail "xl shutdown -w"
wait_for 30 gone one || fail "xl list after shutdown: $(xl list)"
need_module crc32c_generic
need_module ext4
mount -o loop,ro /tmp/disk.img /mnt && expect "the guest's file" written-by-guest "$(cat /mnt/file)"
umount /mnt
memory_back "after shutdown"
expect "xenstore" "" "$(xenstore-ls -f | grep -E '^/local/domain/[1-9]|^/libxl/[1-9]|/backend/.*/[1-9]')"
losetup -a | grep -q img && fail "a loop device is left: $(losetup -a)"

note "reboot, crash, destroy"
guest two 'memory = 128' 'extra = "console=hvc0 quiet gt.do=reboot"' 'on_reboot = "restart"'
xl create -q /tmp/two.cfg || fail "xl create two: $?"
wait_line 240 two "XENOLITH-GUEST-READY" 3
while ! gone two; do xl destroy two 2>/dev/null; sleep 1; done
guest three 'memory = 128' 'extra = "console=hvc0 quiet gt.do=crash"' 'on_crash = "preserve"'
xl create -q /tmp/three.cfg || fail "xl create three: $?"
wait_for 120 in_state three c || fail "state after a crash: $(state three)"
xl list -v three | awk 'NR == 2 { print $8 }' | grep -qx 3 || fail "reason: $(xl list -v three)"
xl destroy three || fail "xl destroy"
gone three || fail "xl list after xl destroy: $(xl list)"
memory_back "after reboots and a crash"

note "what cannot be created leaves nothing behind"
guest four 'memory = 100000'
xl create -q /tmp/four.cfg 2>/dev/null && fail "a guest larger than the machine"
guest four 'memory = 128' 'disk = ["file:/tmp/none.img,xvda,w"]'
xl create -q /tmp/four.cfg 2>/dev/null && fail "a guest with a disk that is not there"
guest four 'memory = 128' 'vcpus = 200'
xl create -q /tmp/four.cfg 2>/dev/null && fail "a guest with too many vCPUs"
expect "xl list" 1 "$(xl list | tail -n +2 | wc -l)"
memory_back "after refused guests"

