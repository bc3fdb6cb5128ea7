//! The machine's ACPI tables: found once at boot, copied, read-only afterwards.
//!
//! They are copied because their memory (of type "ACPI reclaimable") belongs to dom0 later, which may reuse it.

use x86_model::Hpa;
use x86_model::acpi::load::{self, Memory, Missing, Pointer};
use x86_model::acpi::{self as model, Fadt, Madt, Tables};

use crate::bootinfo::Rsdp;
use crate::machine::LineMode;
use crate::{info, warn};
pub use model::Table;

static FOUND: spin::Once<Tables> = spin::Once::new();

/// Finds and copies all tables. `rsdp` is what the boot loader said; without it the BIOS areas are searched.
pub fn init(rsdp: &Rsdp, memory: &mut dyn Memory) {
    let pointer = match rsdp {
        Rsdp::Unknown => Pointer::Unknown,
        Rsdp::Address(at) => Pointer::At(Hpa(*at)),
        Rsdp::Copy(bytes) => Pointer::Copy(bytes),
    };
    let found = match load::load(pointer, memory) {
        Ok(found) => found,
        Err(why) => {
            warn!(
                "No ACPI tables, so one CPU and no IO-APIC: {}",
                match why {
                    Missing::Pointer => "no root pointer was found",
                    Missing::InvalidPointer => "the root pointer is invalid",
                    Missing::Root => "the list of tables is unreadable",
                }
            );
            Tables::default()
        }
    };
    if found.ignored != 0 {
        warn!(
            "ACPI: {} tables are unreadable or malformed and are ignored",
            found.ignored
        );
    }
    for t in found.wrong_checksums() {
        warn!(
            "ACPI: table {} at {:#x} has a wrong checksum",
            t.signature.escape_ascii(),
            t.address.0
        );
    }
    let mut names = alloc::string::String::new();
    for t in &found.tables {
        names.push(' ');
        names.extend(t.signature.iter().map(|&c| char::from(c)));
    }
    if !names.is_empty() {
        info!("ACPI: tables:{names}");
    }
    FOUND.call_once(|| found);
}

/// All tables: those of the RSDT or XSDT in their order, then the DSDT. The FACS is not among them.
pub fn tables() -> &'static [Table] {
    FOUND.get().map_or(&[], |f| &f.tables)
}

/// The first table with a signature.
pub fn table(signature: &[u8; 4]) -> Option<&'static Table> {
    tables().iter().find(|t| &t.signature == signature)
}

/// Where the RSDP is; `None` also if the boot loader gave only a copy.
pub fn rsdp() -> Option<Hpa> {
    FOUND.get()?.rsdp
}

/// Where the RSDT or XSDT is.
pub fn root_table() -> Option<Hpa> {
    FOUND.get()?.root
}

/// The FADT's fields.
pub fn fadt() -> Option<&'static Fadt> {
    FOUND.get()?.fadt.as_ref()
}

/// Number of enabled CPUs in the MADT and their highest APIC ID. `None` without a MADT.
pub fn population() -> Option<(u32, u32)> {
    model::madt::population(&table(b"APIC")?.bytes)
}

/// The MADT's IO-APICs, for use before the CPUs are looked at.
pub fn ioapics() -> alloc::vec::Vec<model::madt::IoApicEntry> {
    let nobody = model::madt::Limits {
        boot_apic_id: 0,
        first_unreachable: 0,
    };
    table(b"APIC")
        .and_then(|t| model::madt::parse(&t.bytes, nobody))
        .map_or_else(alloc::vec::Vec::new, |m| m.ioapics)
}

static MADT: spin::Once<Option<Madt>> = spin::Once::new();

/// Parses the MADT and says what was left out. Once; then [`madt`] has it.
pub fn read_madt(limits: model::madt::Limits) -> Option<&'static Madt> {
    MADT.call_once(|| {
        let madt = model::madt::parse(&table(b"APIC")?.bytes, limits)?;
        if madt.skipped.is_notable() {
            warn!("MADT entries left out: {}", madt.skipped);
        }
        Some(madt)
    });
    madt()
}

/// The parsed MADT.
pub fn madt() -> Option<&'static Madt> {
    MADT.get()?.as_ref()
}

/// GSI and signalling of an ISA interrupt: as the MADT overrides it, else GSI of the same number, edge, active high.
pub fn isa_line(isa: u8) -> (u32, LineMode) {
    let line = madt().and_then(|m| m.overrides.iter().find(|o| o.isa == isa));
    line.map_or(
        (
            isa.into(),
            LineMode {
                level: false,
                low: false,
            },
        ),
        |o| {
            let mode = LineMode {
                level: o.flags >> 2 & 3 == 3,
                low: o.flags & 3 == 3,
            };
            (o.gsi, mode)
        },
    )
}

/// SLP_TYPa and SLP_TYPb for soft-off.
pub fn sleep_types() -> Option<(u8, u8)> {
    FOUND.get()?.sleep
}

/// Address of the HPET.
pub fn hpet() -> Option<Hpa> {
    table(b"HPET")
        .and_then(|t| model::hpet_address(&t.bytes))
        .map(Hpa)
}
