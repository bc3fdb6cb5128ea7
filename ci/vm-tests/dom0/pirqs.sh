#!/bin/sh
# Does `hvm_pirq=1` in a guest's config give it pirqs, and does Linux there see that it has them? Without it neither.
. /xt/tests/guests-lib.sh
for said in have none; do
	flag=0
	[ $said = none ] || flag=1
	make "linux-$said" 'memory = 256' "hvm_pirq = $flag" 'extra = "console=hvc0 quiet"'
	cat >"/tmp/micro-$said.cfg" <<-END
		type = "pvh"
		name = "micro-$said"
		kernel = "/guest/micro/pirqs"
		memory = 8
		extra = "expect=$said"
		hvm_pirq = $flag
	END
	xl create -q "/tmp/micro-$said.cfg" || fail "xl create micro-$said: exit status $?"
	wait_line 60 "micro-$said" "TEST pirqs: "
	cat "$logs/guest-micro-$said.log"
	grep -q "TEST pirqs: SUCCESS" "$logs/guest-micro-$said.log" || fail "the guest with expect=$said is not content"
	wait_line 240 "linux-$said" "GUEST-SHELL"
	features=$(answer "linux-$said" "cat /sys/hypervisor/properties/features")
	note "features with hvm_pirq=$flag: $features"
	expect "XENFEAT_hvm_pirqs with hvm_pirq=$flag" "$flag" "$(((0x${features#0x} >> 10) & 1))"
	# What xl tells of the domain's config agrees.
	told=$(xl list -l "linux-$said" | grep -c hvm_pirq)
	note "xl list -l has hvm_pirq $told times"
	end "linux-$said"
done
