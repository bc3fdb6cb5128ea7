//! The one table of options: name, syntax, help, effect. The manual page is checked against it by a test.

use alloc::format;
use alloc::string::String;

use super::Options;
use super::grants;
use super::list;
use super::types::*;
use super::value::Arg;

/// What an option does.
#[derive(Clone, Copy)]
pub enum Effect {
    /// Sets part of the options. The error is the reason for a warning.
    Set(fn(&mut Options, Arg<'_>) -> Result<(), String>),
    /// Nothing, and that is expected: no warning.
    Silent,
    /// Nothing, for the reason given; a warning says so.
    None(&'static str),
}

/// One option.
pub struct Spec {
    /// Name, as printed. `_` and `-` are the same in names that are read.
    pub name: &'static str,
    /// What may follow the name.
    pub syntax: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What it does.
    pub effect: Effect,
}

const fn set(
    name: &'static str,
    syntax: &'static str,
    help: &'static str,
    set: fn(&mut Options, Arg<'_>) -> Result<(), String>,
) -> Spec {
    Spec {
        name,
        syntax,
        help,
        effect: Effect::Set(set),
    }
}

const fn none(name: &'static str, syntax: &'static str, reason: &'static str) -> Spec {
    Spec {
        name,
        syntax,
        help: reason,
        effect: Effect::None(reason),
    }
}

const BOOL: &str = "= <boolean>";

/// All options, by name.
#[rustfmt::skip]
pub static OPTIONS: &[Spec] = &[
    set("acpi", "= <boolean> | force | ht | noirq | verbose", "How far ACPI is used.", acpi),
    set("ap-bringup", "= List of [ parallel | serial | delays ]", "Start application processors all at once or one by one.", ap_bringup),
    set("ap-fault", "= List of [ <APIC ID>:<deaf | hang | panic | late> ]", "Make CPUs fail to start, for tests.", ap_fault),
    set("apic_verbosity", "= verbose | debug", "More messages about local APICs and IO-APICs.", apic_verbosity),
    set("apicv", "= List of [ <boolean> | xapic | x2apic | registers | delivery | post ]", "Let the processor handle guests' local APICs.", |o, a| o.apicv.parse(a)),
    set("com1", "= <serial>", "The first serial port.", |o, a| o.com1.parse(a.text()?)),
    set("com2", "= <serial>", "The second serial port.", |o, a| o.com2.parse(a.text()?)),
    set("conring_size", "= <size>", "Size of the console ring.", |o, a| { o.conring_size = Some(a.size()?); Ok(()) }),
    set("console", "= List of [ vga | com1 | com2 | none ]", "Where log output goes.", console),
    set("console_timestamps", "= none | date | datems | boot | raw", "Prefix of each console line.", timestamps),
    set("console_to_ring", BOOL, "Keep what dom0 prints in the console ring.", |o, a| { o.console_to_ring = a.boolean()?; Ok(()) }),
    set("conswitch", "= <letter>[x]", "The letter that, typed three times with Ctrl, changes who gets serial input; x leaves it with the hypervisor.", conswitch),
    none("cpufreq", "= none | dom0-kernel | xen | hwp", "CPU frequency is left to the firmware"),
    none("cpuidle", BOOL, "idle CPUs halt; deeper sleep states are not used"),
    none("dom0-iommu", "= List of [ passthrough | strict | map-inclusive | map-reserved ]", "dom0 is mapped one to one"),
    set("dom0", "= List of [ pvh | verbose | pf-fixup | msr-relaxed | hvm-pirq ]", "How dom0 is built.", dom0),
    set("dom0_max_vcpus", "= <number> | <min>-<max>", "Virtual CPUs of dom0.", |o, a| { o.dom0_max_vcpus = VcpuRange::parse(a.text()?)?; Ok(()) }),
    set("dom0_mem", "= List of [ <amount> | min:<amount> | max:<amount> ]", "Memory of dom0.", |o, a| { o.dom0_mem = Dom0Mem::parse(a.text()?)?; Ok(()) }),
    set("dom0_vcpus_pin", BOOL, "Pin each vCPU of dom0 to the CPU of the same number.", |o, a| { o.dom0_vcpus_pin = a.boolean()?; Ok(()) }),
    Spec { name: "edd", syntax: "= off | on | skipmbr", help: "Read by Xen's real-mode code only; accepted in silence.", effect: Effect::Silent },
    Spec { name: "edid", syntax: "= no | force", help: "Read by Xen's real-mode code only; accepted in silence.", effect: Effect::Silent },
    set("guest_loglvl", "= <level>[/<rate-limited level>]", "Which messages on behalf of guests are printed.", |o, a| { o.guest_loglvl = LogLevels::parse(a.text()?)?; Ok(()) }),
    set("gnttab", "= List of [ max-ver:<number> | transitive | transfer ]", "Which grants domains may make.", grants::kinds),
    set("gnttab_max_frames", "= <number>", "Most frames of a grant table.", grants::frames),
    set("gnttab_max_maptrack_frames", "= <number>", "Most mappings of others' pages per domain, in units of 256.", grants::maptrack),
    none("hap", BOOL, "nested paging is always used"),
    set("iommu", "= <boolean> | List of [ required | verbose | debug | intremap | intpost | qinval | amd-iommu-perdev-intremap ]", "Use of the IOMMU.", iommu),
    set("ipi-bench", "= <number>", "Measure so many TLB flushes on other CPUs at boot.", |o, a| { o.ipi_bench = a.number()?; Ok(()) }),
    none("ivrs_hpet", "[<hpet>]= [<segment>:]<bus>:<device>.<function>", "the HPET's interrupt messages are not used"),
    set("ivrs_ioapic", "[<ioapic>]= [<segment>:]<bus>:<device>.<function>", "The PCI function whose interrupts an IO-APIC's are, for AMD-Vi.", ivrs_ioapic),
    none("lapic", "", "the local APIC is always used"),
    set("loglvl", "= <level>[/<rate-limited level>]", "Which hypervisor messages are printed.", |o, a| { o.loglvl = LogLevels::parse(a.text()?)?; Ok(()) }),
    set("maxcpus", "= <number>", "Use at most that many CPUs.", |o, a| { o.maxcpus = Some(a.number()?); Ok(()) }),
    set("noapic", "", "Use no IO-APIC.", |o, a| { o.noapic = a.boolean()?; Ok(()) }),
    none("nolapic", "", "the local APIC is always used"),
    set("noreboot", BOOL, "Halt instead of rebooting after a fatal error.", |o, a| { o.noreboot = a.boolean()?; Ok(()) }),
    set("nosmp", BOOL, "Use the boot CPU only.", |o, a| { o.nosmp = a.boolean()?; Ok(()) }),
    Spec { name: "placeholder", syntax: "", help: "Put first by GRUB's scripts; accepted in silence.", effect: Effect::Silent },
    Spec { name: "no-real-mode", syntax: "", help: "Real mode is never entered; accepted in silence.", effect: Effect::Silent },
    set("reboot", "= acpi | kbd | triple | pci | Power | efi | no [, warm | cold]", "How to reboot.", reboot),
    set("sched", "= credit2 | null", "The scheduler.", sched),
    set("sched_credit_tslice_ms", "= <number>", "Time slice in milliseconds, 1 to 1000.", tslice),
    set("smt", BOOL, "Use sibling threads of a core.", |o, a| { o.smt = Some(a.boolean()?); Ok(()) }),
    none("spec-ctrl", "= <list>", "speculation controls are left as the firmware set them"),
    set("sync_console", BOOL, "Wait for each character to leave the serial port.", |o, a| { o.sync_console = a.boolean()?; Ok(()) }),
    set("tbuf_size", "= <number>", "Make trace buffers of so many pages for each CPU.", |o, a| { o.trace.pages = a.number()?; Ok(()) }),
    set("tevt_mask", "= <number>", "Record these events in them from the start.", |o, a| { o.trace.events = a.number()?; Ok(()) }),
    none("ucode", "= <list>", "microcode is left as the firmware loaded it"),
    set("vga", "= current | text-80x<rows> [, keep]", "The display.", vga),
    set("watchdog", "= force | <boolean>", "Stop the machine when a CPU makes no progress.", watchdog),
    set("watchdog_timeout", "= <number>", "Seconds without progress; 0 turns the watchdog off.", |o, a| {
        let seconds = a.number()?;
        o.watchdog.on = seconds > 0;
        o.watchdog.timeout_s = seconds.max(1);
        Ok(())
    }),
    set("x2apic", BOOL, "Switch local APICs to x2APIC mode.", |o, a| { o.x2apic = a.boolean()?; Ok(()) }),
    set("x2apic-mode", "= physical | cluster | mixed", "x2APIC destination mode.", x2apic_mode),
    set("x2apic_phys", BOOL, "Older spelling: on is x2apic-mode=physical, off is mixed.", |o, a| { o.x2apic_phys = Some(a.boolean()?); Ok(()) }),
    set("xen-version", "= 4.17 | 4.18 | 4.19 | 4.20", "The version of Xen to present.", xen_version),
    none("xsave", BOOL, "XSAVE is used where the CPU has it"),
];

/// The option of that name.
pub fn find(name: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|spec| same(spec.name, name))
}

/// Names are compared with `_` and `-` taken for each other.
fn same(a: &str, b: &str) -> bool {
    let plain = |c: u8| if c == b'_' { b'-' } else { c };
    a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(x, y)| plain(x) == plain(y))
}

/// A known name that one or two edits turn into `name`.
pub fn similar(name: &str) -> Option<&'static str> {
    if !(4..=40).contains(&name.len()) {
        return None;
    }
    OPTIONS
        .iter()
        .filter(|spec| matches!(spec.effect, Effect::Set(_)) && spec.name.len() >= 4)
        .map(|spec| (distance(spec.name.as_bytes(), name.as_bytes()), spec.name))
        .filter(|&(edits, _)| edits <= 2)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, name)| name)
}

