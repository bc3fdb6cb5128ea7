#!/bin/sh
# Guests that come and go, and end in every way: does anything stay behind?
# xt.rounds=N small guests; xt.reboots=N reboots of one. xt.parts=NAME,... runs only these of the parts: rounds,
# reboots, ends, dumps.
. /xt/lib.sh
number=$(option rounds)
times=$(option reboots)
parts=$(option parts)
logs=/var/log/xen/console
# part NAME: whether to run it.
part() {
	case ",${parts:-$1}," in
	*,"$1",*) true ;;
	*) false ;;
	esac
}
small=$logs/guest-small.log

# make NAME LINE...: writes a config and makes the guest.
make() {
	name=$1
	shift
	{
		printf 'type = "pvh"\nname = "%s"\n' "$name"
		printf '%s\n' "$@"
	} >"/tmp/$name.cfg"
	xl create "/tmp/$name.cfg" 2>/tmp/made || fail "xl create $name: exit status $?; $(tail -n 3 /tmp/made)"
}
# A micro-guest that holds event channels and grants, and ends as its command line says.
little() {
	life=$1
	shift
	make small 'kernel = "/guest/micro/life"' 'memory = 8' "extra = \"hold=50 life=$life\"" "$@"
}
said() { [ "$(grep -c "$1" "$2" 2>/dev/null)" -ge "$3" ]; }
# wait_line SECONDS NAME TEXT TIMES
wait_line() {
	wait_for "$1" said "$3" "$logs/guest-$2.log" "$4" || {
		xl list
		tail -n 15 "$logs/guest-$2.log" "/var/log/xen/xl-$2.log"
		fail "guest $2 does not say '$3' $4 times"
	}
}
there() { xl domid "$1" >/dev/null 2>&1; }
gone() { ! there "$1"; }
wait_gone() {
	wait_for "$2" gone "$1" || {
		tail -n 5 "/var/log/xen/xl-$1.log"
		fail "guest $1 is still there: $(xl list)"
	}
}
state() { xl list "$1" 2>/dev/null | awk 'NR == 2 { print $5 }'; }
in_state() { state "$1" | grep -q "$2"; }

# held: what could stay behind, a name and a number in each line.
held() {
	xl dmesg -c >/dev/null
	xl debug-keys egm
	xl dmesg >/tmp/keys
	sed -n "s/.*'m' pressed.* \([0-9]*\) KiB free, \([0-9]*\) bytes of objects.*/free-KiB \1\nobject-bytes \2/p" /tmp/keys
	sed -n 's/.*domain 0: \([0-9]*\) ports in use.*/ports \1/p; s/.*domain 0: .* maps \([0-9]*\) pages of others.*/mapped \1/p' /tmp/keys
	xenstore ls -f >/tmp/nodes
	echo "nodes $(wc -l </tmp/nodes)"
	echo "domains $(xl list | tail -n +2 | wc -l)"
	echo "loop-devices $(losetup -a | wc -l)"
	echo "interfaces $(ls /sys/class/net | wc -l)"
	echo "terminals $(find /dev/pts -name '[0-9]*' | wc -l)"
	echo "monitors $(pidof xl | wc -w)"
	echo "kept-files $(find /var/lib/xen /run -type f | wc -l)"
	echo "dom0-interrupts $(grep -c xen-dyn /proc/interrupts)"
	for daemon in xenstored xenconsoled devd; do
		echo "$daemon-files $(ls "/proc/$(pidof $daemon)/fd" | wc -l)"
	done
}
# same_as_before WHEN: everything is back. Terminals that nobody reads stay for half a minute, so it may take a while.
same_as_before() {
	wait_for 60 is_same || {
		diff /tmp/nodes.before /tmp/nodes
		fail "$1: $(diff /tmp/before /tmp/now | tr '\n' ' ')"
	}
	note "$1: $(tr '\n' ' ' </tmp/now)"
}
is_same() {
	held >/tmp/now
	cmp -s /tmp/before /tmp/now
}

# ends ACTION LIFE: a small guest that lives three seconds, with that action for its end.
ends() {
	: >/var/log/xen/xl-small.log
	before=$(grep -c '^LIFE' $small)
	make small 'kernel = "/guest/micro/life"' 'memory = 8' "extra = \"hold=50 life=$2 wait=3000\"" \
		"on_crash = \"$1\"" "on_poweroff = \"$1\"" "on_reboot = \"$1\""
	# On a busy host another has its name already.
	first=$(sed -n "s/^xl: domain \([0-9]*\) .*/\1/p" /tmp/made)
}
number_changes() { id=$(xl domid small 2>/dev/null) && [ "$id" != "$first" ]; }

# end_of NAME: destroys the guests whose names begin like that until nobody is there who restarts them.
end_of() {
	while pidof xl >/dev/null || xl list | grep -q "^$1"; do
		for old in $(xl list | awk -v name="^$1" '$1 ~ name { print $1 }'); do
			xl destroy "$old" 2>/dev/null
		done
		usleep 500000
	done
}

