#!/bin/sh
# Does our xl, with our xenstored, tell of this machine and change it?
. /xt/lib.sh
# Without xenstored: one line, after some seconds. The kernel has its device for it all the same.
[ -e /dev/xen/xenbus ] || fail "no /dev/xen/xenbus"
start=$(cut -d. -f1 /proc/uptime)
xl list >/tmp/out 2>/tmp/err
status=$?
expect "exit status without xenstored, lines" "1 0 1" "$status $(wc -l </tmp/out) $(wc -l </tmp/err)"
grep -q 'cannot reach xenstored' /tmp/err || fail "xl list without xenstored: $(cat /tmp/err)"
took=$(($(cut -d. -f1 /proc/uptime) - start))
[ $took -le 20 ] || fail "it took $took s to say: $(cat /tmp/err)"
note "after $took s: $(cat /tmp/err)"
xenstored --pid-file=/run/xenstored.pid || fail "xenstored does not start"
xenstore write /local/domain/0/name Domain-0 /local/domain/0/domid 0 /local/pool/0/name Pool-0 || fail "no write"
mkdir -p /var/lock

# Linux registers a vCPU that it may use; to use it is left to udev.
cpu1=/sys/devices/system/cpu/cpu1
gone() { [ ! -e $cpu1/online ] || grep -q 0 $cpu1/online; }
back() { [ -e $cpu1/online ] && echo 1 >$cpu1/online && grep -q 1 $cpu1/online; }

# shape COMMAND...: its output with every digit as 9 and blanks squeezed.
shape() {
	xl "$@" >/tmp/out 2>/tmp/err || fail "xl $*: exit status $?: $(cat /tmp/err)"
	sed -E -e 's/[0-9]+/9/g' -e 's/[[:blank:]]+/ /g' -e 's/ $//' /tmp/out
}
number() { xl "$@" | tr -dc 0-9; }

expect "list" 'Name ID Mem VCPUs State Time(s)
Domain-9 9 9 9 r----- 9.9' "$(shape list)"
expect "list -v -c -n" 'Name ID Mem VCPUs State Time(s) UUID Reason-Code Security Label Cpupool NODE Affinity
Domain-9 9 9 9 r----- 9.9 9-9-9-9-9 - - Pool-9 all' "$(shape list -v -c -n)"
expect "domid" 0 "$(xl domid Domain-0)"
expect "domname" Domain-0 "$(xl domname 0)"
expect "vCPUs" "$(nproc)" "$(xl vcpu-list 0 | grep -c '^Domain-0 .* all / all$')"
expect "cpupool-list" 'Name CPUs Sched Active Domain count
Pool-9 9 credit9 y 9' "$(shape cpupool-list)"
expect "sched-credit2" 'Cpupool Pool-9: ratelimit=9us
Name ID Weight Cap
Domain-9 9 9 9' "$(shape sched-credit2)"
expect "uptime" 'Name ID Uptime
Domain-9 9 9:9:9' "$(shape uptime)"
expect "getenforce" 'Flask XSM Disabled' "$(xl getenforce)"
expect "nr_cpus" "$(option cpus)" "$(xl info nr_cpus)"
expect "machine" "$(uname -m)" "$(xl info machine)"
expect "first and last line of info" 'host : dom9
xend_config_format : 9' "$(shape info | sed -n '1p;$p')"
expect "lines of info -n" "$(($(xl info | wc -l) + 8 + $(nproc)))" "$(xl info -n | grep -vc '^[0-9a-f]*:[0-9a-f]*:[0-9a-f.]* ')"
[ "$(xl info total_memory)" -gt "$(number info free_memory)" ] || fail "memory: $(xl info)"
xl dmesg | grep -q 'Xen' || fail "xl dmesg: $(xl dmesg | head -3)"
# What dom0 prints on the same line is not the hypervisor's.
echo "a line of dom0" >/dev/hvc0
xl dmesg | grep -v '^(XEN) ' && fail "lines in xl dmesg are not the hypervisor's"

