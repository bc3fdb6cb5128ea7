//! The machine's ACPI tables: found once at boot, copied, read-only afterwards.
//!
//! They are copied because their memory (of type "ACPI reclaimable") belongs to dom0 later, which may reuse it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use x86_model::Hpa;
use x86_model::acpi::{self as model, Fadt, HEADER, Madt, root};

use crate::bootinfo::Rsdp;
use crate::machine::LineMode;
use crate::{info, warn};

/// One table.
#[derive(Debug)]
pub struct Table {
    /// Signature.
    pub signature: [u8; 4],
    /// Where the firmware put it.
    pub address: Hpa,
    /// The whole table as it was at boot.
    pub bytes: Box<[u8]>,
}

impl Table {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.bytes.len() as u32
    }
    /// Never true: a table has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Everything that was found.
#[derive(Debug, Default)]
struct Found {
    tables: Vec<Table>,
    rsdp: Option<Hpa>,
    root: Option<Hpa>,
    fadt: Option<Fadt>,
    sleep: Option<(u8, u8)>,
}

static FOUND: spin::Once<Found> = spin::Once::new();

/// More tables than any machine has; a list that is longer is cut.
const MAX_TABLES: usize = 256;

/// How table memory is reached: calls the function with the bytes at an address, if they can be mapped.
pub trait Reader {
    /// Copies `length` bytes at `address`; `None` if they cannot be read.
    fn read(&mut self, address: Hpa, length: usize) -> Option<Vec<u8>>;
}

/// Finds and copies all tables. `rsdp` is what the boot loader said; without it the BIOS areas are searched.
pub fn init(rsdp: &Rsdp, reader: &mut dyn Reader) {
    FOUND.call_once(|| {
        find(rsdp, reader).unwrap_or_else(|| {
            warn!("No ACPI tables found: one CPU, no IO-APIC");
            Found::default()
        })
    });
}

fn find(told: &Rsdp, reader: &mut dyn Reader) -> Option<Found> {
    let (at, bytes) = match told {
        Rsdp::Copy(bytes) => (None, bytes.to_vec()),
        Rsdp::Address(at) => (Some(Hpa(*at)), read_rsdp(Hpa(*at), reader)?),
        Rsdp::Unknown => {
            let at = search(reader)?;
            (Some(at), read_rsdp(at, reader)?)
        }
    };
    let Some(top) = root::rsdp(&bytes) else {
        warn!("ACPI: the RSDP is invalid");
        return None;
    };
    let (root::Root::Rsdt(list_at) | root::Root::Xsdt(list_at)) = top;
    let list = read_table(Hpa(list_at), reader)?;
    let mut found = Found {
        rsdp: at,
        root: Some(Hpa(list_at)),
        ..Found::default()
    };
    let mut bad = 0;
    for address in root::entries(top, &list.bytes).take(MAX_TABLES) {
        match read_table(Hpa(address), reader) {
            Some(table) => found.tables.push(table),
            None => bad += 1,
        }
    }
    let fadt = found.tables.iter().find(|t| &t.signature == b"FACP");
    found.fadt = fadt.and_then(|t| model::fadt::parse(&t.bytes));
    if let Some(fadt) = &found.fadt
        && fadt.dsdt != 0
        && let Some(dsdt) = read_table(Hpa(fadt.dsdt), reader)
    {
        found.tables.push(dsdt);
    }
    found.sleep = found
        .tables
        .iter()
        .filter(|t| matches!(&t.signature, b"DSDT" | b"SSDT"))
        .find_map(|t| model::aml::sleep_types_s5(&t.bytes));
    if bad != 0 {
        warn!("ACPI: {bad} tables are unreadable or have a malformed header, ignored");
    }
    let mut names = alloc::string::String::new();
    for t in &found.tables {
        names.push(' ');
        names.extend(t.signature.iter().map(|&c| char::from(c)));
    }
    info!("ACPI: tables:{names}");
    Some(found)
}

fn read_rsdp(at: Hpa, reader: &mut dyn Reader) -> Option<Vec<u8>> {
    // A first-generation RSDP may end at a page border, so the longer form is only tried.
    reader.read(at, 36).or_else(|| reader.read(at, 20))
}

fn read_table(address: Hpa, reader: &mut dyn Reader) -> Option<Table> {
    let (signature, length) = root::header(&reader.read(address, HEADER)?)?;
    let bytes = reader.read(address, length as usize)?;
    if !model::checksum_ok(&bytes) {
        // Common on real boards, and harmless: the parsers trust no byte anyway.
        warn!(
            "ACPI: table {} at {:#x} has a wrong checksum",
            signature.escape_ascii(),
            address.0
        );
    }
    Some(Table {
        signature,
        address,
        bytes: bytes.into(),
    })
}

/// The BIOS way: first KiB of the EBDA, then 0xe0000 to 0xfffff.
fn search(reader: &mut dyn Reader) -> Option<Hpa> {
    let ebda = reader
        .read(Hpa(0x40e), 2)
        .map(|b| u64::from(b[0]) << 4 | u64::from(b[1]) << 12)
        .filter(|&a| (0x400..0xa_0000).contains(&a));
    let areas = [(ebda.unwrap_or(0), 0x400), (0xe_0000, 0x2_0000)];
    areas
        .into_iter()
        .filter(|a| a.0 != 0)
        .find_map(|(at, len)| {
            let offset = root::scan(&reader.read(Hpa(at), len)?)?;
            Some(Hpa(at + offset as u64))
        })
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
