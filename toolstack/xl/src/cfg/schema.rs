//! Settings to a domain's config: names, types, ranges, defaults.

use super::cpuid::{self, Edit};
use super::domain::{Action, Actions, BootLoader, DomainConfig, Limits, Time, is_name, parse_uuid};
use super::parser::Setting;
use super::pins::{self, CpuList};
use super::reader::{Reader, Result};
use super::value::{ConfigError, Kind, Pos, Sources};
use super::{Parsed, disk, vif};

/// Most vCPUs of a guest.
const VCPUS: u32 = 128;
/// Most memory of a guest in MiB: 12 TiB.
const MEMORY: u64 = 12 << 20;

/// Reads everything.
pub(super) fn domain(
    sources: &Sources,
    settings: Vec<Setting>,
) -> std::result::Result<Parsed, ConfigError> {
    let mut r = Reader::new(sources, settings)?;
    kind(&mut r)?;
    unbuilt(&mut r)?;
    let (name, pos) = match r.text_at("name")? {
        Some(name) => name,
        None => return r.error(Pos::FILE, "the domain has no name: add name=\"...\""),
    };
    if !is_name(&name) {
        let message = format!("'{name}' is no name of a domain: no '/', not only digits");
        return r.error(pos, message);
    }
    let uuid = match r.text_at("uuid")? {
        None => None,
        Some((text, pos)) => match parse_uuid(&text) {
            Some(uuid) => Some(uuid),
            None => return r.error(pos, format!("'{text}' is no UUID")),
        },
    };
    let (bootloader, loader_pos) = boot_loader(&mut r)?.unzip();
    let kernel = r.text("kernel")?;
    if kernel.is_none() && bootloader.is_none() {
        let message = "the domain has no kernel: add kernel=\"/boot/vmlinuz-...\", or bootloader=\"pygrub\" if it is on the \
                       domain's disk";
        return r.error(Pos::FILE, message);
    }
    let memory = r.number("memory", (1, MEMORY))?.unwrap_or(32) << 10;
    let maxmem = match r.number_at("maxmem", (1, MEMORY))? {
        None => memory,
        Some((mib, pos)) if mib << 10 < memory => {
            let message = format!("maxmem={mib} is less than memory={}", memory >> 10);
            return r.error(pos, message);
        }
        Some((mib, _)) => mib << 10,
    };
    let vcpus = r.small("vcpus", (1, VCPUS))?;
    let maxvcpus = r.number_at("maxvcpus", (1, VCPUS.into()))?;
    let (vcpus, maxvcpus) = match (vcpus, maxvcpus) {
        (Some(n), None) => (n, n),
        (None, Some((most, _))) => (1, most as u32),
        (None, None) => (1, 1),
        (Some(n), Some((most, pos))) if most < n.into() => {
            return r.error(pos, format!("maxvcpus={most} is less than vcpus={n}"));
        }
        (Some(n), Some((most, _))) => (n, most as u32),
    };
    let config = DomainConfig {
        name,
        uuid,
        pool: r.text("pool")?,
        bootloader,
        kernel: kernel.unwrap_or_default(),
        ramdisk: r.text("ramdisk")?,
        cmdline: command_line(&mut r)?,
        memory,
        maxmem,
        shadow_memory: r.number("shadow_memory", (1, MEMORY))?.map(|m| m << 10),
        vcpus,
        maxvcpus,
        cpus: cpus(&mut r, "cpus")?,
        cpus_soft: cpus(&mut r, "cpus_soft")?,
        cpuid: cpuid(&mut r)?,
        cpu_weight: r.small("cpu_weight", (1, 65535))?.map(|n| n as u16),
        cap: r.small("cap", (0, 65535))?.map(|n| n as u16),
        actions: actions(&mut r)?,
        disks: disks(&mut r)?,
        vifs: vifs(&mut r)?,
        limits: Limits {
            grant_frames: r.small("max_grant_frames", (1, i32::MAX as u32))?,
            maptrack_frames: r.small("max_maptrack_frames", (0, i32::MAX as u32))?,
            grant_version: r.small("max_grant_version", (1, 2))?,
            event_channels: r.small("max_event_channels", (1, 131_071))?.unwrap_or(1023),
        },
        time: time(&mut r)?,
        no_migrate: r.flag("nomigrate")?.unwrap_or(false),
        driver_domain: r.flag("driver_domain")?.unwrap_or(false),
        msr_relaxed: r.flag("msr_relaxed")?.unwrap_or(false),
        assisted_xapic: r.flag("assisted_xapic")?.unwrap_or(true),
        assisted_x2apic: r.flag("assisted_x2apic")?.unwrap_or(true),
        pirqs: r.flag("hvm_pirq")?.unwrap_or(false),
        oos: r.flag("oos")?.unwrap_or(true),
    };
    if let (Some(pos), true) = (loader_pos, config.disks.is_empty()) {
        return r.error(
            pos,
            "'bootloader' looks for the kernel on the first disk: add disk=[\"...\"]",
        );
    }
    let sched = ["period", "slice", "latency", "extratime"];
    for name in sched {
        if let Some((_, pos)) = r.number_at(name, (0, u64::MAX))? {
            r.warn(
                pos,
                format!("'{name}' has no effect: it belongs to schedulers that are not built"),
            );
        }
    }
    // Without effect on what is built, or what is built does so anyway.
    for name in [
        "acpi",
        "apic",
        "videoram",
        "claim_mode",
        "xend_suspend_evtchn_compat",
    ] {
        r.number(name, (0, u64::MAX))?;
    }
    Ok(Parsed {
        config,
        warnings: r.finish(),
    })
}

