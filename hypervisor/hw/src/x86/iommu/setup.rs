//! From the firmware's tables to working units, or to the reason why not.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt::Display;
use core::sync::atomic::Ordering;

use x86_model::acpi::dmar::{self, Dmar};
use x86_model::acpi::ivrs::{self, Ivrs};
use x86_model::iommu::amd::Format;
use x86_model::iommu::decide::{self, Facts, NotUsed};
use x86_model::iommu::{Requester, requester, table_entries};
use x86_model::pci::{Bdf, PORT_ADDRESS, PORT_DATA, cfg};

use super::super::apic::vectors::{FIRST_DEVICE, LAST_DEVICE};
use super::super::cpu::features;
use super::super::{acpi, asm};
use super::{ACTIVE, EXPLICIT_EOI, POSTS, STATE, Sender, State, Units, amd, vtd};
use crate::machine::IoApicInfo;
use crate::{info, warn};

/// `iommu=`.
#[derive(Clone, Copy, Debug)]
pub struct IommuOptions {
    /// Units are used.
    pub on: bool,
    /// Do not boot without.
    pub required: bool,
    /// Interrupt remapping.
    pub intremap: bool,
    /// Interrupt posting, where all units have it.
    pub intpost: bool,
    /// Queued invalidation (Intel).
    pub qinval: bool,
    /// Tell about units and tables.
    pub verbose: bool,
    /// Log every change of an entry.
    pub debug: bool,
    /// IO-APICs, by ACPI id, whose source is not what IVRS says.
    pub ioapics: [Option<(u8, Bdf)>; 8],
}

impl Default for IommuOptions {
    fn default() -> Self {
        IommuOptions {
            on: true,
            required: false,
            intremap: true,
            intpost: false,
            qinval: true,
            verbose: false,
            debug: false,
            ioapics: [None; 8],
        }
    }
}

/// Whether the firmware's table asks to stay in xAPIC mode.
pub fn asks_for_xapic() -> bool {
    acpi::table(b"DMAR")
        .and_then(|t| dmar::parse(&t.bytes))
        .is_some_and(|d| d.interrupt_remapping && d.x2apic_opt_out)
}

/// Says what of a table is not used: the first few structures, and how many more.
fn tell_refused<R: Display>(table: &str, refused: &[R], unknown: u32, verbose: bool) {
    const SHOWN: usize = 8;
    for r in refused.iter().take(SHOWN) {
        warn!("{table}: {r}: not used");
    }
    if refused.len() > SHOWN {
        warn!("{table}: {} more are not used", refused.len() - SHOWN);
    }
    if unknown != 0 && verbose {
        info!("{table}: {unknown} structures of unknown type are ignored");
    }
}

/// Looks for units and starts interrupt remapping where it can be used, or says why not. Boot CPU, once, with all IO-APIC
/// pins masked and no device interrupt set up. `ioapics` are the usable ones, `cpus` the CPUs that may be used, `x2apic`
/// says that local APICs are going to be in x2APIC mode. The error is for `iommu=required`.
pub fn init(
    options: &IommuOptions,
    ioapics: &[IoApicInfo],
    cpus: u32,
    x2apic: bool,
) -> Result<(), &'static str> {
    let mut facts = Facts {
        units: options.on,
        built: true,
        intremap: options.intremap,
        qinval: options.qinval,
        wide_exchange: features::get().cx16,
        x2apic,
        stray_ioapic: None,
    };
    let dmar = acpi::table(b"DMAR").and_then(|t| dmar::parse(&t.bytes));
    let mut ivrs = acpi::table(b"IVRS").and_then(|t| ivrs::parse(&t.bytes));
    for (id, source) in options.ioapics.into_iter().flatten() {
        let device = requester::id(source);
        match ivrs
            .as_mut()
            .map(|i| i.set_ioapic(id, source.segment, device))
        {
            Some(true) => info!("IO-APIC {id}: its source is {source:?} (ivrs_ioapic)"),
            Some(false) => warn!("ivrs_ioapic[{id}]: no unit has the segment of {source:?}"),
            None => warn!("ivrs_ioapic[{id}] has no effect: there is no IVRS table"),
        }
    }
    let pins = ioapics.iter().map(|a| a.pins).sum();
    let entries = table_entries(cpus, u32::from(LAST_DEVICE - FIRST_DEVICE) + 1, pins);
    let (have, outcome) = match (dmar, ivrs) {
        (Some(dmar), _) => (
            true,
            start_vtd(options, &mut facts, &dmar, ioapics, entries),
        ),
        (None, Some(ivrs)) => (true, start_amd(options, &mut facts, &ivrs, ioapics)),
        (None, None) => (false, Err(String::from("no DMAR or IVRS table"))),
    };
    match outcome {
        Ok((state, how)) => {
            EXPLICIT_EOI.store(matches!(state.units, Units::Amd(_)), Ordering::Relaxed);
            let can_post = matches!(&state.units, Units::Vtd(v) if v.can_post());
            *STATE.lock() = Some(state);
            ACTIVE.store(true, Ordering::Release);
            info!("Interrupt remapping enabled: {how}");
            match (options.intpost, can_post) {
                (true, true) => {
                    POSTS.store(true, Ordering::Release);
                    info!("Interrupt posting enabled");
                }
                (true, false) => info!("Interrupt posting disabled: not every unit can"),
                (false, true) => info!("Interrupt posting disabled: iommu=intpost turns it on"),
                (false, false) => {}
            }
        }
        Err(why) if have => info!("Interrupt remapping disabled: {why}"),
        Err(why) => info!("No IOMMU: {why}"),
    }
    // Xen's line, which scripts look for.
    info!("I/O virtualisation disabled");
    if options.required {
        if !super::active() {
            return Err("iommu=required, and there is no IOMMU that can be used");
        }
        warn!("iommu=required: interrupts are remapped, but DMA is not translated by this version");
    }
    Ok(())
}

