#!/bin/sh
# Helpers of the tests with Debian's toolstack; starts it.
. /xt/lib.sh
. /xt/tests/debian-start.sh
logs=/var/log/xen/console

# wait_line SECONDS GUEST TEXT [TIMES]: waits until a guest's console has shown a text so many times.
wait_line() {
	wait_for "$1" shown "$2" "$3" "${4:-1}" || {
		tail -n 20 "$logs/guest-$2.log"
		fail "guest $2 does not say '$3'"
	}
}
shown() { [ "$(grep -c "$2" "$logs/guest-$1.log")" -ge "$3" ]; }
# state NAME: the state letters of a domain.
state() { xl list "$1" 2>/dev/null | awk 'NR == 2 { print $5 }'; }
in_state() { state "$1" | grep -q "$2"; }
field() { xl list "$1" | awk -v n="$2" 'NR == 2 { print $n }'; }
has() { [ "$(field "$1" "$2")" = "$3" ]; }
gone() { ! xl domid "$1" >/dev/null 2>&1; }
# guest NAME LINE...: writes a config of a Linux guest; each LINE is added.
guest() {
	name=$1
	shift
	{
		printf 'type = "pvh"\nname = "%s"\nkernel = "/guest/vmlinuz"\nramdisk = "/guest/initrd.gz"\n' "$name"
		printf '%s\n' "$@"
	} >"/tmp/$name.cfg"
}
# type_in NAME TEXT: types a line into a guest's console.
type_in() { echo "$2" >"$(xenstore-read "/local/domain/$(xl domid "$1")/console/tty")"; }
# memory_back WHEN: all of the memory that was free before the guests is free again.
memory_back() {
	wait_for 20 memory_is_back ||
		fail "$1: free and dom0's memory was $all MiB, is $(xl info free_memory) + $(field 0 3) MiB"
	note "$1: all memory is free again"
}
# dom0 may have ballooned down since, never up: what it gave up is free too.
# Both figures are rounded down to whole MiB.
memory_is_back() { [ "$(($(xl info free_memory) + $(field 0 3)))" -ge "$((all - 1))" ]; }
all=$(($(xl info free_memory) + $(field 0 3)))
