#!/bin/sh
# A guest that dies at once and before anybody looks: what did it say, and does the next one of that name work?
. /xt/lib.sh
log=/var/log/xen/console/guest-short.log
# short LINE...: a guest that does what its command line says; each LINE is added to its config.
short() {
	{
		printf 'name = "short"\ntype = "pvh"\nkernel = "/guest/vmlinuz"\nramdisk = "/guest/initrd.gz"\nmemory = 200\nvcpus = 1\n'
		printf '%s\n' "$@"
	} >/tmp/short.cfg
	xl create -q /tmp/short.cfg || fail "xl create: exit status $?"
}
gone() { ! xl domid short >/dev/null 2>&1; }
# words TEXT: what xl console shows of a guest that is gone.
words() {
	xl console short >/tmp/words 2>&1 && fail "xl console finds a domain that is gone"
	grep -q "$1" /tmp/words || fail "xl console does not show '$1': $(tail -n 5 /tmp/words)"
	# Not the line itself: a panic on dom0's console ends the test.
	note "xl console shows '$1'"
}

short 'extra = "console=hvc0 gt.do=crash"' 'on_crash = "destroy"'
wait_for 120 gone || fail "the guest that crashes is still there: $(xl list)"
grep -q "Kernel panic" "$log" || fail "no panic in the log: $(tail -n 5 "$log")"
words "Kernel panic"
# The same name again goes on in the same log.
short 'extra = "console=hvc0 gt.do=poweroff"'
wait_for 120 gone || fail "the guest that ends itself is still there: $(xl list)"
words "reboot: "
expect "guests in that log" 2 "$(grep -c "Linux version" "$log")"
# Their terminals go, too, though nobody has read them.
wait_for 60 sh -c '[ -z "$(find /dev/pts -name "[0-9]*")" ]' || fail "terminals stay: $(ls /dev/pts)"
cat /var/log/xen/xenconsoled.log