/// Edit distance (insert, delete, change). Both texts are short: see [`similar`].
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: alloc::vec::Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The message for a value outside a fixed set.
fn not_one_of(value: &str, set: &str) -> String {
    format!("{value:?} is not one of {set}")
}

fn acpi(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    match arg.value {
        Some("force") => o.acpi.force = true,
        Some("ht") => o.acpi.ht = true,
        Some("noirq") => o.acpi.noirq = true,
        Some("verbose") => o.acpi.verbose = true,
        _ => o.acpi.off = !arg.boolean()?,
    }
    Ok(())
}

fn ap_bringup(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    list::each(arg.text()?, |item| {
        match item.name {
            "parallel" if item.on => o.ap_bringup = ApBringup::Parallel,
            "serial" if item.on => o.ap_bringup = ApBringup::Serial,
            "delays" => o.ap_delays = item.on,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn ap_fault(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    let mut free = o.ap_fault.iter_mut().filter(|f| f.is_none());
    for item in arg.text()?.split(',') {
        let fault = item.split_once(':').and_then(|(id, what)| {
            let what = match what {
                "deaf" => ApFault::Deaf,
                "hang" => ApFault::Hang,
                "panic" => ApFault::Panic,
                "late" => ApFault::Late,
                _ => return None,
            };
            Some((id.parse().ok()?, what))
        });
        let (Some(fault), Some(slot)) = (fault, free.next()) else {
            return Err(format!(
                "{item:?} is not <APIC ID>:<deaf, hang, panic or late>, or there are more than four"
            ));
        };
        *slot = Some(fault);
    }
    Ok(())
}

fn apic_verbosity(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.apic_verbosity = match arg.text()? {
        "verbose" => Verbosity::Verbose,
        "debug" => Verbosity::Debug,
        other => return Err(not_one_of(other, "verbose, debug")),
    };
    Ok(())
}

fn console(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    let text = arg.text()?;
    let mut new = Consoles {
        com1: false,
        com2: false,
        vga: false,
        given: true,
    };
    let mut any = false;
    let result = list::each(text, |item| {
        match item.name {
            "vga" => new.vga = true,
            "com1" => new.com1 = true,
            "com2" => new.com2 = true,
            "none" => {}
            "com1H" | "com1L" | "com2H" | "com2L" => {
                return Err(format!(
                    "{:?}: ports shared by their top bit are not supported",
                    item.name
                ));
            }
            _ => return Ok(false),
        }
        any = true;
        Ok(true)
    });
    // A list in which nothing is understood must not turn the log off.
    if any {
        o.console = new;
    }
    result
}

fn conswitch(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    let text = arg.text()?;
    let (letter, stay) = match text.as_bytes() {
        [letter] => (*letter, false),
        [letter, b'x'] => (*letter, true),
        _ => (0, false),
    };
    o.conswitch.letter = match letter {
        b'a'..=b'z' => Some(letter),
        // Before `a`: Xen takes it for no key at all.
        b'`' => None,
        _ => return Err(format!("{text:?} is not a letter, or a letter and x")),
    };
    o.conswitch.stay = stay;
    Ok(())
}

fn timestamps(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.console_timestamps = match arg.value {
        Some("none") => Timestamps::None,
        Some("date") => Timestamps::Date,
        Some("datems") => Timestamps::DateMs,
        Some("boot") => Timestamps::Boot,
        Some("raw") => Timestamps::Raw,
        // The option was a boolean once.
        _ if arg.boolean()? => Timestamps::Date,
        _ => Timestamps::None,
    };
    Ok(())
}

fn dom0(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    list::each(arg.text()?, |item| {
        match item.name {
            "pvh" if item.on => {}
            "pvh" | "pv" => return Err(String::from("dom0 is always PVH")),
            "verbose" => o.dom0.verbose = item.on,
            "pf-fixup" => o.dom0.pf_fixup = item.on,
            "msr-relaxed" => o.dom0.msr_relaxed = item.on,
            "hvm-pirq" => o.dom0.hvm_pirq = item.on,
            "shadow" if !item.on => {}
            "shadow" => return Err(String::from("shadow paging is not supported")),
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn ivrs_ioapic(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    let new = IoApicSource::parse(arg.index, arg.text()?)?;
    let list = &mut o.ivrs_ioapics;
    let same = |s: &Option<IoApicSource>| s.is_some_and(|s| s.id == new.id);
    let at = list
        .iter()
        .position(same)
        .or_else(|| list.iter().position(Option::is_none))
        .ok_or("more than eight of them")?;
    list[at] = Some(new);
    Ok(())
}

fn iommu(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    if arg.value.is_none() {
        o.iommu.on = arg.boolean()?;
        return Ok(());
    }
    list::each(arg.text()?, |item| {
        match item.name {
            "no" | "off" | "false" | "disable" | "0" => o.iommu.on = false,
            "yes" | "on" | "true" | "enable" | "1" => o.iommu.on = true,
            "required" | "force" => o.iommu.required = item.on,
            "verbose" if item.on => o.iommu.verbosity = o.iommu.verbosity.max(Verbosity::Verbose),
            "debug" if item.on => o.iommu.verbosity = Verbosity::Debug,
            "verbose" | "debug" => o.iommu.verbosity = Verbosity::Quiet,
            "intremap" => o.iommu.intremap = item.on,
            "qinval" => o.iommu.qinval = item.on,
            "intpost" => o.iommu.intpost = item.on,
            "amd-iommu-perdev-intremap" if item.on => {}
            "amd-iommu-perdev-intremap" => {
                return Err(String::from(
                    "every device has a remapping table of its own",
                ));
            }
            "workaround_bios_bug" => {
                return Err(String::from(
                    "workaround_bios_bug is not needed: a table's wrong parts are left out anyway",
                ));
            }
            "igfx" | "snoop" | "superpages" | "sharept" | "dom0-passthrough" | "dom0-strict"
            | "quarantine" | "crash-disable" => {
                return Err(format!(
                    "{} has no effect: DMA is not translated yet",
                    item.name
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn reboot(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    // Xen looks at the first letter of each item only.
    list::each(arg.text()?, |item| {
        if matches!(item.name, "no" | "n") {
            o.reboot = Reboot::No;
            return Ok(true);
        }
        o.reboot = match item.name.as_bytes().first() {
            Some(b'a') => Reboot::Acpi,
            Some(b'k') => Reboot::Kbd,
            Some(b't') => Reboot::Triple,
            Some(b'p') => Reboot::Pci,
            Some(b'P') => Reboot::Power,
            Some(b'e') => Reboot::Efi,
            // Warm and cold differ in a BIOS flag that nothing reads any more.
            Some(b'w' | b'c') => return Ok(true),
            _ => return Ok(false),
        };
        Ok(true)
    })
}

fn sched(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.sched = match arg.text()? {
        "credit2" if cfg!(CONFIG_SCHED_CREDIT2) => Scheduler::Credit2,
        "null" if cfg!(CONFIG_SCHED_NULL) => Scheduler::Null,
        other @ ("credit" | "credit2" | "null" | "rtds" | "arinc653") => {
            return Err(format!(
                "{other:?} is not built in; {} is used",
                hv_hw::config::SCHED_DEFAULT
            ));
        }
        other => return Err(not_one_of(other, "credit2, null")),
    };
    Ok(())
}

fn tslice(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    let ms = arg.number()?;
    if !(1..=1000).contains(&ms) {
        return Err(format!("{ms} is not in 1 to 1000"));
    }
    o.sched_tslice_ms = Some(ms);
    Ok(())
}

fn vga(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    list::each(arg.text()?, |item| {
        if let Some(rows) = item.name.strip_prefix("text-80x") {
            o.vga.text_rows = rows.parse().ok();
            return Ok(o.vga.text_rows.is_some());
        }
        match item.name {
            "keep" => o.vga.keep = item.on,
            "current" => o.vga.text_rows = None,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn watchdog(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    if arg.value == Some("force") {
        o.watchdog.on = true;
        o.watchdog.force = true;
    } else {
        o.watchdog.on = arg.boolean()?;
    }
    Ok(())
}

fn x2apic_mode(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.x2apic_mode = Some(match arg.text()? {
        "physical" => X2apicMode::Physical,
        "cluster" => X2apicMode::Cluster,
        "mixed" => X2apicMode::Mixed,
        other => return Err(not_one_of(other, "physical, cluster, mixed")),
    });
    Ok(())
}

fn xen_version(o: &mut Options, arg: Arg<'_>) -> Result<(), String> {
    o.xen_version = match arg.text()? {
        "4.17" => (4, 17),
        "4.18" => (4, 18),
        "4.19" => (4, 19),
        "4.20" => (4, 20),
        other => return Err(not_one_of(other, "4.17, 4.18, 4.19, 4.20")),
    };
    Ok(())
}