fn kind(r: &mut Reader<'_>) -> Result<()> {
    let builder = r.text_at("builder")?;
    let Some((kind, pos)) = r.text_at("type")? else {
        let pos = builder.map_or(Pos::FILE, |(_, pos)| pos);
        return r.error(
            pos,
            "only PVH guests can be built: add type=\"pvh\" (without it Xen takes the guest for PV)",
        );
    };
    if kind != "pvh" {
        return r.error(
            pos,
            format!("type=\"{kind}\" cannot be built: only \"pvh\""),
        );
    }
    if let Some(false) = r.flag("hap")? {
        return r.error(pos, "hap=0: PVH guests need nested paging here");
    }
    Ok(())
}

/// Settings that would change the guest and cannot be honoured are errors, not warnings.
fn unbuilt(r: &mut Reader<'_>) -> Result<()> {
    const QEMU: &str = "only QEMU could serve it, which this toolstack does not start";
    const NOBODY: &str = "nobody serves it here";
    const PCI: &str = "PVH guests get no PCI devices, their ports and memory";
    let lists = [
        ("pci", PCI),
        ("ioports", PCI),
        ("irqs", PCI),
        ("iomem", PCI),
        ("vfb", QEMU),
        ("vkb", QEMU),
        ("p9", QEMU),
        ("usbctrl", QEMU),
        ("usbdev", QEMU),
        ("virtio", QEMU),
        ("channel", NOBODY),
        ("pvcalls", NOBODY),
        ("vdispl", NOBODY),
        ("vsnd", NOBODY),
        ("vtpm", NOBODY),
        ("dtdev", "only guests on Arm have it"),
        ("vif2", "'vif' is for all kinds of guests"),
        ("vnuma", "domains have no virtual NUMA nodes yet"),
    ];
    for (name, why) in lists {
        if let Some(value) = r.take(name)
            && !matches!(&value.kind, Kind::List(items) if items.is_empty())
        {
            return r.error(value.pos, format!("leave '{name}' out: {why}"));
        }
    }
    for (name, instead) in [
        (
            "firmware",
            "'kernel' may name the file of a boot program for PVH guests",
        ),
        ("init_seclabel", "the hypervisor has no Flask"),
    ] {
        if let Some((_, pos)) = r.text_at(name)? {
            return r.error(
                pos,
                format!("'{name}' is not built: leave it out; {instead}"),
            );
        }
    }
    for name in [
        "pvshim",
        "nestedhvm",
        "vpmu",
        "altp2m",
        "passthrough",
        "vmtrace_buf_kb",
    ] {
        let Some((text, pos)) = r.text_at(name)? else {
            continue;
        };
        if !matches!(text.as_str(), "0" | "disabled") {
            return r.error(pos, format!("{name}={text} is not built yet: leave it out"));
        }
    }
    if let Some((_, pos)) = r.text_at("seclabel")? {
        r.warn(pos, "'seclabel' has no effect: the hypervisor has no Flask");
    }
    if let Some(value) = r.take("device_model_args") {
        r.warn(value.pos, "'device_model_args' has no effect");
    }
    Ok(())
}

/// The program that finds the kernel; its words are a list, or one string with blanks between them.
fn boot_loader(r: &mut Reader<'_>) -> Result<Option<(BootLoader, Pos)>> {
    let program = r.text_at("bootloader")?;
    let one_string = r.is_text("bootloader_args");
    let words = r.texts("bootloader_args")?;
    let Some((program, pos)) = program else {
        if let Some((_, pos)) = words.first() {
            r.warn(*pos, "'bootloader_args' has no effect without 'bootloader'");
        }
        return Ok(None);
    };
    let args = match one_string {
        true => words
            .iter()
            .flat_map(|(w, _)| w.split_whitespace())
            .map(str::to_owned)
            .collect(),
        false => words.into_iter().map(|(w, _)| w).collect(),
    };
    Ok(Some((BootLoader { program, args }, pos)))
}

fn command_line(r: &mut Reader<'_>) -> Result<String> {
    let root = r.text_at("root")?;
    let extra = r.text_at("extra")?;
    let line = match r.text_at("cmdline")? {
        Some((line, pos)) => {
            if root.is_some() || extra.is_some() {
                r.warn(pos, "'root' and 'extra' have no effect beside 'cmdline'");
            }
            line
        }
        None => {
            let root = root.map(|(root, _)| format!("root={root}"));
            let parts: Vec<String> = root.into_iter().chain(extra.map(|(e, _)| e)).collect();
            parts.join(" ")
        }
    };
    Ok(line)
}

