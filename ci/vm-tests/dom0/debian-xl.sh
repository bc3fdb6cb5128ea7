#!/bin/sh
# Do Debian's unmodified daemons and xl drive this hypervisor? One boot, many commands.
. /xt/tests/debian-lib.sh

note "the machine"
version=4.17
[ ! -d /usr/lib/xen-4.20 ] || version=4.20
expect "xen_version" $version "$(xl info xen_version | cut -d. -f1,2)"
expect "nr_cpus" "$(nproc)" "$(xl info nr_cpus)"
xl info virt_caps | grep -q "hvm hap" || fail "virt_caps: $(xl info virt_caps)"
expect "xl list" "Domain-0 0" "$(xl list | awk 'NR == 2 { print $1, $2 }')"
expect "vCPUs of dom0" "$(nproc)" "$(xl vcpu-list 0 | tail -n +2 | wc -l)"
xl dmesg | grep -q "(XEN).*dom0:" || fail "xl dmesg shows no boot messages"
expect "xl cpupool-list" "Pool-0 $(nproc) credit2 y 1" "$(xl cpupool-list | awk 'NR == 2 { print $1, $2, $3, $4, $5 }')"

note "a guest, for which dom0 balloons down"
guest one 'memory = 256' 'extra = "console=hvc0 quiet"'
xl create -q /tmp/one.cfg || fail "xl create: $?"
wait_line 300 one "XENOLITH-GUEST-READY .* cpus=1"
wait_line 60 one "GUEST-SHELL"
expect "memory and vCPUs" "256 1" "$(xl list one | awk 'NR == 2 { print $3, $4 }')"
type_in one 'echo console-$((40+2))'
wait_line 60 one "console-42"

note "pause, pins, shares"
xl pause one || fail "xl pause"
in_state one p || fail "state after xl pause: $(state one)"
xl unpause one || fail "xl unpause"
in_state one p && fail "state after xl unpause: $(state one)"
xl vcpu-pin one 0 1 1 || fail "xl vcpu-pin"
expect "pinned" "1 / 1" "$(xl vcpu-list one | awk '$3 == 0 { print $7, $8, $9 }')"
xl vcpu-pin one all all all || fail "xl vcpu-pin all"
expect "not pinned" "all / all" "$(xl vcpu-list one | awk '$3 == 0 { print $7, $8, $9 }')"
xl vcpu-pin one 0 77 2>/dev/null && fail "pinned to a CPU that is not there"
xl sched-credit2 -d one -w 512 || fail "xl sched-credit2"
expect "weight" 512 "$(xl sched-credit2 -d one | awk '$1 == "one" { print $3 }')"

note "memory, names, keys, triggers"
xl mem-set one 200 || fail "xl mem-set"
wait_for 60 has one 3 200 || fail "xl mem-set 200: $(xl list one)"
xl mem-max one 300 || fail "xl mem-max"
xl rename one uno && expect "xl domname" uno "$(xl domname "$(xl domid uno)")" && xl rename uno one
xl sysrq one h || fail "xl sysrq"
wait_line 60 one "sysrq: HELP"
xl trigger one nmi || fail "xl trigger"
wait_line 60 one "Dazed and confused"
xl debug-keys q && xl dmesg | grep -q "(XEN) d[1-9].*Alive" || fail "debug key q"
expect "xl vm-list" 2 "$(xl vm-list | tail -n +2 | wc -l)"

note "its records"
xen-hvmctx "$(xl domid one)" >/tmp/records || fail "xen-hvmctx: exit status $?: $(tail -n 3 /tmp/records)"
sed -n 's/^ *\([A-Za-z_]*\): .*/\1/p' /tmp/records | sort | uniq -c
expect "records of CPUs" 1 "$(grep -c '^ *CPU: ' /tmp/records)"
# A 64-bit kernel with its paging: EFER.LMA, CR0.PG, a stack in the upper half.
grep -q 'cr0 0x00000000[89a-f]' /tmp/records && grep -qE 'rsp 0x[0-9a-f]{16}' /tmp/records || fail "$(cat /tmp/records)"
grep -qE 'efer +0x0*d01' /tmp/records || fail "EFER: $(grep efer /tmp/records)"

note "shutdown"
xl shutdown -w one >/dev/null || fail "xl shutdown -w"
wait_for 60 gone one || fail "xl list after shutdown: $(xl list)"
memory_back "after shutdown"
expect "xenstore" "" "$(xenstore-ls -f | grep -E '^/local/domain/[1-9]|^/libxl/[1-9]|/backend/.*/[1-9]')"

note "Debian's own test programs"
for program in test-cpu-policy test-paging-mempool test-resource test-xenstore; do
	"$root/$program" >"/tmp/$program" 2>&1
	status=$?
	sed "s/^/  $program: /" "/tmp/$program"
	[ $status = 0 ] || fail "$program: exit status $status"
	! grep -qE "^ *Fail|FAILED" "/tmp/$program" || fail "$program reports a failure"
done
memory_back "after the test programs"
