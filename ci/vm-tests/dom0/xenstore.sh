#!/bin/sh
# Does our xenstored serve programs over the socket and the kernel over its ring, and does the kernel not notice a restart?
. /xt/lib.sh
log=/tmp/xenstored.log
start() {
	xenstored --pid-file=/run/xenstored.pid --trace-file="$log" || fail "xenstored does not start: $(cat "$log")"
}
ring() { XENSTORED_PATH=/none xenstore "$@"; }
start
[ "$(stat -c %a /run/xenstored/socket)" = 600 ] || fail "the socket's mode"
xenstore write /t/a socket || fail "no write over the socket"
wait_for 10 test -c /dev/xen/xenbus || fail "no /dev/xen/xenbus"
expect "over the ring" socket "$(ring read /t/a)"
ring write /t/b ring || fail "no write over the ring"
expect "over the socket" ring "$(xenstore read /t/b)"
expect "a relative path over the ring" here "$(ring write rel here; xenstore read /local/domain/0/rel)"
# Longer than the ring, both ways.
long=$(head -c 3000 /dev/zero | tr '\0' x)
ring write /t/long "$long" || fail "no long write"
[ "$(ring read /t/long)" = "$long" ] || fail "a long value came back differently"
i=0
while [ $i -lt 200 ]; do
	ring write "/t/many/$i" "$i" || fail "write $i"
	i=$((i + 1))
done
expect "number of children" 200 "$(ring list /t/many | wc -l)"
# The hypervisor is asked about domains that permissions name.
xenstore chmod /t/a n0 r77 || fail "no chmod"
expect "entries without a domain that is not there" '/t/a = "socket"   (n0)' "$(xenstore ls -fp /t | sed -n 1p)"
xenstore chmod /t/a n77 2>/dev/null && fail "a domain that is not there owns a node"
# A watch of the kernel, over a restart.
XENSTORED_PATH=/none xenstore watch -n 3 /t/w >/tmp/watch &
wait_for 10 grep -q . /tmp/watch || fail "no first event"
kill -TERM "$(cat /run/xenstored.pid)"
wait_for 10 test ! -e /run/xenstored/socket || fail "xenstored does not end"
start
xenstore write /t/w/1 x /t/w/2 x || fail "no write after the restart"
wait_for 10 grep -q /t/w/2 /tmp/watch || fail "the watch is lost: $(cat /tmp/watch "$log")"
expect "over the ring after the restart" ring "$(ring read /t/b)"
expect "check" OK "$(xenstore control check)"
note "log: $(tr '\n' ';' <"$log")"
