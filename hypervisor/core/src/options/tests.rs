//! The parser against command lines that people write, odd ones, and any bytes at all.

use proptest::prelude::*;

use super::*;

fn clean(line: &str) -> Options {
    let (options, warnings) = Options::parse(line.as_bytes());
    assert!(warnings.is_empty(), "{line}: {warnings:?}");
    options
}

/// The only warning of a line, as printed.
fn warning(line: &str) -> String {
    let (_, warnings) = Options::parse(line.as_bytes());
    assert_eq!(warnings.len(), 1, "{line}: {warnings:?}");
    std::format!("{}", warnings[0])
}

#[test]
fn a_usual_line_is_understood() {
    let o = clean(
        "placeholder dom0_mem=2G,max:4G dom0_max_vcpus=2-4 com1=115200,8n1 console=com1,vga loglvl=all \
         guest_loglvl=error/all noreboot=false sync_console x2apic=off no-real-mode edd=off dom0=pvh,verbose",
    );
    let amount = |bytes| Amount {
        bytes,
        all_but: false,
        percent: 0,
    };
    assert_eq!(o.dom0_mem.initial, Some(amount(2 << 30)));
    assert_eq!(o.dom0_mem.max, Some(amount(4 << 30)));
    assert_eq!(o.dom0_max_vcpus, VcpuRange { min: 2, max: 4 });
    assert_eq!(o.com1.baud, Baud::Rate(115_200));
    assert_eq!(o.com1.divisor(), Some(1));
    assert!(o.com1.given && !o.com2.given);
    assert!(o.console.com1 && o.console.vga && !o.console.com2);
    assert_eq!(o.loglvl.print, Level::Debug);
    assert_eq!(
        o.guest_loglvl,
        LogLevels {
            print: Level::Error,
            limited: Level::Debug
        }
    );
    assert!(!o.noreboot && o.sync_console && !o.x2apic && o.dom0.verbose);
}

#[test]
fn an_empty_line_gives_defaults() {
    assert_eq!(clean(""), Options::default());
    assert_eq!(clean("   \t "), Options::default());
    assert_eq!(clean("\0 bogus"), Options::default());
}

#[test]
fn trace_buffers_from_the_start() {
    assert_eq!(clean("").trace, TraceSetup::default());
    let o = clean("tbuf_size=32 tevt_mask=0x0008f000");
    let (pages, events) = (32, 0x0008_f000);
    assert_eq!(o.trace, TraceSetup { pages, events });
    assert_eq!(clean("tbuf_size=0").trace.pages, 0);
    assert!(warning("tbuf_size=many").contains("tbuf_size"));
    assert!(warning("tevt_mask=0x100000000").contains("tevt_mask"));
}

#[test]
fn the_version_to_present() {
    assert_eq!(clean("xen-version=4.20").xen_version, (4, 20));
    assert_eq!(clean("").xen_version, (4, 17));
    assert!(warning("xen-version=5.0").contains("4.17, 4.18, 4.19, 4.20"));
}

#[test]
fn booleans_in_every_spelling() {
    for yes in [
        "smt",
        "smt=1",
        "smt=on",
        "smt=yes",
        "smt=true",
        "smt=enable",
    ] {
        assert_eq!(clean(yes).smt, Some(true), "{yes}");
    }
    for no in [
        "no-smt",
        "smt=0",
        "smt=off",
        "smt=no",
        "smt=false",
        "smt=disable",
    ] {
        assert_eq!(clean(no).smt, Some(false), "{no}");
    }
    assert!(warning("smt=maybe").contains("not a boolean"));
    assert!(!clean("no-x2apic").x2apic);
    assert!(!clean("x2apic x2apic=0").x2apic, "the last one counts");
}

#[test]
fn names_take_dash_and_underscore_alike() {
    assert_eq!(clean("dom0-max-vcpus=3").dom0_max_vcpus.max, 3);
    assert_eq!(
        clean("x2apic_mode=cluster").x2apic_mode,
        Some(X2apicMode::Cluster)
    );
}

