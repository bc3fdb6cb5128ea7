//! Do our programs work in dom0?

use crate::row::{Level, READY, Step, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    vec![
        VmTest::new("tools/xenstore", Level::Normal)
            .script("xenstore")
            .direct()
            .tools()
            .needs_xen()
            .extra_time(60),
        VmTest::new("tools/debian-xl", Level::Normal)
            .script("debian-xl")
            .direct()
            .debian()
            .needs_xen()
            .extra_time(240),
        VmTest::new("tools/debian-guests", Level::Full)
            .script("debian-guests")
            .direct()
            .debian()
            .needs_xen()
            .extra_time(600),
        VmTest::new("tools/debian-dump-core", Level::Full)
            .script("debian-dump")
            .direct()
            .debian()
            .needs_xen()
            .extra_time(1800),
        // The same as the first with Debian 13's tools, for which the hypervisor calls itself Xen 4.20.
        VmTest::new("tools/debian-13", Level::Normal)
            .script("debian-13")
            .cmdline("xen-version=4.20")
            .direct()
            .debian_13()
            .needs_xen()
            .extra_time(300),
        // Our xl with Debian's daemons. The other way round is tools/guest-debian-xl.
        VmTest::new("tools/debian-oxenstored", Level::Full)
            .script("debian-store")
            .direct()
            .tools()
            .debian()
            .needs_xen()
            .extra_time(300),
        VmTest::new("tools/debian-xenstored", Level::Full)
            .script("debian-store")
            .dom0_cmdline("xt.store=xenstored")
            .direct()
            .tools()
            .debian()
            .needs_xen()
            .extra_time(300),
        VmTest::new("tools/xl-read", Level::Normal)
            .script("xl-read")
            .direct()
            .tools()
            .needs_xen()
            .extra_time(90),
        VmTest::new("tools/xl-beside-debian", Level::Normal)
            .script("xl-beside-debian")
            .direct()
            .tools()
            .debian()
            .needs_xen()
            .extra_time(240),
        VmTest::new("tools/guest", Level::Normal)
            .script("guest")
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .needs_xen()
            .extra_time(300),
        VmTest::new("tools/guest-debian-xl", Level::Normal)
            .script("guest")
            .dom0_cmdline("xt.xl=debian")
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .debian()
            .needs_xen()
            .extra_time(300),
        guests("tools/guest-pair", "pair").extra_time(600),
        guests("tools/guest-pirqs", "pirqs").micro().extra_time(400),
        guests("tools/guest-big", "big-guest")
            .devices(&["-m", "8G"])
            .extra_time(1800),
        guests("tools/guest-many-vcpus", "many-vcpus")
            .cpus(4)
            .extra_time(3000),
        VmTest::new("tools/xl-commands", Level::Full)
            .script("xl-commands")
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .micro()
            .needs_xen()
            .extra_time(900),
        // The guide's commands on a Debian with systemd; then once more from its start, by the units alone.
        VmTest::new("tools/installed", Level::Full)
            .script("installed")
            .cmdline("dom0_mem=1G")
            .devices(&["-m", "3G"])
            .installed()
            .needs_xen()
            .steps(&[
                Step::See("login: "),
                Step::Type("root\n"),
                Step::See(":~# "),
                Step::Type(
                    "mount LABEL=xenolith /mnt && sh /mnt/ci/vm-tests/dom0/installed.sh install\n",
                ),
                Step::See("XT-NOTE the guide's commands have run"),
                Step::See("login: "),
                Step::Type("root\n"),
                Step::See(":~# "),
                Step::Type("mount LABEL=xenolith /mnt && sh /mnt/ci/vm-tests/dom0/installed.sh\n"),
            ])
            .extra_time(1800),
        VmTest::new("tools/store-restart", Level::Normal)
            .script("store-restart")
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .needs_xen()
            .extra_time(300),
        VmTest::new("tools/last-words", Level::Normal)
            .script("last-words")
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .needs_xen()
            .extra_time(200),
        life("tools/life", Level::Full, "xt.rounds=200 xt.reboots=20").extra_time(3600),
        life(
            "tools/life-short",
            Level::Normal,
            "xt.rounds=6 xt.reboots=2",
        )
        .extra_time(900),
        // What a person does after `cargo xtask run`. The guest still runs when the machine is switched off.
        VmTest::new("tools/run", Level::Normal)
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .needs_xen()
            .steps(&[
                Step::See(READY),
                Step::See("dom0#"),
                Step::Type("xl create -c /etc/xen/sample.cfg\n"),
                Step::See("GUEST-SHELL"),
                Step::Type("echo in-the-guest-$((6*7))\n"),
                Step::See("in-the-guest-42"),
                Step::Type("\x1d"),
                Step::See("dom0#"),
                Step::Type("xl list\n"),
                Step::See("sample "),
                Step::Type("poweroff\n"),
                Step::See("asking guests to shut down: 1"),
            ])
            .powers_off()
            .extra_time(240),
        // What `cargo xtask run` ends at, and how it ends.
        VmTest::new("tools/prompt", Level::Normal)
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .needs_xen()
            .steps(&[
                Step::See(READY),
                Step::See("dom0#"),
                Step::Type("xl list\n"),
                Step::See("Domain-0"),
                Step::Type(
                    "pidof xenstored xenconsoled devd | wc -w; ls /etc/xen; ls /sys/class/net\n",
                ),
                Step::See("3"),
                Step::See("sample.cfg"),
                Step::See("xenbr0"),
                Step::Type("poweroff\n"),
            ])
            .powers_off()
            .extra_time(60),
        VmTest::new("tools/xentrace", Level::Normal)
            .script("xentrace")
            .direct()
            .tools()
            .debian()
            .needs_xen()
            .extra_time(90),
        VmTest::new("tools/xl-guest", Level::Normal)
            .script("xl-guest")
            .cmdline("dom0_mem=800M")
            .direct()
            .tools()
            .debian()
            .needs_xen()
            .extra_time(300),
    ]
}

/// Linux guests of our toolstack, driven by a script; these take minutes.
fn guests(name: &str, script: &'static str) -> VmTest {
    VmTest::new(name, Level::Full)
        .script(script)
        .cmdline("dom0_mem=900M")
        .direct()
        .system()
        .needs_xen()
}

/// Guests that come and go: how many and how often is said on dom0's command line.
fn life(name: &str, level: Level, numbers: &'static str) -> VmTest {
    VmTest::new(name, level)
        .script("life")
        .dom0_cmdline(numbers)
        .cmdline("dom0_mem=900M")
        .direct()
        .system()
        .micro()
        .needs_xen()
}