type Outcome = Result<(State, String), String>;

fn start_vtd(
    options: &IommuOptions,
    facts: &mut Facts,
    dmar: &Dmar,
    ioapics: &[IoApicInfo],
    entries: u32,
) -> Outcome {
    tell_refused("DMAR", &dmar.refused, dmar.unknown, options.verbose);
    facts.built = cfg!(CONFIG_INTEL_IOMMU);
    facts.look().map_err(text)?;
    let sources = sources(ioapics, facts, |id| {
        let at = dmar.ioapic(id, secondary_bus)?;
        Some((at.segment, requester::id(at)))
    });
    let mut found = vtd::Found::probe(dmar);
    let decided = if found.missing {
        Err(String::from("a unit does not answer"))
    } else {
        decide::vtd(facts, dmar.interrupt_remapping, &found.abilities()).map_err(text)
    };
    let extended = match decided {
        Ok(extended) => extended,
        Err(why) => {
            found.release();
            return Err(why);
        }
    };
    let vtd = found
        .enable(entries, extended)
        .map_err(|()| String::from("VT-d could not be started"))?;
    let how = format!(
        "Intel VT-d, {} unit{}, {entries} entries, {}-bit destinations",
        vtd.count(),
        plural(vtd.count()),
        if extended { 32 } else { 8 }
    );
    Ok((State::new(Units::Vtd(vtd), sources, options.debug), how))
}

fn start_amd(
    options: &IommuOptions,
    facts: &mut Facts,
    ivrs: &Ivrs,
    ioapics: &[IoApicInfo],
) -> Outcome {
    tell_refused("IVRS", &ivrs.refused, ivrs.unknown, options.verbose);
    facts.built = cfg!(CONFIG_AMD_IOMMU);
    facts.look().map_err(text)?;
    let sources = sources(ioapics, facts, |id| ivrs.ioapic(id));
    let found = amd::Found::probe(ivrs);
    if found.missing {
        return Err(String::from("a unit does not answer"));
    }
    let format = decide::amd(facts, &found.features()).map_err(text)?;
    let amd = found
        .enable(ivrs, format)
        .map_err(|()| String::from("AMD-Vi could not be started"))?;
    let how = format!(
        "AMD-Vi, {} unit{}, a table for each device, {}-bit destinations",
        amd.count(),
        plural(amd.count()),
        if format == Format::Wide { 32 } else { 8 }
    );
    Ok((State::new(Units::Amd(amd), sources, options.debug), how))
}

fn text(why: NotUsed) -> String {
    format!("{why}")
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// The IO-APICs' sources, by `find` from their ACPI ids; notes the first that has none of its own.
fn sources(
    ioapics: &[IoApicInfo],
    facts: &mut Facts,
    mut find: impl FnMut(u8) -> Option<(u16, u16)>,
) -> BTreeMap<u8, Sender> {
    let mut sources = BTreeMap::new();
    for a in ioapics {
        let source = find(a.id).map(|(segment, device)| Sender {
            segment,
            device,
            requester: Requester::Exact(device),
        });
        let own = source.is_some_and(|s| sources.insert(a.id, s).is_none());
        if !own {
            facts.stray_ioapic = facts.stray_ioapic.or(Some(a.id));
        }
    }
    sources
}

/// The bus behind a bridge, for scopes with a path. Only the first segment is reachable by ports; a wrong answer makes a
/// wrong source id, and the IO-APIC's interrupts are then refused and reported.
fn secondary_bus(bridge: Bdf) -> u8 {
    let register = u32::from(cfg::SECONDARY_BUS & !3);
    let address = 1 << 31 | u32::from(bridge.bus) << 16 | u32::from(bridge.devfn) << 8 | register;
    // SAFETY: the latch selects a register and does nothing else; the boot CPU is alone.
    unsafe { asm::outl(PORT_ADDRESS, address) };
    (asm::inl(PORT_DATA) >> 8) as u8
}