# one_round NUMBER: a small guest.
lived=0
one_round() {
	lived=$((lived + 1))
	case $(($1 % 6)) in
	0) life=idle ;;
	1) life=poweroff ;;
	2) life=spin ;;
	3) life=crash ;;
	4) life=triple ;;
	5) life=idle ;;
	esac
	case $(($1 % 6)) in
	5) little $life 'disk = ["/tmp/small.img,raw,xvda,w"]' 'vif = ["bridge=xenbr0"]' ;;
	*) little $life 'on_crash = "destroy"' 'on_reboot = "destroy"' ;;
	esac
	wait_line 30 small "^LIFE" "$lived"
	case $life in
	idle | spin) xl destroy small || fail "xl destroy: exit status $?" ;;
	esac
	wait_gone small 30
}

rounds() {
	note "$number small guests"
	start=$(cut -d. -f1 /proc/uptime)
	for n in $(seq "$number"); do one_round "$n"; done
	note "$number guests came and went in $(($(cut -d. -f1 /proc/uptime) - start)) s"
	same_as_before "after $number small guests"
}
reboots() {
	note "a guest that reboots $times times"
	before=$(grep -c '^LIFE' $small)
	little reboot 'on_reboot = "restart"'
	# Too young to be restarted: it would be for ever.
	wait_gone small 30
	grep -q 'is not restarted' /var/log/xen/xl-small.log || fail "a guest that reboots at once: $(tail -n 3 /var/log/xen/xl-small.log)"
	make small 'kernel = "/guest/micro/life"' 'memory = 8' 'extra = "hold=50 life=reboot wait=3000"' 'on_reboot = "restart"'
	wait_line $((times * 30)) small "^LIFE" $((before + 2 + times))
	end_of small
}
ends_of_guests() {
	note "what a crash leads to"
	for life in crash triple; do
		ends destroy $life
		wait_gone small 60
	done
	ends restart crash
	wait_line 60 small "^LIFE" $((before + 2))
	wait_for 20 number_changes || fail "on_crash=restart: the same number $first"
	end_of small
	ends preserve crash
	wait_for 60 in_state small c || fail "on_crash=preserve: $(xl list)"
	expect "its reason" 3 "$(xl list -v small | awk 'NR == 2 { print $8 }')"
	expect "its name" small "$(xl domname "$first")"
	xl destroy small || fail "destroying a preserved domain"
	ends rename-restart crash
	wait_line 60 small "^LIFE" $((before + 2))
	wait_for 20 there "small-$first" || fail "on_crash=rename-restart: $(xl list)"
	end_of small
	ends preserve poweroff
	wait_for 60 in_state small s || fail "on_poweroff=preserve: $(xl list)"
	expect "its reason" 0 "$(xl list -v small | awk 'NR == 2 { print $8 }')"
	xl destroy small || fail "destroying a preserved domain"
	ends restart poweroff
	wait_line 60 small "^LIFE" $((before + 2))
	end_of small
	ends destroy poweroff
	wait_gone small 60
	same_as_before "after every kind of end"
}
# A crashed guest's memory goes to a file with its name.
dumps_of_guests() {
	note "dumps of crashed guests"
	dump=/var/lib/xen/dump/small
	for action in coredump-destroy coredump-restart; do
		ends $action crash
		wait_for 60 dumped || fail "on_crash=$action: $(tail -n 5 /var/log/xen/xl-small.log)"
		note "on_crash=$action: written $(grep 'core dumped' /var/log/xen/xl-small.log)"
		case $action in
		coredump-destroy) wait_gone small 60 ;;
		*)
			wait_line 60 small "^LIFE" $((before + 2))
			wait_for 20 number_changes || fail "on_crash=$action: the same number $first"
			end_of small
			;;
		esac
		expect "start of the dump" "$(printf '\177ELF')" "$(head -c 4 $dump)"
		# 8 MiB, 8 pages for the toolstack, the ACPI tables; the file's own head is another page at least.
		pages=$(($(stat -c %s $dump) >> 12))
		[ $pages -ge $((2048 + 8 + 1)) ] && [ $pages -le $((2048 + 8 + 16)) ] || fail "the dump has $pages pages"
		grep -q 'hold=50 life=crash wait=3000' $dump || fail "the guest's command line is not in its dump"
		expect "rights of the dump" 600 "$(stat -c %a $dump)"
		rm $dump
	done
	same_as_before "after dumps"
}
dumped() { grep -q 'core dumped' /var/log/xen/xl-small.log; }
for process in xenstored xenconsoled devd; do
	wait_for 20 pidof "$process" || fail "$process does not run"
done
truncate -s 8M /tmp/small.img
# What grows with the first ones and stays: tables, caches.
for n in 0 1 2 3 4 5; do one_round $n; done
sleep 32
held >/tmp/before
expect "the figures that could be had" 15 "$(wc -l </tmp/before)"
cp /tmp/nodes /tmp/nodes.before
note "before: $(tr '\n' ' ' </tmp/before)"

! part rounds || rounds
! part reboots || reboots
! part ends || ends_of_guests
! part dumps || dumps_of_guests
same_as_before "at the end"
