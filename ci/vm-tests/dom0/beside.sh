#!/bin/sh
# Debian's xl and ours, command by command: to be sourced.

# mask: what changes from one moment to the next. Times; where vCPUs are and whether they run; free memory.
mask() {
	sed -E \
		-e 's/ +[0-9]+\.[0-9]( |$)/ SECONDS\1/' \
		-e 's/ +[0-9]+ +[r-][b-]- / CPU /' \
		-e 's/ +[r-][b-]----/ STATE/' \
		-e 's/^(free_memory +: )[0-9]+/\1N/' \
		-e 's/^( +[0-9]+: +[0-9]+ +)[0-9]+/\1N/' \
		-e 's/([0-9]+ days?, )?[ 0-9][0-9]:[0-9][0-9](:[0-9][0-9])?/TIME/g'
}

# same COMMAND...: both print the same and end alike; else the command is on the list of those that differ.
differ=
same() {
	xl "$@" >/tmp/debian 2>/tmp/debian.err
	theirs=$?
	/ours/xl "$@" >/tmp/ours 2>/tmp/ours.err
	ours=$?
	mask </tmp/debian >/tmp/debian.masked
	mask </tmp/ours >/tmp/ours.masked
	if diff /tmp/debian.masked /tmp/ours.masked >/tmp/diff && [ "$ours" = "$theirs" ]; then
		note "xl $*: $(wc -l </tmp/ours) lines alike, exit status $theirs"
		return
	fi
	note "xl $* differs, exit status $ours, not $theirs: $(cat /tmp/diff /tmp/ours.err)"
	differ="$differ [$*]"
}

# alike: ends the test if a command was not the same.
alike() {
	[ -z "$differ" ] || fail "different:$differ"
}
