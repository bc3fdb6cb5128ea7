#!/bin/sh
# Do our programs run as services of a Debian with systemd, installed by the guide's commands? In /mnt is the source tree; the words of
# section 4 of the guide are taken from it. With `install` that is done and the machine starts anew; without, the services must
# have come up by their units alone.
. /mnt/ci/vm-tests/dom0/lib.sh
usleep() { sleep "$(awk "BEGIN { print $1 / 1000000 }")"; }
guide=/mnt/docs/guide/first-guest.md
units="proc-xen.mount xenstored xen-init-dom0 xenconsoled xen-devd"
logs=/var/log/xen/console

# block START: the block of the guide whose first line begins like that.
block() {
	awk -v start="$1" '/^```/ { inside = 0 } inside == 1 || (fence && index($0, start) == 1) { inside = 1; print } { fence = /^```[a-z]/ }' $guide
}
active() {
	for unit in $units; do
		systemctl is-active --quiet "$unit" || {
			systemctl status --no-pager "$unit"
			return 1
		}
	done
}
services() {
	wait_for 60 active || fail "$(active | head -n 12 | tr '\n' ';')"
	systemctl --no-pager status $units | grep -E '●|Loaded:|Active:|Status:|Main PID:'
	expect "failed units" "" "$(systemctl --failed --no-legend --plain)"
	expect "xl list" "Domain-0 0" "$(xl list | awk 'NR == 2 { print $1, $2 }')"
	xl info xen_extra | grep -q xenolith || fail "xl info xen_extra: $(xl info xen_extra)"
}
there() { xl domid web >/dev/null 2>&1; }
gone() { ! there; }

if [ "$1" = install ]; then
	note "$(. /etc/os-release; echo "$PRETTY_NAME"), $(systemctl --version | head -n 1)"
	block 'install -D' >/tmp/commands.sh
	grep -q 'systemctl enable' /tmp/commands.sh || fail "no commands in the guide: $(cat /tmp/commands.sh)"
	(cd /mnt && sh -ex /tmp/commands.sh) || fail "the guide's commands: exit status $?"
	services
	block 'name = "web"' >/etc/web.cfg
	grep -q vif /etc/web.cfg || fail "no config in the guide: $(cat /etc/web.cfg)"
	# As the guide says, for a network of dom0 and its guests.
	printf 'auto xenbr0\niface xenbr0 inet static\n    address 192.168.77.1/24\n    bridge_ports none\n' >/etc/network/interfaces.d/xenbr0
	note "the guide's commands have run"
	systemctl reboot
	exit
fi

services
wait_for 60 ip -br address show xenbr0 || fail "no bridge: $(ip -br address)"
ip -br address show xenbr0
free=$(xl info free_memory)
nodes=$(xenstore ls -f | wc -l)

note "the guest of the guide"
xl create /etc/web.cfg || fail "xl create: exit status $?"
log=$logs/guest-web.log
said() { grep -q "$1" $log; }
wait_for 900 said 'web login:' || fail "no login: $(tail -n 15 $log)"
answers() { ping -c 1 -W 2 192.168.77.3; }
wait_for 60 answers || fail "no answer from the guest: $(ip -br link); $(tail -n 5 $log)"
type_in() { printf '%s\r' "$1" >"$(xenstore read "/local/domain/$(xl domid web)/console/tty")"; }
type_in root
wait_for 120 said 'root@web:~#' || fail "no shell: $(tail -n 15 $log)"
type_in 'echo answer-$((40 + 2)) $(findmnt -no SOURCE /) $(systemctl --failed --no-legend --plain | wc -l)'
wait_for 60 said 'answer-42 /dev/xvda 0' || fail "no answer: $(tail -n 15 $log)"

note "services that start anew while it runs"
for unit in xen-devd xenconsoled xenstored; do
	systemctl restart $unit || fail "systemctl restart $unit"
	wait_for 60 active || fail "after the restart of $unit: $(active | head -n 12 | tr '\n' ';')"
	wait_for 30 there || fail "no guest after the restart of $unit"
done
for program in xenconsoled xenstored; do
	kill -KILL "$(pidof $program)"
	wait_for 60 pidof $program || fail "$program does not come back"
done
wait_for 60 active || fail "after two services were killed: $(active | head -n 12 | tr '\n' ';')"
answers || fail "the guest does not answer any more"
sleep 2
type_in 'echo again-$((40 + 3))'
wait_for 60 said 'again-43' || fail "no console after its daemon was killed: $(tail -n 15 $log)"

xl shutdown -w web || fail "xl shutdown: exit status $?"
wait_for 60 gone || fail "the guest is still there: $(xl list)"
wait_for 60 sh -c "[ \$(xl info free_memory) -ge $free ]" || fail "memory before $free MiB, after $(xl info free_memory) MiB"
expect "nodes in the store" "$nodes" "$(xenstore ls -f | wc -l)"
expect "loop devices" "" "$(losetup -a)"
expect "failed units" "" "$(systemctl --failed --no-legend --plain)"
echo "XT-RESULT installed pass"
