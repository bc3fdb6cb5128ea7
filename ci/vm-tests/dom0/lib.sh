# Helpers of the dom0 test scripts. A script that returns 0 has passed; `fail` ends it with a reason.

# option KEY: the value of xt.KEY= on the kernel's command line.
option() {
	tr ' ' '\n' </proc/cmdline | sed -n "s/^xt\.$1=//p" | tail -n 1
}

# fail TEXT: ends the test.
fail() {
	echo "XT-FAIL $*"
	exit 1
}

# note TEXT: a line for the log.
note() {
	echo "XT-NOTE $*"
}

# expect WHAT WANTED GOT: ends the test unless both are the same text.
expect() {
	[ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"
	note "$1 is '$3'"
}

# need_module NAME: loads a module or ends the test.
need_module() {
	modprobe "$1" || fail "module $1 does not load"
}

# wait_for SECONDS COMMAND...: retries until the command succeeds.
wait_for() {
	tries=$(($1 * 5))
	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		usleep 200000
	done
}

# interrupts PATTERN: how many interrupts all CPUs together have counted on matching lines of /proc/interrupts.
interrupts() {
	awk -v pattern="$1" '$0 ~ pattern { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0 }' \
		/proc/interrupts
}
