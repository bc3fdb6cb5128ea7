#!/bin/sh
# Does Debian's xentrace record what dom0 does? Counts the events of a second and compares them with the hypervisor's counters.
. /xt/lib.sh
. /xt/tests/debian-start.sh
trace=$root/xentrace
ours=/ours

# counts FILE: a line for each event: its number and how often it is there.
counts() {
	od -An -v -tx4 -w4 "$1" | awk '
		function hex(text,   n, i) {
			n = 0
			for (i = 1; i <= length(text); i++) n = 16 * n + index("0123456789abcdef", substr(text, i, 1)) - 1
			return n
		}
		left > 0 { left--; next }
		{
			word = hex($1)
			timed = word >= 2147483648
			extra = int(word / 268435456) % 8
			left = extra + (timed ? 2 : 0)
			seen[sprintf("%08x", word % 268435456)]++
		}
		END { for (event in seen) print event, seen[event] }'
}
# of FILE EVENT: how often.
of() { awk -v event="$2" '$1 == event { n = $2 } END { print n + 0 }' "$1"; }

"$ours/xl" exits 0 --json >/tmp/before.json || fail "xl exits: $?"
$trace -D -e 0x0008ffff -T 2 /tmp/trace >/tmp/said 2>&1 || fail "xentrace: exit status $?: $(cat /tmp/said)"
"$ours/xl" exits 0 --json >/tmp/after.json || fail "xl exits: $?"
counts /tmp/trace >/tmp/counts
note "$(wc -c </tmp/trace) bytes; events: $(sort /tmp/counts | tr '\n' ';')"
entries=$(of /tmp/counts 00081001)
exits=$(of /tmp/counts 00081102)
[ "$exits" -gt 100 ] || fail "only $exits exits in two seconds"
[ $((entries - exits)) -le 16 ] && [ $((exits - entries)) -le 16 ] || fail "$entries entries, $exits exits"
for event in 00082012:VMMCALL 00082004:INJ_VIRQ 00082013:HLT 0001f003:cpu_change; do
	n=$(of /tmp/counts "${event%:*}")
	[ "$n" -gt 0 ] || fail "no ${event#*:} among the records"
done
# What is not of this class must not be there, but for the buffers' own records.
others=$(awk '$1 !~ /^0008/ && $1 !~ /^0001f00[123]$/' /tmp/counts)
[ -z "$others" ] || fail "events that nobody asked for: $others"
# There were at least as many exits between the two looks as xentrace recorded.
total() { awk -F'[:,]' '/"exits_total"/ { print $2 + 0; exit }' "$1"; }
all=$(($(total /tmp/after.json) - $(total /tmp/before.json)))
[ "$exits" -le "$all" ] || fail "$exits exits recorded, $all counted"
note "$exits exits recorded, $all counted from before xentrace until after it"
# It was switched off at the end. A second run with all events has also the scheduler's.
$trace -D -e all -T 1 /tmp/trace >/tmp/said 2>&1 || fail "xentrace again: $(cat /tmp/said)"
counts /tmp/trace >/tmp/counts
[ "$(awk '$1 ~ /^00021/ { n += $2 } END { print n + 0 }' /tmp/counts)" -gt 0 ] || fail "no run states: $(cat /tmp/counts)"
