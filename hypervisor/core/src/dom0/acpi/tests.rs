//! Tables parsed back, by another parser than the one that wrote them.

use std::vec::Vec;

use x86_model::acpi::{checksum_ok, madt, root};

use super::*;

/// A table with a valid header around `body`.
pub(crate) fn table(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut t = header(signature, revision, b"BOCHS BXPC    \x01\0\0\0");
    t.extend_from_slice(body);
    seal(&mut t);
    t
}

/// A host MADT: PCAT_COMPAT set, two CPUs, an IO-APIC, two overrides, an NMI entry.
pub(crate) fn host_madt() -> Vec<u8> {
    let mut body = 0xfee0_0000_u32.to_le_bytes().to_vec();
    body.extend(1_u32.to_le_bytes());
    body.extend([0, 8, 0, 0, 1, 0, 0, 0]);
    body.extend([0, 8, 1, 1, 1, 0, 0, 0]);
    body.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    body.extend([2, 10, 0, 0, 2, 0, 0, 0, 0, 0]);
    body.extend([2, 10, 0, 9, 9, 0, 0, 0, 0x0d, 0]);
    body.extend([4, 6, 0xff, 0, 0, 1]);
    table(b"APIC", 1, &body)
}

const IOAPIC: IoApic = IoApic {
    id: 0,
    address: 0xfec0_0000,
    gsi_base: 0,
};

struct Host {
    list: Vec<(u64, Vec<u8>)>,
}

impl Host {
    fn new() -> Self {
        let names: [&[u8; 4]; 8] = [
            b"FACP", b"HPET", b"MCFG", b"WAET", b"SSDT", b"DMAR", b"TPM2", b"OEM1",
        ];
        let mut list: Vec<(u64, Vec<u8>)> = (0..)
            .zip(names)
            .map(|(i, name)| (0x7ff0_0000 + 0x1000 * i, table(name, 1, &[0; 12])))
            .collect();
        list.push((0x7ff9_0000, host_madt()));
        Self { list }
    }

    fn tables(&self) -> Vec<HostTable<'_>> {
        self.list
            .iter()
            .map(|(address, bytes)| HostTable {
                address: *address,
                bytes,
            })
            .collect()
    }
}

/// Follows the root pointer at `base` to the XSDT's entries and the MADT.
pub(crate) fn read_back(base: u64, block: &[u8]) -> (Vec<u64>, Vec<u8>) {
    assert!(checksum_ok(&block[..20]) && checksum_ok(&block[..36]));
    assert_eq!(block[15], 2);
    let at = |address: u64| &block[(address - base) as usize..];
    let pointer = root::rsdp(block).unwrap();
    let xsdt = u64::from_le_bytes(block[24..32].try_into().unwrap());
    let (signature, len) = root::header(at(xsdt)).unwrap();
    assert_eq!(&signature, b"XSDT");
    let xsdt = &at(xsdt)[..len as usize];
    assert!(checksum_ok(xsdt));
    let entries: Vec<u64> = root::entries(pointer, xsdt).collect();
    let madt = at(*entries.last().unwrap());
    let (signature, len) = root::header(madt).unwrap();
    assert_eq!(&signature, b"APIC");
    assert!(checksum_ok(&madt[..len as usize]));
    (entries, madt[..len as usize].to_vec())
}

fn limits() -> madt::Limits {
    madt::Limits {
        boot_apic_id: 0,
        first_unreachable: u32::MAX,
    }
}

#[test]
fn four_cpus_read_back() {
    let host = Host::new();
    let facts = Facts {
        tables: &host.tables(),
        apic_ids: &[0, 2, 4, 6],
        ioapics: &[IOAPIC],
    };
    let base = 0x1fff_0000;
    let block = build(base, &facts);
    assert_eq!(build(0, &facts).len(), block.len());
    let (entries, bytes) = read_back(base, &block);
    // FACP, MCFG, SSDT, TPM2, OEM1 and ours.
    assert_eq!(
        entries[..5],
        [
            0x7ff0_0000,
            0x7ff0_2000,
            0x7ff0_4000,
            0x7ff0_6000,
            0x7ff0_7000
        ]
    );
    assert_eq!(entries.len(), 6);
    assert_eq!(
        &bytes[36..44],
        &[0, 0, 0xe0, 0xfe, 0, 0, 0, 0],
        "flags are 0"
    );
    assert_eq!(&bytes[10..16], b"BOCHS ");
    let parsed = madt::parse(&bytes, limits()).unwrap();
    let cpus: Vec<(u32, u32)> = parsed.cpus.iter().map(|c| (c.uid, c.apic_id)).collect();
    assert_eq!(cpus, [(0, 0), (1, 2), (2, 4), (3, 6)]);
    assert_eq!(parsed.ioapics.len(), 1);
    assert_eq!(parsed.ioapics[0].address, 0xfec0_0000);
    let overrides: Vec<(u8, u32, u16)> = parsed
        .overrides
        .iter()
        .map(|o| (o.isa, o.gsi, o.flags))
        .collect();
    assert_eq!(overrides, [(0, 2, 0), (9, 9, 0x0d)]);
    assert!(parsed.nmis.is_empty());
}

#[test]
fn many_cpus_take_the_x2apic_form_throughout() {
    for (count, kind) in [(1, 0), (127, 0), (128, 0), (129, 9), (300, 9)] {
        let ids: Vec<u32> = (0..count)
            .map(x86_model::policy::topology::apic_id)
            .collect();
        let facts = Facts {
            tables: &[],
            apic_ids: &ids,
            ioapics: &[IOAPIC],
        };
        let (entries, bytes) = read_back(0x1000, &build(0x1000, &facts));
        assert_eq!(entries.len(), 1);
        assert_eq!(bytes[44], kind, "{count}");
        let parsed = madt::parse(&bytes, limits()).unwrap();
        let got: Vec<(u32, u32)> = parsed.cpus.iter().map(|c| (c.uid, c.apic_id)).collect();
        let want: Vec<(u32, u32)> = (0..).zip(ids).collect();
        assert_eq!(got, want);
    }
}

#[test]
fn damaged_host_tables_do_no_harm() {
    let good = host_madt();
    for cut in 0..good.len() {
        let facts = Facts {
            tables: &[HostTable {
                address: 0x1000,
                bytes: &good[..cut],
            }],
            apic_ids: &[0],
            ioapics: &[],
        };
        let block = build(0x10_0000, &facts);
        let (_, bytes) = read_back(0x10_0000, &block);
        assert!(madt::parse(&bytes, limits()).is_some());
    }
    // An entry of length 0 or 1 ends the walk.
    for len in [0, 1] {
        let mut bad = good.clone();
        bad[45] = len;
        let facts = Facts {
            tables: &[HostTable {
                address: 0x1000,
                bytes: &bad,
            }],
            apic_ids: &[0],
            ioapics: &[],
        };
        let (_, bytes) = read_back(0, &build(0, &facts));
        assert!(madt::parse(&bytes, limits()).unwrap().overrides.is_empty());
    }
}
