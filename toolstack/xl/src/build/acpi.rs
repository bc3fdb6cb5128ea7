//! ACPI tables of a PVH guest: as few as Linux needs to find its CPUs and to know that there is nothing else.
//!
//! The facts are those of Xen's toolstack (OEM names, port numbers, interrupt), with two differences: there is no block of
//! general-purpose events, since nothing answers at its ports, and every possible vCPU is enabled in the MADT. Linux takes
//! those offline that xenstore says are (`cpu/N/availability`), and knows the APIC ID of all when they come.

use x86_model::policy::topology::apic_id;

/// The tables but the root pointer.
pub struct Tables {
    /// They follow each other.
    pub bytes: Vec<u8>,
    /// Address of the XSDT.
    pub xsdt: u64,
}

const HEADER: usize = 36;
const LOCAL_APIC: u32 = 0xfee0_0000;
/// 8259 interrupt controllers may be there (they are not, but Linux then keeps its legacy interrupts in order).
const PCAT_COMPAT: u32 = 1;
const PM1A_EVENT: u32 = 0xb000;
const PM1A_CONTROL: u32 = 0xb004;
const SCI: u16 = 9;

/// Tables at an address (a multiple of 64).
pub fn tables(base: u64, vcpus: u32) -> Tables {
    let mut bytes = vec![0u8; 64];
    // FACS: must be aligned to 64 bytes, so it comes first. It has no checksum.
    bytes[..4].copy_from_slice(b"FACS");
    bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
    bytes[32] = 1;
    let mut put = |table: Vec<u8>| {
        let at = bytes.len().next_multiple_of(16);
        bytes.resize(at, 0);
        bytes.extend(table);
        base + at as u64
    };
    let dsdt = put(dsdt(vcpus));
    let fadt = put(fadt(base, dsdt));
    let madt = put(madt(vcpus));
    let mut xsdt = header(b"XSDT", 1);
    for table in [fadt, madt] {
        xsdt.extend(table.to_le_bytes());
    }
    let xsdt = put(seal(xsdt));
    Tables { bytes, xsdt }
}

/// The root pointer, revision 2.
pub fn rsdp(xsdt: u64) -> Vec<u8> {
    let mut out = b"RSD PTR \0Xen\0\0\0\x02".to_vec();
    out.extend([0; 4]);
    out.extend(36u32.to_le_bytes());
    out.extend(xsdt.to_le_bytes());
    out.extend([0; 4]);
    out[8] = negative_sum(&out[..20]);
    out[32] = negative_sum(&out);
    out
}

fn fadt(facs: u64, dsdt: u64) -> Vec<u8> {
    let mut t = header(b"FACP", 5);
    t.resize(268, 0);
    let mut put = |at: usize, bytes: &[u8]| t[at..at + bytes.len()].copy_from_slice(bytes);
    put(36, &(facs as u32).to_le_bytes());
    put(40, &(dsdt as u32).to_le_bytes());
    put(46, &SCI.to_le_bytes());
    put(56, &PM1A_EVENT.to_le_bytes());
    put(64, &PM1A_CONTROL.to_le_bytes());
    // Lengths of the two.
    put(88, &[4, 2]);
    // C2 and C3 do not exist.
    put(96, &0xffffu16.to_le_bytes());
    put(98, &0xffffu16.to_le_bytes());
    // No VGA, no RTC in CMOS; bit 1, a keyboard controller, is clear.
    put(109, &(1u16 << 2 | 1 << 5).to_le_bytes());
    // WBINVD works, C1 works everywhere; power and sleep are no fixed buttons.
    put(112, &(1u32 << 0 | 1 << 2 | 1 << 4 | 1 << 5).to_le_bytes());
    put(132, &facs.to_le_bytes());
    put(140, &dsdt.to_le_bytes());
    put(148, &io_register(PM1A_EVENT, 32));
    put(172, &io_register(PM1A_CONTROL, 16));
    seal(t)
}

/// A register in the I/O space.
fn io_register(port: u32, bits: u8) -> [u8; 12] {
    let mut out = [1, bits, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    out[4..8].copy_from_slice(&port.to_le_bytes());
    out
}

fn madt(vcpus: u32) -> Vec<u8> {
    let mut t = header(b"APIC", 4);
    t.extend(LOCAL_APIC.to_le_bytes());
    t.extend(PCAT_COMPAT.to_le_bytes());
    // All entries have one form: Linux ignores x2APIC entries below 255 beside old ones.
    let small = (0..vcpus).all(|v| apic_id(v) < 255);
    for vcpu in 0..vcpus {
        if small {
            t.extend([0, 8, vcpu as u8, apic_id(vcpu) as u8, 1, 0, 0, 0]);
        } else {
            t.extend([9, 16, 0, 0]);
            for word in [apic_id(vcpu), 1, vcpu] {
                t.extend(word.to_le_bytes());
            }
        }
    }
    seal(t)
}

/// A device object for every vCPU: `Device (PRxx) { Name (_HID, "ACPI0007") Name (_UID, xx) }` in `\_SB`.
fn dsdt(vcpus: u32) -> Vec<u8> {
    let mut devices = Vec::new();
    for vcpu in 0..vcpus {
        let mut device = format!("P{vcpu:03X}").into_bytes();
        device.extend(b"\x08_HID\x0dACPI0007\0");
        // A name with a double word.
        device.extend(b"\x08_UID\x0c");
        device.extend(vcpu.to_le_bytes());
        devices.extend([0x5b, 0x82]);
        devices.extend(with_length(device));
    }
    let mut scope = b"\\_SB_".to_vec();
    scope.extend(devices);
    let mut t = header(b"DSDT", 2);
    t.push(0x10);
    t.extend(with_length(scope));
    seal(t)
}

/// An AML package: its length, itself included, before it.
fn with_length(contents: Vec<u8>) -> Vec<u8> {
    let mut out = match contents.len() {
        n @ 0..=62 => vec![n as u8 + 1],
        n @ 63..=4093 => {
            let n = n + 2;
            vec![0x40 | (n & 15) as u8, (n >> 4) as u8]
        }
        n => {
            let n = n + 3;
            vec![0x80 | (n & 15) as u8, (n >> 4) as u8, (n >> 12) as u8]
        }
    };
    out.extend(contents);
    out
}

fn header(signature: &[u8; 4], revision: u8) -> Vec<u8> {
    let mut out = signature.to_vec();
    out.extend([0, 0, 0, 0, revision, 0]);
    out.extend(b"Xen\0\0\0HVM\0\0\0\0\0\0\0\0\0HVML\0\0\0\0");
    debug_assert_eq!(out.len(), HEADER);
    out
}

fn seal(mut table: Vec<u8>) -> Vec<u8> {
    let len = table.len() as u32;
    table[4..8].copy_from_slice(&len.to_le_bytes());
    table[9] = negative_sum(&table);
    table
}

fn negative_sum(bytes: &[u8]) -> u8 {
    let sum = bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    sum.wrapping_neg()
}