# JSON is whole, and the same numbers are in it.
for command in list info vcpu-list cpupool-list sched-credit2 uptime claims vm-list dmesg; do
	xl "$command" --json >/tmp/json || fail "xl $command --json: $?"
	head -c 1 /tmp/json | grep -q '{' || fail "xl $command --json: $(head -3 /tmp/json)"
	grep -q '"version": 1' /tmp/json || fail "xl $command --json has no version"
done
xl list --json | grep -q '"state": "running"' || fail "no state in JSON: $(xl list --json)"
xl list nobody --json 2>&1 | grep -q '^{"error":{"code":1,"message":"nobody is an invalid domain' ||
	fail "no error in JSON: $(xl list nobody --json 2>&1)"

# Exits and interrupts, which only Xenolith tells.
case $(xl info xen_extra) in
*xenolith*)
	expect "first line of exits" "Domain-0 (0), $(nproc) vCPUs" "$(xl exits Domain-0 | head -n 1)"
	hypercalls=$(xl exits 0 -T 0.5 | awk '$NF == "hypercall" { print $1 }')
	[ "${hypercalls:-0}" -gt 0 ] || fail "no hypercalls in half a second: $(xl exits 0)"
	expect "vCPUs by themselves" "$(nproc)" "$(xl exits --vcpus 0 | grep -c '^Domain-0 (0), vCPU ')"
	xl exits --json >/tmp/before && xl exits --json >/tmp/after || fail "exits --json: $?"
	grep -q '"version": 1' /tmp/before || fail "exits --json has no version"
	xl exits --diff /tmp/before /tmp/after | grep -qE '[0-9] +[0-9]+ .*  all exits$' || fail "exits --diff: $(xl exits --diff /tmp/before /tmp/after)"
	expect "CPUs of exits --cpus" "$(option cpus)" "$(xl exits --cpus | grep -vc '^CPU')"
	;;
*)
	xl exits 2>&1 | grep -q 'Xenolith has it' || fail "exits: $(xl exits 2>&1)"
	;;
esac

# Changes.
xl vcpu-pin 0 1 0 || fail "vcpu-pin"
expect "affinity" "0 / all" "$(xl vcpu-list 0 | awk '$3 == 1 { print $(NF - 2), $(NF - 1), $NF }')"
xl vcpu-pin 0 all all || fail "vcpu-pin all"
xl sched-credit2 -d 0 -w 512 -c 0 || fail "sched-credit2 -d"
expect "weight" 512 "$(xl sched-credit2 -d 0 | awk '$2 == 0 { print $3 }')"
mib=$(xl list 0 | awk 'NR == 2 { print $3 }')
xl mem-set 0 $((mib - 64)) || fail "mem-set"
shrunk() { [ "$(xl list 0 | awk 'NR == 2 { print $3 }')" -le $((mib - 60)) ]; }
wait_for 30 shrunk || fail "dom0 does not give memory back: $(xl list 0)"
xl mem-set 0 "$mib" || fail "mem-set back"
grown() { [ "$(xl list 0 | awk 'NR == 2 { print $3 }')" -ge $((mib - 4)) ]; }
wait_for 30 grown || fail "dom0 does not take memory back: $(xl list 0)"
xl vcpu-set 0 1 || fail "vcpu-set"
wait_for 30 gone || fail "dom0 does not switch off its CPU"
off() { xl vcpu-list 0 | grep -q -- '--p'; }
wait_for 10 off || fail "vcpu-list: $(xl vcpu-list 0)"
xl vcpu-set 0 2 || fail "vcpu-set back"
wait_for 30 back || fail "dom0 does not switch on its CPU"
xl debug-keys h || fail "debug-keys"
xl dmesg -c >/tmp/log || fail "dmesg -c"
[ "$(xl dmesg | wc -c)" -lt "$(wc -c </tmp/log)" ] || fail "dmesg -c does not empty the log"
# The live list takes a second screen and gives it back.
xl top -i 2 -d 0.2 >/tmp/screen </dev/null || fail "top: $?"
enter=$(printf '\033[?1049h')
leave=$(printf '\033[?1049l')
case $(cat /tmp/screen) in
"$enter"*Domain-0*"$leave") ;;
*) fail "top: $(head -c 300 /tmp/screen)" ;;
esac
xl console 0 2>/dev/null
expect "exit status of console 0" 22 $?
