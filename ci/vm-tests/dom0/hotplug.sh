#!/bin/sh
# Can every CPU but the first be taken off line and brought back, several times, and then run something?
. /xt/lib.sh
cpus=$(option cpus)
expect "number of CPUs" "$cpus" "$(nproc)"
for round in 1 2 3; do
	cpu=1
	while [ $cpu -lt "$cpus" ]; do
		echo 0 >/sys/devices/system/cpu/cpu$cpu/online || fail "CPU $cpu does not go off line"
		cpu=$((cpu + 1))
	done
	expect "CPUs while unplugged" 0 "$(cat /sys/devices/system/cpu/online)"
	cpu=1
	while [ $cpu -lt "$cpus" ]; do
		echo 1 >/sys/devices/system/cpu/cpu$cpu/online || fail "CPU $cpu does not come back"
		got=$(taskset -c $cpu awk '{ print $39 }' /proc/self/stat) || fail "CPU $cpu runs nothing"
		expect "round $round: a process on CPU" $cpu "$got"
		cpu=$((cpu + 1))
	done
	expect "CPUs afterwards" "$cpus" "$(nproc)"
done
