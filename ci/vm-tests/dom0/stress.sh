#!/bin/sh
# Many inter-processor interrupts and timers on all CPUs for xt.seconds: no tick may be lost and no wake-up late. On a slow host
# (xt.slow times as slow as a usual one) a wake-up may come later by that factor.
. /xt/lib.sh
seconds=$(option seconds)
cpus=$(nproc)
slow=$(option slow)
limit=$((400 * ${slow:-1}))
# Token rings between pinned processes: each token is one wake-up on another CPU. Sleepers arm a timer each time.
cpu=0
while [ $cpu -lt "$cpus" ]; do
	next=$(((cpu + 1) % cpus))
	mkfifo /tmp/a$cpu /tmp/b$cpu
	taskset -c $cpu sh -c "while read x; do echo \$x; done </tmp/a$cpu >/tmp/b$cpu" &
	taskset -c $next sh -c "exec 3>/tmp/a$cpu 4</tmp/b$cpu; n=0; while [ ! -e /tmp/stop ]; do echo t >&3; read x <&4; n=\$((n+1)); done; echo \$n >/tmp/ring$cpu" &
	taskset -c $cpu sh -c "n=0; while [ ! -e /tmp/stop ]; do usleep 1000; n=\$((n+1)); done; echo \$n >/tmp/sleeper$cpu" &
	cpu=$((cpu + 1))
done
start=$(cut -d' ' -f1 /proc/uptime | tr -d .)
rtc=$(date +%s)
beat=0
while [ $beat -lt "$seconds" ]; do
	before=$(cut -d' ' -f1 /proc/uptime | tr -d .)
	sleep 1
	late=$(($(cut -d' ' -f1 /proc/uptime | tr -d .) - before - 100))
	[ $late -lt $limit ] || fail "a sleep of 1 s woke up $late hundredths of a second late"
	[ $late -ge -2 ] || fail "a sleep of 1 s woke up early by $late hundredths of a second"
	beat=$((beat + 1))
	# On an emulator this takes minutes: whoever looks on sees that it moves.
	[ $((beat % 10)) -ne 0 ] || note "$beat of $seconds seconds"
done
touch /tmp/stop
cpu=0
while [ $cpu -lt "$cpus" ]; do
	wait_for 20 test -s /tmp/ring$cpu || fail "the ring of CPU $cpu stands still"
	wait_for 20 test -s /tmp/sleeper$cpu || fail "the sleeper of CPU $cpu stands still"
	note "CPU $cpu: $(cat /tmp/ring$cpu) tokens, $(cat /tmp/sleeper$cpu) naps"
	[ "$(cat /tmp/ring$cpu)" -gt $((seconds * 10)) ] || fail "too few tokens on CPU $cpu"
	[ "$(cat /tmp/sleeper$cpu)" -gt $((seconds * 10)) ] || fail "too few naps on CPU $cpu"
	cpu=$((cpu + 1))
done
passed=$(($(cut -d' ' -f1 /proc/uptime | tr -d .) - start))
wall=$(($(date +%s) - rtc))
note "$passed hundredths of a second by the monotonic clock, $wall s by the wall clock"
[ $((passed / 100 - wall)) -le 2 ] && [ $((wall - passed / 100)) -le 2 ] || fail "the clocks disagree"
# A slow host makes a timer interrupt long; the kernel says so, but nothing is lost.
dmesg | grep -i 'hrtimer: interrupt took' | while read -r line; do note "$line"; done
dmesg | grep -iE 'rcu.*stall|soft lockup|clocksource.*unstable' && fail "the kernel complains"
grep -E 'LOC|RES|CAL|HYP' /proc/interrupts
exit 0
