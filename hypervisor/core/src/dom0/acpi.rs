//! ACPI root tables for dom0. The firmware's tables stay where they are; new are the root pointer, a list (XSDT) of the
//! tables that dom0 may see, and the interrupt table (MADT), which describes dom0's CPUs instead of the machine's.
//!
//! A table is passed unless it is on the deny list: devices that dom0 drives should not lose theirs because nobody
//! thought of it.

#[cfg(test)]
pub(crate) mod tests;

use alloc::vec::Vec;

/// Tables that dom0 must not see, and why.
pub const DENIED: &[(&[u8; 4], &str)] = &[
    (b"APIC", "rebuilt for dom0's CPUs"),
    (b"FACS", "found through the FADT"),
    (b"DSDT", "found through the FADT"),
    (b"RSDT", "replaced by the XSDT"),
    (b"XSDT", "rebuilt"),
    // Devices of the hypervisor.
    (b"HPET", "a timer of the hypervisor"),
    (b"DMAR", "the IOMMU is the hypervisor's"),
    (b"IVRS", "the IOMMU is the hypervisor's"),
    (b"VIOT", "the IOMMU is the hypervisor's"),
    (b"SPCR", "a console of the hypervisor"),
    (b"DBGP", "a console of the hypervisor"),
    (b"DBG2", "a console of the hypervisor"),
    (b"HEST", "machine errors go to the hypervisor"),
    (b"EINJ", "machine errors go to the hypervisor"),
    // Topology of the machine, which is not dom0's.
    (b"SRAT", "describes the machine's CPUs and nodes"),
    (b"SLIT", "describes the machine's CPUs and nodes"),
    (b"HMAT", "describes the machine's CPUs and nodes"),
    (b"MSCT", "describes the machine's CPUs and nodes"),
    (b"PPTT", "describes the machine's CPUs and nodes"),
    (b"MPST", "describes the machine's CPUs and nodes"),
    // Promises about hardware that is emulated here, or memory that is gone.
    (b"WAET", "describes the machine's timers"),
    (b"BGRT", "its image lies in memory that is RAM again"),
];

const HEADER: usize = 36;
const LENGTH_AT: usize = 4;
const CHECKSUM_AT: usize = 9;
const LOCAL_APIC: u32 = 0xfee0_0000;
const RSDP_LEN: usize = 36;
/// Distance from the root pointer to the XSDT.
const XSDT_AT: usize = 64;
/// First APIC ID that only the x2APIC form of an entry can hold.
const X2APIC_ID: u32 = 255;

/// A table that the host's XSDT or RSDT names.
#[derive(Clone, Copy, Debug)]
pub struct HostTable<'a> {
    /// Where it lies.
    pub address: u64,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
}

impl HostTable<'_> {
    /// The four letters of its kind.
    pub fn signature(&self) -> [u8; 4] {
        self.bytes.first_chunk().copied().unwrap_or_default()
    }
}

/// An IO-APIC that dom0 sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApic {
    /// ACPI identifier.
    pub id: u8,
    /// Register page.
    pub address: u32,
    /// First GSI.
    pub gsi_base: u32,
}

/// What the tables are made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Tables of the host, as its root table lists them.
    pub tables: &'a [HostTable<'a>],
    /// APIC ID of each vCPU; a vCPU's number is its ACPI processor UID.
    pub apic_ids: &'a [u32],
    /// IO-APICs.
    pub ioapics: &'a [IoApic],
}

/// Why a host table is left out of dom0's list; `None` if it is in.
pub fn denied(signature: [u8; 4]) -> Option<&'static str> {
    DENIED
        .iter()
        .find(|(name, _)| **name == signature)
        .map(|(_, why)| *why)
}