fn cpus(r: &mut Reader<'_>, name: &str) -> Result<Vec<CpuList>> {
    let mut lists = Vec::new();
    let Some(value) = r.take(name) else {
        return Ok(lists);
    };
    let items = match value.kind {
        Kind::List(items) => items,
        _ => vec![value],
    };
    for item in items {
        let (Kind::Text(text) | Kind::Number(text)) = item.kind else {
            return r.error(item.pos, format!("'{name}' is a list of strings"));
        };
        match pins::parse(&text) {
            Ok(list) => lists.push(list),
            Err(message) => return r.error(item.pos, format!("{name}: {message}")),
        }
    }
    Ok(lists)
}

fn cpuid(r: &mut Reader<'_>) -> Result<Vec<Edit>> {
    let by_name = !r.is_list("cpuid");
    let mut edits = Vec::new();
    for (text, pos) in r.texts("cpuid")? {
        let parsed = match by_name {
            true => cpuid::parse_names(&text),
            false => cpuid::parse_bits(&text),
        };
        match parsed {
            Ok(more) => edits.extend(more),
            Err(message) => return r.error(pos, message),
        }
    }
    Ok(edits)
}

fn actions(r: &mut Reader<'_>) -> Result<Actions> {
    let mut actions = Actions::default();
    let fields = [
        ("on_poweroff", &mut actions.poweroff),
        ("on_reboot", &mut actions.reboot),
        ("on_watchdog", &mut actions.watchdog),
        ("on_crash", &mut actions.crash),
        ("on_soft_reset", &mut actions.soft_reset),
    ];
    for (name, field) in fields {
        let Some((text, pos)) = r.text_at(name)? else {
            continue;
        };
        match Action::from_name(&text) {
            Some(action) => *field = action,
            None => {
                let names: Vec<&str> = Action::NAMES.iter().map(|(n, _)| *n).collect();
                let message = format!("unknown action {name}=\"{text}\": {}", names.join(", "));
                return r.error(pos, message);
            }
        }
    }
    Ok(actions)
}

fn disks(r: &mut Reader<'_>) -> Result<Vec<disk::Disk>> {
    let mut disks: Vec<disk::Disk> = Vec::new();
    for (text, pos) in r.texts("disk")? {
        if text.trim().is_empty() {
            continue;
        }
        let disk = match disk::parse(&text) {
            Ok(disk) => disk,
            Err(message) => return r.error(pos, message),
        };
        if disks.iter().any(|d| d.devid() == disk.devid()) {
            return r.error(pos, format!("two disks are called {}", disk.vdev));
        }
        disks.push(disk);
    }
    Ok(disks)
}

fn vifs(r: &mut Reader<'_>) -> Result<Vec<vif::Vif>> {
    let mut vifs: Vec<vif::Vif> = Vec::new();
    for (text, pos) in r.texts("vif")? {
        let mut vif = match vif::parse(&text) {
            Ok(vif) => vif,
            Err(message) => return r.error(pos, message),
        };
        let free = (0..).find(|n| vifs.iter().all(|v| v.devid != Some(*n)));
        vif.devid = vif.devid.or(free);
        if vifs.iter().any(|v| v.devid == vif.devid) {
            return r.error(pos, "two network interfaces have this devid");
        }
        if vif.mac.is_some() && vifs.iter().any(|v| v.mac == vif.mac) {
            return r.error(pos, "two network interfaces have this hardware address");
        }
        vifs.push(vif);
    }
    Ok(vifs)
}

fn time(r: &mut Reader<'_>) -> Result<Time> {
    let tsc_mode = match r.text_at("tsc_mode")? {
        None => 0,
        Some((text, pos)) => match text.as_str() {
            "default" | "0" => 0,
            "always_emulate" | "1" => 1,
            "native" | "2" => 2,
            _ => {
                let message = format!("tsc_mode=\"{text}\": default, always_emulate or native");
                return r.error(pos, message);
            }
        },
    };
    let names = [
        "delay_for_missed_ticks",
        "no_delay_for_missed_ticks",
        "no_missed_ticks_pending",
        "one_missed_tick_pending",
    ];
    let timer_mode = match r.text_at("timer_mode")? {
        None => None,
        Some((text, pos)) => {
            let named = names.iter().position(|n| *n == text);
            match named.or(text.parse().ok()).filter(|n| *n < names.len()) {
                Some(n) => Some(n as u32),
                None => return r.error(pos, format!("timer_mode: 0 to 3, not '{text}'")),
            }
        }
    };
    Ok(Time {
        localtime: r.flag("localtime")?.unwrap_or(false),
        rtc_offset: r
            .small("rtc_timeoffset", (0, i32::MAX as u32))?
            .unwrap_or(0) as i32,
        tsc_mode,
        timer_mode,
    })
}
