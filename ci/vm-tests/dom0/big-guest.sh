#!/bin/sh
# Does a Linux guest use memory above 4 GiB, every page of it its own, and is all of it free again afterwards?
. /xt/tests/guests-lib.sh
log=$logs/guest-big.log
mib=5120
memory() { echo $(($(xl info free_memory) + $(xl list 0 | awk 'NR == 2 { print $3 }'))); }
all=$(memory)
note "free memory and dom0's: $all MiB"
[ "$(xl info free_memory)" -gt $mib ] || fail "the machine has $(xl info free_memory) MiB free"
nodes=$(xenstore ls -f | wc -l)
make big "memory = $mib" 'vcpus = 2' 'extra = "console=hvc0 quiet"'
wait_line 300 big 'GUEST-SHELL'

note "what it was given"
expect "memory in xl list" $mib "$(xl list big | awk 'NR == 2 { print $3 }')"
total=$(sed -n 's/.*XENOLITH-GUEST-READY .* mem=\([0-9]*\).*/\1/p' "$log")
[ "$total" -gt $(((mib - 256) * 1024)) ] && [ "$total" -le $((mib * 1024)) ] || fail "the guest's MemTotal is $total KiB"
note "MemTotal $total KiB"
# RAM below and above 4 GiB, in KiB, from the guest's own map: together what the config says, but for the page or so that
# Linux keeps of the first MiB.
ram() { answer big "grep '^[0-9a-f].*System RAM' /proc/iomem | (n=0; while IFS='- ' read s e rest; do \
[ \$((0x\$s >= 4294967296)) = $1 ] && n=\$((n + 0x\$e + 1 - 0x\$s)); done; echo \$((n / 1024)))"; }
low=$(ram 0)
high=$(ram 1)
note "RAM below 4 GiB: $low KiB, above: $high KiB"
[ "$high" -ge $((1024 * 1024)) ] || fail "only $high KiB above 4 GiB"
[ $((low + high)) -gt $(((mib - 2) * 1024)) ] && [ $((low + high)) -le $((mib * 1024)) ] ||
	fail "RAM of $((low + high)) KiB, not $mib MiB"

note "files larger than what lies below 4 GiB, each with its number"
parts=$((low / 65536 + 2))
in_guest 60 big "mkdir /big && mount -t tmpfs -o size=100% tmpfs /big && dd if=/dev/urandom of=/big/seed bs=1M count=64 2>/dev/null"
in_guest 1200 big "for n in \$(seq $parts); do (echo part \$n; cat /big/seed) >/big/\$n || break; done; [ -s /big/$parts ]"
used=$(answer big "df -k /big | awk 'NR == 2 { printf \"%d\", \$3 }'")
[ "$used" -gt "$low" ] || fail "the files have $used KiB, below 4 GiB are $low KiB"
note "$used KiB in files"
in_guest 1200 big "right=0; for n in \$(seq $parts); do [ \"\$(head -n 1 /big/\$n)\" = \"part \$n\" ] && tail -c +\$((\${#n} + 7)) /big/\$n | \
cmp -s - /big/seed && right=\$((right + 1)); done; [ \$right = $parts ]"

note "memory taken and given back across 4 GiB"
has_memory() { [ "$(xl list big | awk 'NR == 2 { print $3 }')" = "$1" ]; }
in_guest 60 big "umount /big"
for size in 3072 $mib; do
	xl mem-set big $size || fail "xl mem-set $size"
	wait_for 300 has_memory $size || fail "$size MiB wanted: $(xl list big)"
done
in_guest 600 big "mount -t tmpfs -o size=100% tmpfs /big && dd if=/dev/zero of=/big/again bs=1M count=$((low / 1024 + 64)) 2>/dev/null"

end big
note "everything is given back"
is_back() { [ "$(memory)" -ge $((all - 1)) ]; }
wait_for 60 is_back || fail "memory was $all MiB, is $(memory) MiB"
expect "nodes in xenstore" "$nodes" "$(xenstore ls -f | wc -l)"

# The freed memory serves another as large. It ends at once, without being asked.
make big "memory = $mib" 'extra = "console=hvc0 quiet gt.do=poweroff"' 'on_poweroff = "destroy"'
wait_for 300 gone big || fail "the second one does not end: $(xl list)"
wait_for 60 is_back || fail "memory was $all MiB, after the second $(memory) MiB"
! grep -E 'BUG|WARNING|Oops|stall|blocked for more' "$log" || fail "the guest complains"