/// Root pointer, XSDT and MADT as they are at address `base` (a multiple of 16). The root pointer comes first. The length
/// does not depend on `base`.
pub fn build(base: u64, facts: &Facts<'_>) -> Vec<u8> {
    let host = facts.tables.iter().find(|t| &t.signature() == b"APIC");
    // The identity of the board, so that quirks keyed on it still match.
    let oem = facts
        .tables
        .iter()
        .find(|t| &t.signature() == b"FACP")
        .or(host)
        .and_then(|t| t.bytes.get(10..28))
        .and_then(|b| <[u8; 18]>::try_from(b).ok())
        .unwrap_or(*b"XENLTHXENOLITH\x01\0\0\0");

    let passed: Vec<u64> = facts
        .tables
        .iter()
        .filter(|t| denied(t.signature()).is_none())
        .map(|t| t.address)
        .collect();
    let xsdt_len = HEADER + 8 * (passed.len() + 1);
    let madt_at = (XSDT_AT + xsdt_len).next_multiple_of(16);

    let mut xsdt = header(b"XSDT", 1, &oem);
    for address in passed.iter().copied().chain([base + madt_at as u64]) {
        xsdt.extend(address.to_le_bytes());
    }
    let mut madt = madt(host, facts, &oem);
    seal(&mut xsdt);
    seal(&mut madt);

    let mut out = rsdp(base + XSDT_AT as u64, &oem);
    out.resize(XSDT_AT, 0);
    out.extend(xsdt);
    out.resize(madt_at, 0);
    out.extend(madt);
    out
}

fn rsdp(xsdt: u64, oem: &[u8; 18]) -> Vec<u8> {
    let mut out = b"RSD PTR \0".to_vec();
    out.extend(&oem[..6]);
    out.push(2);
    out.extend([0; 4]);
    out.extend((RSDP_LEN as u32).to_le_bytes());
    out.extend(xsdt.to_le_bytes());
    out.extend([0; 4]);
    // The first checksum covers the 20 bytes of version 1, the second all.
    out[8] = negative_sum(&out[..20]);
    out[32] = negative_sum(&out);
    out
}

fn madt(host: Option<&HostTable<'_>>, facts: &Facts<'_>, oem: &[u8; 18]) -> Vec<u8> {
    // x2APIC entries came with revision 3; entries later than revision 4 are not made here.
    let revision = host
        .and_then(|t| t.bytes.get(8))
        .map_or(3, |&r| r.clamp(3, 4));
    let mut out = header(b"APIC", revision, oem);
    out.extend(LOCAL_APIC.to_le_bytes());
    // Flags: no 8259 interrupt controllers.
    out.extend(0_u32.to_le_bytes());
    // All entries have one form: Linux ignores x2APIC entries below 255 beside old ones.
    let small = facts.apic_ids.iter().all(|&id| id < X2APIC_ID) && facts.apic_ids.len() <= 255;
    for (uid, &id) in (0_u32..).zip(facts.apic_ids) {
        if small {
            out.extend([0, 8, uid as u8, id as u8, 1, 0, 0, 0]);
        } else {
            out.extend([9, 16, 0, 0]);
            for word in [id, 1, uid] {
                out.extend(word.to_le_bytes());
            }
        }
    }
    for io in facts.ioapics {
        out.extend([1, 12, io.id, 0]);
        out.extend(io.address.to_le_bytes());
        out.extend(io.gsi_base.to_le_bytes());
    }
    // Interrupt source overrides, as they are.
    let mut rest = host.and_then(|t| t.bytes.get(44..)).unwrap_or_default();
    while let [kind, len, ..] = *rest {
        let Some((entry, after)) = rest.split_at_checked(usize::from(len)) else {
            break;
        };
        if len < 2 {
            break;
        }
        if kind == 2 && len == 10 {
            out.extend_from_slice(entry);
        }
        rest = after;
    }
    out
}

/// A table header; length and checksum are filled in by [`seal`].
fn header(signature: &[u8; 4], revision: u8, oem: &[u8; 18]) -> Vec<u8> {
    let mut out = signature.to_vec();
    out.extend([0, 0, 0, 0, revision, 0]);
    out.extend(oem);
    out.extend(b"XENL");
    out.extend(1_u32.to_le_bytes());
    out
}

fn seal(table: &mut [u8]) {
    let len = table.len() as u32;
    table[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&len.to_le_bytes());
    table[CHECKSUM_AT] = negative_sum(table);
}

fn negative_sum(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(0_u8, |sum, &b| sum.wrapping_add(b))
        .wrapping_neg()
}
