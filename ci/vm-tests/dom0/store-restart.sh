#!/bin/sh
# Does a guest live on while xenstored ends and comes back, by request and by force? Its back ends, its console, commands, and
# the process that waits for its end must find the new one.
. /xt/lib.sh
log=/var/log/xen/console/guest-sample.log
said() { [ "$(grep -c "$1" "$log" 2>/dev/null)" -ge "$2" ]; }
# type_in TEXT: types a line into the guest's console.
type_in() { printf '%s\r' "$1" >"$(xenstore read "/local/domain/$(xl domid sample)/console/tty")"; }
running() { pidof xenstored >/dev/null && xenstore read /local/domain/0/name; }
nodes() { xenstore ls -f | cut -d' ' -f1 | grep -v '^/local/domain/0/backend/[a-z]*$' | sort; }

wait_for 30 running || fail "xenstored does not run"
nodes >/tmp/before
xl create -q /etc/xen/sample.cfg || fail "xl create: $?"
wait_for 200 said GUEST-SHELL 1 || fail "the guest does not come up: $(tail -n 5 "$log")"
id=$(xl domid sample)
count=0
for signal in TERM KILL; do
	count=$((count + 1))
	old=$(pidof xenstored)
	# What was changed last is on disk after a second at most.
	sleep 2
	kill -$signal "$old"
	changed() { running && [ "$(pidof xenstored)" != "$old" ]; }
	wait_for 30 changed || fail "xenstored does not come back after SIG$signal"
	expect "the number of the guest" "$id" "$(xl domid sample)"
	expect "the target of its memory" "$(xl list sample | awk 'NR == 2 { print $3 * 1024 }')" \
		"$(xenstore read "/local/domain/$id/memory/target")"
	wait_for 30 sh -c "xenstore read /local/domain/$id/console/tty" || fail "no terminal after SIG$signal"
	type_in "echo alive-\$((40+$count))"
	wait_for 60 said "alive-4$count" 1 || fail "no answer on the console after SIG$signal: $(tail -n 3 "$log")"
	ping -c 3 -w 60 192.168.77.2 >/dev/null || fail "no ping after SIG$signal"
	# The kernels of both domains hear of a new device through the new daemon.
	xl network-attach sample "mac=00:16:3e:00:00:0$count" || fail "xl network-attach after SIG$signal"
	type_in "sleep 3; echo \"mac-\$(cat /sys/class/net/eth1/address).\""
	wait_for 60 said "mac-00:16:3e:00:00:0$count\\." 1 || fail "the guest gets no device after SIG$signal: $(tail -n 3 "$log")"
	xl network-detach sample 1 || fail "xl network-detach after SIG$signal"
done

note "a reboot, which the waiting process must hear of"
xl reboot sample || fail "xl reboot"
wait_for 240 said GUEST-SHELL 2 || fail "no reboot: $(tail -n 5 "$log"; cat /var/log/xen/xl-sample.log; xl list)"
[ "$(xl domid sample)" != "$id" ] || fail "the number is still $id"
xl shutdown -w sample || fail "xl shutdown"
gone() { ! xl domid sample; }
wait_for 60 gone || fail "it is still there: $(xl list)"
nodes >/tmp/after
diff /tmp/before /tmp/after | grep '^>' >/tmp/left && fail "nodes are left: $(cat /tmp/left)"
cat /var/log/xen/xl-sample.log /var/log/xen/xenstored.log
