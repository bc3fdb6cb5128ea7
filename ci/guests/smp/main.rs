//! Do all processors of the MADT start, with the IDs that CPUID and the local APIC tell?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::boot::MAX_CPUS;
use guest_rt::hypercall::{Ret, vcpu_op};
use guest_rt::start::{command_line, read_phys, start_info_u32, start_info_u64};
use guest_rt::{acpi, check, cpu, fact, lapic, shared, smp, time};

guest_rt::entry!("smp", run);

const FIELDS: usize = 8;
static SEEN: [[AtomicU32; FIELDS]; MAX_CPUS] =
    [const { [const { AtomicU32::new(0) }; FIELDS] }; MAX_CPUS];

/// What a processor sees of itself: vCPU id, initial APIC ID, APIC ID, leaf 0xb ID, APIC base, version, SVR, LDR.
fn look() {
    let values = [
        cpu::cpuid(0x4000_0004, 0)[1],
        cpu::cpuid(1, 0)[1] >> 24,
        lapic::id(),
        cpu::cpuid(0xb, 0)[3],
        cpu::rdmsr(lapic::APIC_BASE) as u32,
        lapic::read(lapic::VERSION),
        lapic::read(lapic::SVR),
        cpu::cr4() as u32,
    ];
    for (slot, value) in SEEN[cpu::index()].iter().zip(values) {
        slot.store(value, Ordering::Release);
    }
}

fn run() {
    fact!("start-magic", "{:#x}", start_info_u32(0));
    fact!("start-version", "{}", start_info_u32(4));
    fact!("start-flags", "{:#x}", start_info_u32(8));
    fact!("start-modules", "{}", start_info_u32(12));
    fact!("command-line", "\"{}\"", command_line());
    check!(start_info_u64(32) != 0, "no RSDP in the start info");
    check!(
        start_info_u64(16) < 1 << 30 && start_info_u64(40) < 1 << 30,
        "tables above 1 GiB"
    );

    let rsdp = start_info_u64(32);
    fact!(
        "rsdp",
        "revision={} checksum={} extended={}",
        read_phys::<u8>(rsdp + 15),
        acpi::checksum(rsdp, 20),
        acpi::checksum(rsdp, 36)
    );
    let name = read_phys::<[u8; 4]>(read_phys::<u64>(rsdp + 24));
    fact!(
        "xsdt-signature",
        "{}",
        core::str::from_utf8(&name).unwrap_or("not text")
    );
    let sound = acpi::for_each_table(|signature, at, len| {
        let name = core::str::from_utf8(&signature).unwrap_or("????");
        fact!(("table-{name}"), "checksum={}", acpi::checksum(at, len));
    });
    check!(sound, "no sound RSDP and XSDT");
    let Some(madt) = acpi::madt() else {
        check!(false, "no sound MADT");
        return;
    };
    fact!(
        "madt",
        "lapic={:#x} flags={:#x} others={}",
        madt.lapic_address,
        madt.flags,
        madt.others
    );
    check!(
        madt.flags & 1 == 0,
        "PCAT_COMPAT is set: Linux would look for a PIC"
    );
    for (i, p) in madt.processors[..madt.count].iter().enumerate() {
        fact!(
            ("madt-cpu-{i}"),
            "uid={} apic={} flags={:#x} x2apic={}",
            p.uid,
            p.apic_id,
            p.flags,
            p.x2apic
        );
    }
    for (id, address, gsi) in &madt.ioapics[..madt.ioapic_count] {
        fact!("madt-ioapic", "id={id} address={address:#x} gsi={gsi}");
    }
    for (bus, source, gsi, flags) in &madt.overrides[..madt.override_count] {
        fact!(
            "madt-override",
            "bus={bus} source={source} gsi={gsi} flags={flags:#x}"
        );
    }

    shared::init();
    time::calibrate();
    for vcpu in 0..madt.count as u64 {
        fact!(("is-up-before-{vcpu}"), "{}", vcpu_op(3, vcpu, &mut 0u64));
    }
    let count = smp::start_all();
    check!(
        count == madt.count,
        "{count} of {} processors started",
        madt.count
    );
    fact!("started", "{count}");
    look();
    for index in 1..count {
        check!(
            smp::run_on(index, look),
            "processor {index} does not finish"
        );
    }
    for (index, seen) in SEEN[..count].iter().enumerate() {
        let [vcpu, initial, apic, leaf_b, base, version, svr, cr4] =
            seen.each_ref().map(|slot| slot.load(Ordering::Acquire));
        fact!(
            ("cpu-{index}"),
            "vcpu={vcpu} initial={initial} apic={apic} leaf-b={leaf_b} base={base:#x} version={version:#x} svr={svr:#x} cr4={cr4:#x}"
        );
        check!(
            initial == apic,
            "CPUID says APIC ID {initial}, the APIC says {apic}"
        );
        let listed = madt.processors.iter().find(|p| p.apic_id == apic);
        check!(
            listed.is_some_and(|p| p.uid == vcpu),
            "MADT does not list vCPU {vcpu} with APIC ID {apic}"
        );
    }
    for vcpu in 0..=count as u64 {
        fact!(("is-up-{vcpu}"), "{}", vcpu_op(3, vcpu, &mut 0u64));
    }
    down_and_up(count);
}

/// A processor that halts with interrupts off is down, and INIT-SIPI brings it back.
fn down_and_up(count: usize) {
    if count < 2 {
        fact!("restart", "skipped");
        return;
    }
    smp::start_on(1, || cpu::down());
    let gone = time::wait_ms(2000, || vcpu_op(3, 1, &mut 0u64) == Ret(0));
    check!(gone, "a processor halted for ever still counts as up");
    let again = smp::restart(1);
    check!(again, "INIT-SIPI does not restart a halted processor");
    fact!(
        "restart",
        "down={gone} up={again} is-up={}",
        vcpu_op(3, 1, &mut 0u64)
    );
    // INIT alone stops a running processor.
    lapic::send(smp::apic_id(1), 0xc500);
    time::wait_ms(1000, || vcpu_op(3, 1, &mut 0u64) == Ret(0));
    fact!("is-up-after-init", "{}", vcpu_op(3, 1, &mut 0u64));
    check!(
        smp::restart(1),
        "INIT-SIPI does not restart a processor in INIT"
    );
}