#[test]
fn sizes() {
    let mem = |text: &str| {
        clean(&std::format!("dom0_mem={text}"))
            .dom0_mem
            .initial
            .unwrap()
    };
    assert_eq!(mem("512").bytes, 512 << 10, "no suffix is KiB");
    assert_eq!(mem("1T").bytes, 1 << 40);
    assert_eq!(mem("0x10M").bytes, 16 << 20);
    assert_eq!(mem("010k").bytes, 8 << 10, "leading 0 is octal");
    assert_eq!(mem("-1G").resolve(4 << 30), 3 << 30);
    assert_eq!(mem("-8G").resolve(4 << 30), 0);
    assert_eq!(mem("1G+50%").resolve(4 << 30), 3 << 30);
    assert_eq!(mem("25%").resolve(4 << 30), 1 << 30);
    assert_eq!(clean("conring_size=4096B").conring_size, Some(4096));
    assert_eq!(
        clean("conring_size=0xb").conring_size,
        Some(11 << 10),
        "b is a digit here"
    );
    for bad in [
        "",
        "G",
        "1Q",
        "1GB",
        "+1G",
        "--1",
        "99999999999T",
        "1G+101%",
        "%",
        "0x",
        "1 G",
    ] {
        assert!(
            !Options::parse(std::format!("dom0_mem={bad}").as_bytes())
                .1
                .is_empty(),
            "{bad}"
        );
    }
}

#[test]
fn lists_apply_what_they_understand() {
    let (o, w) = Options::parse(b"iommu=no-intremap,bogus,debug,qinval=off");
    assert!(!o.iommu.intremap && !o.iommu.qinval && o.iommu.on);
    assert_eq!(o.iommu.verbosity, Verbosity::Debug);
    assert_eq!(w.len(), 1);
    assert!(std::format!("{}", w[0]).contains("\"bogus\" is not known here"));
    assert!(!clean("iommu=off").iommu.on && !clean("no-iommu").iommu.on);
    assert!(clean("iommu=required").iommu.required);
    assert!(
        clean("iommu=force,no-intpost,amd-iommu-perdev-intremap")
            .iommu
            .required
    );
    let apicv = |line| clean(line).apicv;
    for line in ["", "apicv", "apicv=on", "apicv=off,on"] {
        assert_eq!(apicv(line), Apicv::all(true), "{line}");
    }
    for line in ["no-apicv", "apicv=off", "apicv=0", "apicv=x2apic,no"] {
        assert_eq!(apicv(line), Apicv::all(false), "{line}");
    }
    let without = apicv("apicv=no-delivery,xapic=off");
    assert!(!without.delivery && !without.xapic && without.x2apic && without.registers);
    let posting = apicv("apicv=post");
    assert!(posting.post && posting.delivery && !without.post);
    assert!(!clean("iommu=verbose").iommu.intpost && clean("iommu=intpost").iommu.intpost);
    // Known to Xen, of no effect here: a reason each, and the rest of the list counts.
    for (item, why) in [
        ("no-amd-iommu-perdev-intremap", "of its own"),
        ("workaround_bios_bug", "not needed"),
        ("dom0-strict", "dom0-strict has no effect"),
        ("quarantine=on", "quarantine has no effect"),
    ] {
        let line = std::format!("iommu={item},debug");
        let (o, w) = Options::parse(line.as_bytes());
        assert_eq!(o.iommu.verbosity, Verbosity::Debug);
        assert!(
            w.len() == 1 && std::format!("{}", w[0]).contains(why),
            "{item}"
        );
    }
    // A console list without any known item keeps the log alive.
    let (o, w) = Options::parse(b"console=ehci");
    assert_eq!((o.console, w.len()), (Consoles::default(), 1));
    let none = clean("console=none").console;
    assert!(!none.com1 && !none.com2 && !none.vga);
}

#[test]
fn serial_ports_positional_and_named() {
    let o = clean("com2=9600/115200,7e2,0x3e8,4,reg-shift=2,reg-width=4");
    assert_eq!(
        o.com2,
        SerialSetup {
            given: true,
            baud: Baud::Rate(9600),
            clock_hz: 1_843_200,
            data_bits: 7,
            parity: Parity::Even,
            stop_bits: 2,
            io_base: 0x3e8,
            irq: 4,
            reg_shift: 2,
            reg_width: 4,
        }
    );
    assert_eq!(o.com2.divisor(), Some(12));
    assert_eq!(clean("com1=auto").com1.divisor(), None);
    assert_eq!(clean("com1=,,0x2e8").com1.io_base, 0x2e8);
    assert_eq!(
        clean("com1=baud=57600,parity=n,stop-bits=1").com1.baud,
        Baud::Rate(57600)
    );
    for bad in [
        "115200,8n1,pci",
        "0",
        "x",
        "115200,9n1",
        "115200,8x1",
        "115200,8n3",
        "1,8n1,0x10000",
        "foo=1",
        "115200/0",
        "115200,8n1,0x3f8,msi",
        "115200,8n1,0x3f8,4,0:1.2",
        "115200,8n1,0",
    ] {
        let (o, w) = Options::parse(std::format!("com1={bad}").as_bytes());
        assert_eq!(w.len(), 1, "{bad}");
        assert_eq!(o, Options::default(), "{bad}: nothing may change");
    }
}

