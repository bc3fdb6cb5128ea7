#!/bin/sh
# Every command of xl, on guests of its own making: what it prints and how it ends, against xl-commands.golden. A line `$ xl ...`
# there is a command, `! ...` what it says on standard error, `= N` an exit status that is not 0. Numbers stand as 9, and what
# differs from one moment or machine to the next as a word.
. /xt/tests/guests-lib.sh
golden=/xt/tests/xl-commands.golden
out=/tmp/transcript
: >$out

# mask: UUIDs and host names; times; states of running domains and vCPUs, in text and JSON; what was built when and from what.
mask() {
	sed -E \
		-e 's/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/UUID/g' \
		-e 's/([0-9a-f]{2}:){5}[0-9a-f]{2}/MAC/g' \
		-e 's/([0-9a-f]{8}:)+[0-9a-f]{8}/CAPS/' \
		-e 's/^((release|version|machine|cc_compiler|cc_compile_by|cc_compile_domain|cc_compile_date|xen_extra|xen_version|xen_changeset|xen_caps|xen_commandline|virt_caps) *:).*/\1 TEXT/' \
		-e 's/("(release|version|machine|cc_compiler|cc_compile_by|cc_compile_domain|cc_compile_date|xen_extra|xen_version|xen_changeset|xen_caps|xen_commandline)": )".*"/\1"TEXT"/' \
		-e 's/0x[0-9a-f]+/9/g' -e 's/[0-9]+/9/g' \
		-e 's/[[:blank:]]+/ /g' -e 's/ $//' \
		-e 's/ ([r-][b-]----|--b---|-----r) / STATE /' -e 's/ (9|-) [r-][b-]- / CPU /' \
		-e 's/"state": "(running|blocked|runnable)"/"state": "RUNS"/' -e 's/"flags": "[r-][b-]----"/"flags": "FLAGS"/' \
		-e 's/9 days?, 9:9/9:9:9/' -e 's/ 9:9 / 9:9:9 /'
}
# say WORD...: runs xl with these words and writes it down.
say() { tell mask "$@"; }
# The same with its numbers.
exact() { tell cat "$@"; }
tell() {
	filter=$1
	shift
	printf '$ xl %s\n' "$*" >>$out
	xl "$@" >/tmp/said.out 2>/tmp/said.err </dev/null
	status=$?
	said $status "$filter"
}
# said STATUS FILTER: what a command has left.
said() {
	{
		$2 </tmp/said.out
		$2 </tmp/said.err | sed 's/^/! /'
		[ "$1" = 0 ] || echo "= $1"
	} >>$out
}
title() { printf '\n# %s\n' "$*" >>$out; }
state() { xl list "$1" 2>/dev/null | awk 'NR == 2 { print $5 }'; }
in_state() { state "$1" | grep -q "$2"; }

dd if=/dev/zero of=/tmp/disk.img bs=1M count=8 2>/dev/null
cp /tmp/disk.img /tmp/more.img
cat >/tmp/web.cfg <<'TEXT'
name = "web"
type = "pvh"
uuid = "6d0e7a52-3f4c-4b5e-9d11-0a1b2c3d4e5f"
kernel = "/guest/vmlinuz"
ramdisk = "/guest/initrd.gz"
extra = "console=hvc0 quiet"
memory = 160
maxmem = 192
vcpus = 2
maxvcpus = 3
disk = [ "/tmp/disk.img,raw,xvda,w" ]
vif = [ "bridge=xenbr0,mac=00:16:3e:77:00:05" ]
TEXT
small() { printf 'name = "%s"\ntype = "pvh"\nkernel = "/guest/micro/life"\nmemory = 8\nextra = "life=%s"\n' "$1" "$2" >"/tmp/$1.cfg"; }

title "create: what it would do, with words that count like lines of the file"
exact create -n -q /tmp/web.cfg memory=128 'name="other"' 'vif=["bridge=xenbr0,mac=00:16:3e:77:00:06"]'
say create -n /tmp/web.cfg
exact -N create -q /tmp/web.cfg vcpus=0
exact -N config-update web /tmp/web.cfg memroy=1
exact create -V /tmp/web.cfg
exact create /tmp/none.cfg
exact create --json /tmp/none.cfg

title "create -p -d, list, unpause"
say create -p -d /tmp/web.cfg
say list
say list --json web
say unpause web
wait_line 300 web GUEST-SHELL
expect "memory with a greater maxmem" 160 "$(xl list web | awk 'NR == 2 { print $3 }')"
exact create -q /tmp/web.cfg
exact create -q --json /tmp/web.cfg

title "create -c, -F, -q, --json"
small talk poweroff
say create -c /tmp/talk.cfg
wait_for 30 gone talk || fail "talk: $(xl list)"
say create -q -F /tmp/talk.cfg
small still idle
say create -q /tmp/still.cfg
say destroy still
say create --json /tmp/still.cfg

title "list, vm-list, domid, domname, uptime"
say list
say list web
say list -v
say list -Z
say list -c -n
say list -l web
say list --json web
say vm-list
say vm-list --json
say domid web
say domid --json web
say domname "$(xl domid web)"
say domname --json 0
say uptime
say uptime -s
say uptime --json

title "the machine: info, dmesg, debug-keys, pools"
say info
say info -n
say info --json
exact info xen_major
xl dmesg -c >/dev/null
exact debug-keys h
say dmesg -c
say dmesg
xl debug-keys h
say dmesg --json
say cpupool-list
say cpupool-list -c
say cpupool-list --json
say sched-credit
say sched-credit --json
say sched-credit2
say sched-credit2 -d web -w 512
say sched-credit2 -d web
say sched-credit2 --json
say getenforce
say loadpolicy /tmp/none
exact loadpolicy --json /tmp/none
say claims
say claims --json
say sharing
say sharing --json web

