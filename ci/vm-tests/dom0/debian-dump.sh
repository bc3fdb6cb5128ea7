#!/bin/sh
# Does Debian's `xl dump-core` come to an end? Its library maps each frame up to the guest's highest by itself, whether there is one
# or not: nearly a million below 4 GiB, since its own pages of rings lie right there.
. /xt/tests/debian-lib.sh
guest one 'memory = 128' 'extra = "console=hvc0 quiet"'
xl create -q -p /tmp/one.cfg || fail "xl create: $?"
read -r start rest </proc/uptime
start=${start%.*}
lasted() {
	read -r now rest </proc/uptime
	echo "$((${now%.*} - start)) s"
}
xl dump-core one /tmp/one.core >/tmp/said 2>&1 &
dump=$!
while kill -0 $dump 2>/dev/null; do
	sleep 5
	note "after $(lasted): $(wc -c </tmp/one.core) bytes"
done
wait $dump || fail "xl dump-core: exit status $?: $(tail -n 3 /tmp/said)"
note "xl dump-core took $(lasted)"
# Pages that are not there at the end are filled up.
expect "an ELF file" ELF "$(head -c 4 /tmp/one.core | tail -c 3)"
[ "$(wc -c </tmp/one.core)" -gt $((128 << 20)) ] || fail "the file has $(wc -c </tmp/one.core) bytes"
xl destroy one || fail "xl destroy"
rm /tmp/one.core
memory_back "after xl destroy"
