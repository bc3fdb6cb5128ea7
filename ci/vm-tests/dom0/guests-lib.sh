#!/bin/sh
# Helpers of tests with several Linux guests of our toolstack: sourced.
. /xt/lib.sh
logs=/var/log/xen/console
for process in xenstored xenconsoled devd; do
	wait_for 20 pidof "$process" || fail "$process does not run"
done

# make NAME LINE...: makes a Linux guest; each LINE is added to its config.
make() {
	made=$1
	shift
	{
		printf 'type = "pvh"\nname = "%s"\nkernel = "/guest/vmlinuz"\nramdisk = "/guest/initrd.gz"\n' "$made"
		printf '%s\n' "$@"
	} >"/tmp/$made.cfg"
	xl create -q "/tmp/$made.cfg" 2>/tmp/said || fail "xl create $made: exit status $?; $(tail -n 3 /tmp/said)"
}
# wait_line SECONDS NAME TEXT: waits until a guest's console has shown a text.
wait_line() {
	wait_for $(($1 * $(option slow))) grep -q "$3" "$logs/guest-$2.log" || {
		tail -n 20 "$logs/guest-$2.log"
		fail "guest $2 does not say '$3'"
	}
}
type_in() { printf '%s\r' "$2" >"$(xenstore read "/local/domain/$(xl domid "$1")/console/tty")"; }
# in_guest SECONDS NAME COMMAND: types a command and waits until it has succeeded. What it typed shows no number.
number=0
in_guest() {
	number=$((number + 1))
	type_in "$2" "if $3; then echo done-\$(($number+1000)); else echo failed-\$(($number+1000)); fi"
	tries=$(($1 * 5 * $(option slow)))
	until grep -q "done-$((number + 1000))" "$logs/guest-$2.log"; do
		tries=$((tries - 1))
		if [ $tries = 0 ] || grep -q "failed-$((number + 1000))" "$logs/guest-$2.log"; then
			tail -n 20 "$logs/guest-$2.log"
			fail "guest $2 does not do: $3"
		fi
		usleep 200000
	done
}
# answer NAME COMMAND: the one word that it prints.
answer() {
	number=$((number + 1))
	type_in "$1" "echo answer-\$(($number+1000))-\$($2)-"
	wait_line 60 "$1" "answer-$((number + 1000))-[^-]*-" 
	sed -n "s/.*answer-$((number + 1000))-\([^-]*\)-.*/\1/p" "$logs/guest-$1.log" | tail -n 1
}
# guest_cpus NAME NUMBER: waits until the guest runs on so many CPUs. Linux makes added ones present; turning them on is user space's part.
guest_cpus() {
	in_guest 300 "$1" "n=0; until [ \$(nproc) = $2 ] || [ \$n = 120 ]; do [ \$(nproc) -gt $2 ] || \
for c in /sys/devices/system/cpu/cpu[1-9]*/online; do grep -q 1 \$c || echo 1 >\$c; done 2>/dev/null; sleep 1; n=\$((n+1)); done; [ \$(nproc) = $2 ]"
}
gone() { ! xl domid "$1" >/dev/null 2>&1; }
# end NAME: shuts a guest down.
end() {
	xl shutdown -w "$1" >/dev/null || fail "xl shutdown $1: exit status $?"
	wait_for 30 gone "$1" || fail "guest $1 is still there: $(xl list)"
}
