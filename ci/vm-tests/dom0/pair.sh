#!/bin/sh
# Do two guests talk over the bridge, and do pause, vcpu-set and mem-set do them no harm while they work?
. /xt/tests/guests-lib.sh
for n in 1 2; do
	make "guest$n" 'memory = 256' 'vcpus = 2' 'maxvcpus = 3' "extra = \"console=hvc0 quiet gt.ip=192.168.77.1$n/255.255.255.0\"" \
		'vif = ["bridge=xenbr0"]'
done
for n in 1 2; do
	wait_line 240 "guest$n" "GUEST-SHELL"
done

note "ping and a file, both ways"
in_guest 60 guest1 "ping -c 5 -i 0.2 192.168.77.12"
in_guest 60 guest2 "ping -c 3 -s 1400 192.168.77.11"
# send FROM TO: a file of 16 MiB whose digest must be the same on both sides.
send() {
	in_guest 120 "$1" "dd if=/dev/urandom of=/tmp/sent bs=1M count=16"
	# In the background, and not reading the terminal: what is typed meanwhile is not for it.
	type_in "$2" "(nc -l -p 5000 -e sh -c 'cat >/tmp/got'; echo got-\$((40+$sent))) &"
	sleep 1
	type_in "$1" "nc 192.168.77.1${2#guest} 5000 </tmp/sent &"
}
same_file() {
	wait_line 300 "$2" "got-$((40 + sent))"
	from=$(answer "$1" "md5sum </tmp/sent | cut -c1-32")
	expect "the digest on $2" "$from" "$(answer "$2" "md5sum </tmp/got | cut -c1-32")"
	sent=$((sent + 1))
}
sent=1
send guest1 guest2
same_file guest1 guest2
send guest2 guest1
same_file guest2 guest1

note "pause and unpause under load"
busy='while true; do head -c 4194304 /dev/zero | md5sum >/dev/null; done'
for n in 1 2; do
	type_in "guest$n" "($busy) &"
done
send guest1 guest2
for n in 1 2 1 2; do
	xl pause "guest$n" || fail "xl pause"
	xl list "guest$n" | awk 'NR == 2 { print $5 }' | grep -q p || fail "not paused: $(xl list)"
	ping -c 1 -w 2 "192.168.77.1$n" >/dev/null && fail "a paused guest answers"
	before=$(xl list "guest$n" | awk 'NR == 2 { print $6 }')
	sleep 1
	expect "time used while paused" "$before" "$(xl list "guest$n" | awk 'NR == 2 { print $6 }')"
	xl unpause "guest$n" || fail "xl unpause"
	sleep 1
done
same_file guest1 guest2
ping -c 2 -w 60 192.168.77.11 >/dev/null && ping -c 2 -w 60 192.168.77.12 >/dev/null || fail "no answer after unpause"

note "vcpu-set and mem-set while busy"
online() { [ "$(xl vcpu-list guest1 | tail -n +2 | awk '$5 != "--p"' | wc -l)" = "$1" ]; }
has_memory() { [ "$(xl list guest1 | awk 'NR == 2 { print $3 }')" = "$1" ]; }
send guest2 guest1
for vcpus in 1 3 2; do
	xl vcpu-set --ignore-host guest1 "$vcpus" || fail "xl vcpu-set $vcpus"
	guest_cpus guest1 "$vcpus"
	wait_for 120 online "$vcpus" || fail "$vcpus vCPUs wanted: $(xl vcpu-list guest1)"
	mib=$((160 + vcpus * 32))
	xl mem-set guest1 "$mib" || fail "xl mem-set $mib"
	wait_for 120 has_memory "$mib" || fail "$mib MiB wanted: $(xl list guest1)"
done
same_file guest2 guest1
for n in 1 2; do
	# A trap or warning of the kernel would be on its console.
	! grep -E 'BUG|WARNING|Oops|stall|blocked for more' "$logs/guest-guest$n.log" || fail "guest$n complains"
	end "guest$n"
done
expect "interfaces of guests" 0 "$(ls /sys/class/net | grep -c vif)"
