#!/bin/sh
# Does our xl print what Debian's prints, on the same hypervisor with the same daemons?
. /xt/lib.sh
. /xt/tests/debian-start.sh
. /xt/tests/beside.sh

# Linux registers a vCPU that it may use; to use it is left to udev.
cpu1=/sys/devices/system/cpu/cpu1
gone() { [ ! -e $cpu1/online ] || grep -q 0 $cpu1/online; }
back() { [ -e $cpu1/online ] && echo 1 >$cpu1/online && grep -q 1 $cpu1/online; }

# looks: all commands that only look.
looks() {
	same list
	same list -v
	same list -Z -c -n
	same list Domain-0
	same vcpu-list
	same vcpu-list 0
	same vm-list
	same claims
	same sharing
	same uptime
	same domid Domain-0
	same domname 0
	same info
	same info -n
	same info xen_
	same cpupool-list
	same cpupool-list -c
	same sched-credit
	same sched-credit2
	same sched-credit2 -d 0
	same sched-credit2 -s
	same getenforce
	same network-list 0
	same block-list 0
}

note "$(/ours/xl info xen_version) below"
looks
# Errors have the same exit status.
same list nobody
same domid nobody
same domname 77
same vcpu-list -x
same cpupool-list nobody
same no-such-command
same -N info

# Configs that cannot be used.
# config LINE...: a config with all that a domain needs, and these lines.
config() {
	printf 'type = "pvh"\nname = "wrong"\nkernel = "/guest/vmlinuz"\nmemory = 128\n' >/tmp/wrong.cfg
	printf '%s\n' "$@" >>/tmp/wrong.cfg
}
same create -q /tmp/none.cfg
config
same create -q --nonsense /tmp/wrong.cfg
for line in 'memory = ' 'name = "Domain-0"' 'type = "nonsense"' \
	'kernel = "/tmp/none"' 'kernel = "/xt/lib.sh"' 'ramdisk = "/tmp/none"' 'memory = 100000' \
	'cpus = "nonsense"' 'pool = "nonsense"' 'disk = ["nonsense"]' 'disk = ["/tmp/none,raw,xvda,w"]' \
	'on_crash = "nonsense"' 'uuid = "nonsense"'; do
	note "$line"
	config "$line"
	same create -q /tmp/wrong.cfg
	! xl domid wrong >/dev/null 2>&1 || xl destroy wrong
done
config
same create -n -q /tmp/wrong.cfg 'memory=x y'
same list

# Here Debian's prints its help as well.
xl vcpu-pin 0 >/dev/null 2>&1
theirs=$?
/ours/xl vcpu-pin 0 2>/dev/null
expect "exit status of vcpu-pin without its arguments" "$theirs" $?

# What one changes, the other sees.
same vcpu-pin 0 1 0
same vcpu-list
/ours/xl vcpu-pin 0 1 all 1 || fail "vcpu-pin"
same vcpu-list
expect "affinity set by ours" "all / 1" "$(xl vcpu-list 0 | awk '$3 == 1 { print $(NF - 2), $(NF - 1), $NF }')"
/ours/xl vcpu-pin 0 1 all all || fail "vcpu-pin"
/ours/xl sched-credit2 -d 0 -w 300 || fail "sched-credit2"
expect "weight set by ours" 300 "$(xl sched-credit2 -d 0 | awk '$2 == 0 { print $3 }')"
xl debug-keys h || fail "Debian's debug-keys"
/ours/xl debug-keys h || fail "our debug-keys"
same dmesg

mib=$(/ours/xl list 0 | awk 'NR == 2 { print $3 }')
/ours/xl mem-set 0 $((mib - 64)) || fail "mem-set"
shrunk() { [ "$(xl list 0 | awk 'NR == 2 { print $3 }')" -le $((mib - 60)) ]; }
wait_for 30 shrunk || fail "dom0 does not give memory back: $(xl list 0)"
note "dom0 went from $mib MiB to $(xl list 0 | awk 'NR == 2 { print $3 }')"
same mem-set 0 "$mib"
/ours/xl vcpu-set 0 1 || fail "vcpu-set"
wait_for 30 gone || fail "dom0 does not switch off its CPU"
same vcpu-list
same vcpu-set 0 2
wait_for 30 back || fail "dom0 does not switch on its CPU"
same vcpu-list
alike
