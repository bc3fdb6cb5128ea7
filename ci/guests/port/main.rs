//! What does the guest read from ports, and from memory that is not RAM?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::cpu::{in8, in16, in32, out8, out32};
use guest_rt::{Page, check, fact};

guest_rt::entry!("port", run);

fn run() {
    for port in [
        0x00u16, 0x08, 0x20, 0x21, 0x40, 0x41, 0x42, 0x43, 0x60, 0x61, 0x64, 0x70, 0x80, 0x92,
        0xa0, 0xa1, 0xb2, 0xc0, 0xe9, 0xed, 0xf0, 0x2f8, 0x3b0, 0x3f8, 0x3fd, 0x4d0, 0x4d1, 0x510,
        0x5ff, 0xcf8, 0xcf9, 0xcfb, 0xcfc, 0xcff, 0x1234, 0xfffe, 0xffff,
    ] {
        fact!(("in8-{port:#x}"), "{:#x}", in8(port));
    }
    for port in [0x20u16, 0x40, 0xcf8, 0xcfc, 0xcfe, 0x1234] {
        fact!(("in16-{port:#x}"), "{:#x}", in16(port));
    }
    for port in [0x20u16, 0x40, 0x604, 0x1234] {
        fact!(("in32-{port:#x}"), "{:#x}", in32(port));
    }
    fact!("in32-0xcf8", "{:#x}", in32(0xcf8));

    // No interrupt controller: what is written to its mask does not come back.
    out8(0x21, 0xfb);
    let mask = in8(0x21);
    fact!("pic-mask", "{mask:#x}");
    check!(mask != 0xfb, "there is a PIC, which PVH must not have");
    out8(0x43, 0x34);
    out8(0x40, 0x10);
    out8(0x40, 0x27);
    fact!("pit-count", "{:#x}", in8(0x40));

    // CMOS: index and data are kept together; the century of the clock is sane.
    out8(0x70, 0x0d);
    fact!("cmos-valid-ram", "{}", in8(0x71) & 0x80 != 0);
    out8(0x70, 0x0f);
    let old = in8(0x71);
    out8(0x70, 0x0f);
    out8(0x71, 0x0a);
    out8(0x70, 0x0f);
    fact!("cmos-shutdown-byte", "{:#x}", in8(0x71));
    out8(0x70, 0x0f);
    out8(0x71, old);

    pci();
    memory();
}

fn config(bus: u32, device: u32, function: u32, register: u32) -> u32 {
    out32(
        0xcf8,
        1 << 31 | bus << 16 | device << 11 | function << 8 | register,
    );
    in32(0xcfc)
}

fn pci() {
    for device in [0u32, 1, 2, 3, 31] {
        fact!(("pci-00.{device:02x}"), "{:#x}", config(0, device, 0, 0));
    }
    let host = config(0, 0, 0, 0);
    fact!("pci-address-latched", "{:#x}", in32(0xcf8));
    out8(0xcf8, 0x12);
    fact!("pci-address-byte-write", "{:#x}", in32(0xcf8));
    let _ = config(0, 0, 0, 0);
    check!(
        u32::from(in8(0xcfd)) == host >> 8 & 0xff,
        "byte access to configuration differs"
    );
    check!(
        u32::from(in16(0xcfe)) == host >> 16,
        "half-word access to configuration differs"
    );
    out32(0xcf8, 0);
    fact!("pci-disabled", "{:#x}", in32(0xcfc));
    fact!("pci-no-bus", "{:#x}", config(0x77, 0, 0, 0));
    fact!("pci-isa-bridge-class", "{:#x}", config(0, 31, 0, 8));
}

fn memory() {
    for (name, address) in [
        ("hole", HOLE + 0x800_0000),
        ("ioapic", 0xfec0_0000),
        ("hpet", 0xfed0_0000),
        ("apic-gap", 0xfee0_1000),
        ("bios", 0xffff_f000),
        ("vga-rom", 0xc_0000),
    ] {
        let page = Page::at(address);
        let value = page.u32(0).load(Ordering::Acquire);
        match name {
            // Firmware bytes are the machine's business.
            "bios" | "vga-rom" => fact!(
                ("read-{name}"),
                "{}",
                if value == u32::MAX { "ones" } else { "data" }
            ),
            _ => fact!(("read-{name}"), "{value:#x}"),
        }
    }
    let ioapic = Page::at(0xfec0_0000);
    for register in [0u32, 1, 2, 0x10, 0x11] {
        ioapic.u32(0).store(register, Ordering::Release);
        fact!(
            ("ioapic-{register:#x}"),
            "{:#x}",
            ioapic.u32(0x10).load(Ordering::Acquire)
        );
    }
    ioapic.u32(0).store(0x10, Ordering::Release);
    ioapic.u32(0x10).store(0x1_a9ff, Ordering::Release);
    fact!(
        "ioapic-rte-write",
        "{:#x}",
        ioapic.u32(0x10).load(Ordering::Acquire)
    );
    // Writes to nothing vanish.
    let hole = Page::at(HOLE + 0x800_0000);
    hole.u32(0).store(0x1234, Ordering::Release);
    fact!("write-hole", "{:#x}", hole.u32(0).load(Ordering::Acquire));
}