title "vCPUs"
say vcpu-list
say vcpu-list --json web
say vcpu-pin web 0 1
exact vcpu-pin web 0 77
say vcpu-list web
say vcpu-pin web all all all
say vcpu-set web 1
one_on() { [ "$(xl list web | awk 'NR == 2 { print $4 }')" = 1 ]; }
wait_for 60 one_on || fail "vcpu-set: $(xl vcpu-list web)"
say vcpu-list web
exact vcpu-set web 9
say vcpu-set web 2
guest_cpus web 2

title "memory"
say mem-set web 128
has_memory() { [ "$(xl list web | awk 'NR == 2 { print $3 }')" = "$1" ]; }
wait_for 60 has_memory 128 || fail "mem-set: $(xl list web)"
say list web
say mem-max web 224
exact mem-max web 1
exact mem-set web 4096
say mem-set web 144
wait_for 60 has_memory 144 || fail "mem-set: $(xl list web)"

title "disks and interfaces"
say block-list web
say block-list --json web
say block-attach web /tmp/more.img,raw,xvdb,r
in_guest 30 web "until [ -e /sys/block/xvdb ]; do sleep 1; done"
say block-list web
say block-detach web xvdb
say block-list web
exact block-attach web /tmp/none.img,raw,xvdb,r
exact block-detach web xvdz
say network-list web
say network-list --json web
say network-attach web bridge=xenbr0 mac=00:16:3e:77:00:07
in_guest 30 web "until [ -e /sys/class/net/eth1 ]; do sleep 1; done"
say network-list web
say network-detach web 1
say network-list web
exact network-attach web bridge=none
exact network-detach web 7

title "pokes"
say sysrq web h
wait_line 30 web 'sysrq: HELP'
exact sysrq web help
say trigger web nmi 0
wait_line 30 web 'Dazed and confused'
exact trigger web nonsense
say pause web
say list web
say list --json web
say unpause web
say rename web shop
exact rename shop Domain-0
say domid shop
exact domid web
say rename shop web
say dump-core web /tmp/core
expect "start of the dump" "$(printf '\177ELF')" "$(head -c 4 /tmp/core)"
rm /tmp/core
say top -b -i 1
say top --json -i 1

title "console"
small ends poweroff
xl create -q -p /tmp/ends.cfg || fail "xl create ends"
printf '$ xl console ends\n' >>$out
xl console ends >/tmp/said.out 2>/tmp/said.err </dev/null &
sleep 1
xl unpause ends
wait $!
said $? mask
exact console 0
exact console nobody

title "config-update, reboot, shutdown"
say config-update web /tmp/web.cfg 'extra="console=hvc0 quiet gt.updated"'
old=$(xl domid web)
say reboot web
wait_line 300 web 'reboot: '
again() { id=$(xl domid web 2>/dev/null) && [ "$id" != "$old" ] && [ "$(grep -c GUEST-SHELL "$logs/guest-web.log")" = 2 ]; }
wait_for 300 again || fail "no reboot: $(xl list; tail -n 3 /var/log/xen/xl-web.log)"
in_guest 30 web "grep gt.updated /proc/cmdline"
# As it was set last, and no less because more is allowed.
expect "memory after a reboot" 144 "$(xl list web | awk 'NR == 2 { print $3 }')"
exact mem-set web 225
say shutdown -w web
wait_for 30 gone web || fail "web: $(xl list)"

title "how a domain ended"
for end in poweroff:poweroff reboot:reboot crash:crash; do
	small "by-${end%:*}" "${end%:*}"
	say create -q "/tmp/by-${end%:*}.cfg" 'on_poweroff="preserve"' 'on_reboot="preserve"' 'on_crash="preserve"'
	wait_for 60 in_state "by-${end%:*}" s || fail "by-${end%:*}: $(xl list)"
	say list -v "by-${end%:*}"
	say list --json "by-${end%:*}"
	say destroy "by-${end%:*}"
done
say shutdown still
say destroy still
say list

title "devd"
say devd -p /tmp/devd.pid
tr '\0' ' ' <"/proc/$(cat /tmp/devd.pid)/cmdline" | grep -q devd || fail "no devd runs as $(cat /tmp/devd.pid)"
kill "$(cat /tmp/devd.pid)"

title "errors, in one line and as JSON"
for command in "destroy nobody" "shutdown nobody" "reboot nobody" "pause nobody" "unpause 77" "vcpu-list nobody" "vcpu-set nobody 1" \
	"vcpu-pin nobody 0 0" "mem-set nobody 64" "mem-max nobody 64" "domname 77" "rename nobody x" "uptime nobody" "sysrq nobody h" \
	"trigger nobody nmi" "cpupool-list nobody" "sched-credit2 -d nobody" "network-list nobody" "network-attach nobody" \
	"network-detach nobody 0" "block-list nobody" "block-attach nobody /tmp/more.img,raw,xvdb,r" "block-detach nobody xvda" \
	"config-update nobody /tmp/web.cfg" "dump-core nobody /tmp/core" "sharing nobody" "list nobody" "no-such-command" \
	"list --no-such-option" "top -d x" "debug-keys" "destroy"; do
	exact $command
	exact --json $command
done

if ! diff -u $golden $out >/tmp/diff; then
	# The whole of it, to become the next golden file if the change is meant.
	echo XT-TRANSCRIPT-BEGIN
	cat $out
	echo XT-TRANSCRIPT-END
	cat /tmp/diff
	fail "$(grep -c '^[+-][^+-]' /tmp/diff) lines differ from xl-commands.golden"
fi
note "$(grep -c '^\$ xl' $out) commands as in xl-commands.golden"