#[test]
fn vcpu_ranges() {
    assert_eq!(clean("dom0_max_vcpus=2").dom0_max_vcpus.resolve(8), 2);
    assert_eq!(clean("dom0_max_vcpus=4-").dom0_max_vcpus.resolve(2), 4);
    assert_eq!(clean("dom0_max_vcpus=-4").dom0_max_vcpus.resolve(8), 4);
    assert_eq!(clean("dom0_max_vcpus=2-4").dom0_max_vcpus.resolve(3), 3);
    assert_eq!(Options::default().dom0_max_vcpus.resolve(8), 8);
    for bad in ["0", "4-2", "x", "-", "1-2-3"] {
        // "-" alone is the whole range, as in Xen.
        let n = Options::parse(std::format!("dom0_max_vcpus={bad}").as_bytes())
            .1
            .len();
        assert_eq!(n, usize::from(bad != "-"), "{bad}");
    }
}

#[test]
fn console_switch() {
    let switch = |line| {
        let s = clean(line).conswitch;
        (s.letter, s.stay)
    };
    assert_eq!(switch(""), (Some(b'a'), false));
    assert_eq!(switch("conswitch=bx"), (Some(b'b'), true));
    assert_eq!(switch("conswitch=z"), (Some(b'z'), false));
    assert_eq!(switch("conswitch=`"), (None, false));
    for wrong in ["conswitch=1", "conswitch=ab", "conswitch=axx"] {
        assert!(warning(wrong).contains("is not a letter"), "{wrong}");
    }
}

#[test]
fn x2apic_options_are_kept_apart() {
    let o = clean("x2apic_phys=1 x2apic-mode=mixed");
    assert_eq!(
        (o.x2apic_mode, o.x2apic_phys),
        (Some(X2apicMode::Mixed), Some(true))
    );
    let o = clean("no-x2apic_phys");
    assert_eq!((o.x2apic_mode, o.x2apic_phys), (None, Some(false)));
    assert!(warning("x2apic-mode=flat").contains("physical, cluster, mixed"));
}

#[test]
fn faults_of_starting_cpus() {
    let f = clean("ap-fault=2:hang,3:panic").ap_fault;
    assert_eq!(
        f[..3],
        [Some((2, ApFault::Hang)), Some((3, ApFault::Panic)), None]
    );
    assert!(warning("ap-fault=2").contains("APIC ID"));
    assert!(warning("ap-fault=1:deaf,2:late,3:late,4:late,5:late").contains("four"));
}

#[test]
fn cpu_limits() {
    assert_eq!(clean("").cpu_limit(4), 4);
    assert_eq!(clean("nosmp").cpu_limit(4), 1);
    assert_eq!(clean("maxcpus=0").cpu_limit(4), 1);
    assert_eq!(clean("maxcpus=2").cpu_limit(4), 2);
}

#[test]
fn reboot_by_first_letter() {
    assert_eq!(clean("reboot=a").reboot, Reboot::Acpi);
    assert_eq!(clean("reboot=Power,cold").reboot, Reboot::Power);
    assert_eq!(clean("reboot=pci").reboot, Reboot::Pci);
    assert_eq!(clean("reboot=no").reboot, Reboot::No);
    assert!(warning("reboot=zap").contains("zap"));
}

#[test]
fn quotes_and_the_end_of_our_part() {
    let o = clean("loglvl=info \"com1=115200,8n1\" -- root=/dev/sda1  quiet ");
    assert_eq!(o.com1.baud, Baud::Rate(115_200));
    assert_eq!(o.dom0_extra, "root=/dev/sda1  quiet");
    assert_eq!(clean("--").dom0_extra, "");
    assert!(warning("\"foo bar\"").contains("foo bar"));
    assert!(warning("'open quote").contains("open quote"));
}

#[test]
fn warnings_name_the_option_and_the_reason() {
    assert_eq!(
        warning("logvl=all"),
        "command line: \"logvl=all\": unknown option, ignored (did you mean \"loglvl\"?)"
    );
    assert_eq!(
        warning("frobnicate"),
        "command line: \"frobnicate\": unknown option, ignored"
    );
    assert!(warning("cpufreq=xen").contains("no effect: CPU frequency is left"));
    assert!(warning("dom0=pv").contains("dom0 is always PVH"));
    assert!(warning("sched=credit").contains("credit2 is used"));
    assert!(warning("no-dom0_mem").contains("needs a value"));
    assert!(
        warning("foo\x1b[2J").contains("\\u{1b}"),
        "no control codes"
    );
}

