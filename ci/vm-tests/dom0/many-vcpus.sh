#!/bin/sh
# Does a Linux guest run on 64 vCPUs, far more than the machine has CPUs, and lose and get them?
. /xt/tests/guests-lib.sh
log=$logs/guest-many.log
count=64
memory() { echo $(($(xl info free_memory) + $(xl list 0 | awk 'NR == 2 { print $3 }'))); }
all=$(memory)
nodes=$(xenstore ls -f | wc -l)
note "CPUs of the machine: $(xl info nr_cpus)"
[ "$(xl info nr_cpus)" -lt $count ] || fail "the machine has $(xl info nr_cpus) CPUs"
# The host's turn for one of so many vCPUs comes late.
make many 'memory = 512' "vcpus = $count" 'extra = "console=hvc0 quiet nosoftlockup rcupdate.rcu_cpu_stall_suppress=1"'
wait_line 600 many "XENOLITH-GUEST-READY .* cpus=$count"
wait_line 120 many 'GUEST-SHELL'

note "what xl says"
expect "vCPUs in xl list" $count "$(xl list many | awk 'NR == 2 { print $4 }')"
expect "vCPUs in xl vcpu-list" "$(seq 0 $((count - 1)) | tr '\n' ' ')" "$(xl vcpu-list many | awk 'NR > 1 { printf "%d ", $3 }')"
# on: how many are on; a state of --p is off.
on() { xl vcpu-list many | awk 'NR > 1 && $5 != "--p"' | wc -l; }
expect "vCPUs that are on" $count "$(on)"
expect "vcpus_online in JSON" "\"vcpus_online\": $count" "$(xl list many --json | grep -o '"vcpus_online": [0-9]*')"

note "what the guest says"
expect "CPUs on" 0,$((count - 1)) "$(answer many "tr - , </sys/devices/system/cpu/online")"
expect "CPUs possible" 0,$((count - 1)) "$(answer many "tr - , </sys/devices/system/cpu/possible")"
# A package, a core for each vCPU, a thread for each core; APIC IDs are twice the numbers.
column() { answer many "awk -F': *' '/^$1/ { printf \"%s,\", \$2 }' /proc/cpuinfo"; }
expect "APIC IDs" "$(seq 0 2 $((count * 2 - 2)) | tr '\n' ,)" "$(column 'apicid')"
expect "initial APIC IDs" "$(seq 0 2 $((count * 2 - 2)) | tr '\n' ,)" "$(column 'initial apicid')"
expect "cores" "$(seq 0 $((count - 1)) | tr '\n' ,)" "$(column 'core id')"
expect "packages" "0," "$(answer many "sed -n 's/^physical id.*: //p' /proc/cpuinfo | sort -u | tr '\n' ,")"
# `siblings` and `cpu cores` of each.
expect "siblings and cores" "$count,$((count * 2))" "$(answer many "sed -n 's/^siblings.*: //p;s/^cpu cores.*: //p' /proc/cpuinfo | sort | uniq -c | awk '{ print \$2 \",\" \$1 }'")"
# Each one works: a process bound to it says where it runs (the 39th word of its stat).
in_guest 300 many "for c in \$(seq 0 $((count - 1))); do [ \$(taskset -c \$c awk '{ print \$39 }' /proc/self/stat) = \$c ] || break; done; [ \$c = $((count - 1)) ]"

note "vCPUs taken and given"
number_on() { [ "$(on)" = "$1" ]; }
for vcpus in 3 $count 32 $count; do
	xl vcpu-set --ignore-host many $vcpus || fail "xl vcpu-set $vcpus"
	guest_cpus many $vcpus
	wait_for 300 number_on $vcpus || fail "$vcpus vCPUs wanted: $(xl vcpu-list many)"
	expect "vCPUs in xl list" $vcpus "$(xl list many | awk 'NR == 2 { print $4 }')"
done
# All at work at once: a digest on each.
in_guest 600 many "for c in \$(seq $count); do (head -c 1048576 /dev/zero | md5sum >/tmp/\$c) & done; wait; [ \$(cat /tmp/[0-9]* | sort -u | wc -l) = 1 ] && [ \$(ls /tmp/[0-9]* | wc -l) = $count ]"
end many
is_back() { [ "$(memory)" -ge $((all - 1)) ]; }
wait_for 60 is_back || fail "memory was $all MiB, is $(memory) MiB"
expect "nodes in xenstore" "$nodes" "$(xenstore ls -f | wc -l)"
! grep -E 'BUG|WARNING|Oops|stall|blocked for more' "$log" || fail "the guest complains"
