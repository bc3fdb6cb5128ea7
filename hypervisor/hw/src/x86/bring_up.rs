//! The boot CPU's way from paging to a working [`Metal`], in order.

use alloc::vec::Vec;

use x86_model::Hpa;
use x86_model::acpi::load::Memory;
use x86_model::acpi::madt::Limits;

use super::apic::{ApicOptions, Surroundings, ioapic, legacy, vectors};
use super::cpu::percpu::{self, PerCpu};
use super::cpu::{features, nmi, stacks};
use super::iommu::{self, IommuOptions};
use super::smp::SmpOptions;
use super::time::References;
use super::virt::{self, Backend};
use super::{Metal, acpi, apic, paging, panic, power, quirks, time};
use crate::bootinfo::BootInfo;
use crate::{info, log, warn};

/// What the command line says about CPUs and their interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Local APIC.
    pub apic: ApicOptions,
    /// Other CPUs.
    pub smp: SmpOptions,
    /// What the processor may do for guests' local APICs.
    pub assist: virt::Assist,
    /// I/O memory management units.
    pub iommu: IommuOptions,
}

static BACKEND: spin::Once<Backend> = spin::Once::new();

/// Turns virtualization on for the calling CPU, as [`bring_up`] did on the boot CPU.
pub(super) fn enable_virtualization() -> Result<(), &'static str> {
    BACKEND
        .get()
        .ok_or("no virtualization was found")?
        .enable_this_cpu()
}

/// Makes what virtualization needs for a CPU that has not started.
pub(super) fn prepare_virtualization(cpu: &PerCpu) -> Result<(), &'static str> {
    BACKEND
        .get()
        .ok_or("no virtualization was found")?
        .prepare(cpu)
}

/// Reads tables through the paging code's map.
struct Firmware;

impl Memory for Firmware {
    fn read(&mut self, address: Hpa, length: usize) -> Option<Vec<u8>> {
        let from = paging::map_firmware(address, length as u64)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        // SAFETY: the mapping covers `length` bytes of firmware memory, which only the firmware could change.
        bytes.extend((0..length).map(|i| unsafe { from.add(i).read_volatile() }));
        Some(bytes)
    }
}

/// Brings up ACPI, local APIC, clock, timer, IO-APICs and virtualization on the boot CPU. After memory, once.
/// [`super::cpu::early_init`] was called before. The error is a sentence for the administrator.
pub fn bring_up(boot: &BootInfo, options: &CpuOptions) -> Result<Metal, &'static str> {
    let f = features::get();
    info!(
        "CPU: {} family {:#x} model {:#x} stepping {}, {} address bits",
        f.vendor.escape_ascii(),
        f.family,
        f.model,
        f.stepping,
        f.phys_bits
    );
    panic::set_hooks(panic::Hooks {
        slot: || percpu::this().slot(),
        name: |f| core::fmt::Display::fmt(&percpu::Name(percpu::this()), f),
        stop_here: nmi::stop_here,
        stop_others: power::stop_others,
        delay_us: time::spin_us,
        end: power::end,
    });
    quirks::detect();
    #[cfg(CONFIG_DEBUG_LOCKS)]
    {
        assert!(
            crate::sync::self_test(),
            "the check of the lock order does not work"
        );
        info!("The order of locks is checked");
    }
    acpi::init(&boot.rsdp, &mut Firmware);
    quirks::detect_by_tables();
    legacy::mask();
    let page = |hpa: Hpa| paging::map_mmio(hpa, 4096);
    let fadt = acpi::fadt();
    let (cpus, highest_id) = acpi::population().unwrap_or((1, features::initial_apic_id()));
    // The pins are masked before remapping starts, and remapping starts before anything is routed or a CPU uses an APIC
    // ID that only remapped interrupts can name.
    for entry in acpi::ioapics() {
        ioapic::add(entry.id, Hpa(entry.address.into()), entry.gsi_base, page);
    }
    let opt_out = iommu::asks_for_xapic();
    let x2apic = apic::will_be_x2apic(&options.apic, opt_out);
    iommu::init(&options.iommu, &ioapic::list(), cpus, x2apic)?;
    let around = Surroundings {
        remapping: iommu::interrupt_remapping(),
        opt_out,
        fadt_physical: fadt.is_some_and(|f| f.apic_physical),
        fadt_cluster: fadt.is_some_and(|f| f.apic_cluster),
        cpus,
        highest_id,
    };
    let first_unreachable = apic::init(options.apic, &around, page)?;
    if apic::driver().x2apic() != x2apic && iommu::active() {
        return Err("the local APICs' mode is not the one that interrupt remapping was set up for");
    }
    let block = percpu::this();
    block.set_apic_id(apic::hardware_id());
    apic::enlist(block);
    if !stacks::give_guarded(block, 0) {
        return Err("not enough memory for the boot CPU's trap stacks");
    }

    let references = References {
        hpet: acpi::hpet().and_then(|a| paging::map_mmio(a, 0x400)),
        pm_timer: fadt.and_then(|f| Some((f.pm_timer?, f.pm_timer_32))),
    };
    time::init(
        &references,
        fadt.map_or(0, |f| f.century),
        fadt.is_none_or(|f| !f.no_cmos),
    );
    log::set_clock(time::now_ns);
    log::set_wall_clock(time::wall_now);
    time::init_timer();

    match acpi::read_madt(Limits {
        boot_apic_id: block.apic_id(),
        first_unreachable,
    }) {
        Some(madt) => match madt.cpus.iter().find(|c| c.apic_id == block.apic_id()) {
            Some(me) => block.set_acpi_uid(me.uid),
            None => warn!(
                "The MADT does not list the boot CPU (APIC ID {:#x})",
                block.apic_id()
            ),
        },
        None => warn!("No MADT: one CPU, no IO-APIC"),
    }
    iommu::arm_faults(block);
    console_interrupt(block);

    let backend = virt::detect(options.assist)?;
    backend.enable_this_cpu()?;
    info!("{}", backend.describe());
    BACKEND.call_once(|| backend);
    Ok(Metal::new(backend))
}

/// Gives the serial consoles their interrupt on the boot CPU, so that typed input is noticed.
fn console_interrupt(cpu: &PerCpu) {
    for (port, isa) in [(0x3f8, 4), (0x2f8, 3), (0x3e8, 4), (0x2e8, 3)] {
        if !log::owns_port(port) {
            continue;
        }
        let (gsi, mode) = acpi::isa_line(isa);
        if ioapic::claim(gsi, cpu, vectors::CONSOLE, mode) {
            log::enable_input_interrupt();
        } else {
            warn!("No interrupt for the serial console at port {port:#x}: no input from it");
        }
    }
}