#[test]
fn sources_of_ioapics() {
    let (o, w) = Options::parse(
        b"ivrs_ioapic[4]=00:14.0 ivrs-ioapic[0x21]=0001:c0:1f.7 ivrs_ioapic[4]=0:0.1",
    );
    assert!(w.is_empty(), "{w:?}");
    let found: Vec<_> = (o.ivrs_ioapics.iter().flatten())
        .map(|s| (s.id, s.source.segment, s.source.bus, s.source.devfn))
        .collect();
    assert_eq!(found, [(4, 0, 0, 1), (0x21, 1, 0xc0, 0xff)]);
    for bad in [
        "ivrs_ioapic=00:14.0",
        "ivrs_ioapic[]=00:14.0",
        "ivrs_ioapic[256]=00:14.0",
        "ivrs_ioapic[4]",
        "ivrs_ioapic[4]=",
        "ivrs_ioapic[4]=14.0",
        "ivrs_ioapic[4]=00:20.0",
        "ivrs_ioapic[4]=00:14.8",
        "ivrs_ioapic[4]=100:14.0",
        "ivrs_ioapic[4]=00:+4.0",
        "maxcpus[3]=4",
    ] {
        let (o, w) = Options::parse(bad.as_bytes());
        assert_eq!(w.len(), 1, "{bad}");
        assert!(matches!(w[0].why, Why::Malformed(_)), "{bad}: {}", w[0]);
        assert_eq!((o.ivrs_ioapics, o.maxcpus), ([None; 8], None));
    }
    let (_, w) = Options::parse(b"ivrs_hpet[0]=00:14.0");
    assert!(matches!(w[0].why, Why::NoEffect(_)));
}

#[test]
fn every_option_can_be_set_and_is_described_in_the_manual() {
    let page = include_str!("../../../../docs/man/hypervisor-options.7.md");
    for spec in OPTIONS {
        let heading = std::format!("### {}\n", spec.name);
        let text = page
            .split_once(&heading)
            .unwrap_or_else(|| panic!("{} is not in the manual", spec.name))
            .1;
        let text = text.split("\n### ").next().unwrap();
        assert!(
            spec.syntax.is_empty() || text.contains(&std::format!("`{}`", spec.syntax)),
            "{}: the manual's syntax differs from `{}`",
            spec.name,
            spec.syntax
        );
        assert!(!spec.help.is_empty());
    }
    for heading in page.lines().filter_map(|l| l.strip_prefix("### ")) {
        assert!(
            table::find(heading).is_some(),
            "{heading} is only in the manual"
        );
    }
}

#[test]
fn names_are_unique() {
    for (at, spec) in OPTIONS.iter().enumerate() {
        let first = table::find(spec.name).unwrap();
        assert!(core::ptr::eq(first, &OPTIONS[at]), "{}", spec.name);
    }
}

/// Lines made of real names, separators and noise reach far deeper than plain noise.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        (0..OPTIONS.len()).prop_map(|i| OPTIONS[i].name.as_bytes().to_vec()),
        prop::sample::select(vec![
            "=",
            ",",
            "-",
            "no-",
            " ",
            "\"",
            "'",
            "--",
            "0x",
            "K",
            "G",
            "%",
            "+",
            "min:",
            "max:",
            "on",
            "8n1",
            "com1",
            "text-80x",
            "/",
            "info",
            "all",
            "auto",
            "18446744073709551615",
            "99999999999999999999",
            ".",
            ":",
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(token, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(crate::testing::cases(2000))]

    #[test]
    fn no_line_panics_and_warnings_stay_bounded(line in line()) {
        let (options, warnings) = Options::parse(&line);
        prop_assert!(warnings.len() <= line.len());
        for w in &warnings {
            let text = std::format!("{w}");
            prop_assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        }
        // What can be asked of any result must not panic either.
        let _ = (options.cpu_limit(3), options.com1.divisor());
        let _ = options.dom0_max_vcpus.resolve(3);
        for amount in [options.dom0_mem.initial, options.dom0_mem.min, options.dom0_mem.max].into_iter().flatten() {
            let _ = amount.resolve(u64::MAX);
        }
    }
}

#[test]
fn grant_bounds() {
    let o =
        clean("gnttab=max-ver:1,no-transitive gnttab_max_frames=128 gnttab-max-maptrack-frames=4");
    assert_eq!((o.grants.max_version, o.grants.max_frames), (1, 128));
    assert_eq!(o.grants.max_handles, 1024);
    for bad in [
        "gnttab=max-ver:3",
        "gnttab=transitive",
        "gnttab",
        "gnttab_max_frames=0",
        "gnttab_max_frames=1025",
        "gnttab_max_maptrack_frames=16385",
    ] {
        let (o, warnings) = Options::parse(bad.as_bytes());
        assert_eq!((warnings.len(), o.grants), (1, Limits::default()), "{bad}");
    }
}
