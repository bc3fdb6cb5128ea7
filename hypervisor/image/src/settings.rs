//! The command line's choices, put into the terms of the hardware layer.

use hv_core::options::{
    ApBringup, ApFault, Level, LogLevels, Options, Parity, Reboot, SerialSetup, Timestamps,
    Verbosity,
};
use hv_hw::log::levels::Threshold;
use hv_hw::log::stamp::Stamps;
use hv_hw::log::{self, uart::LineSettings};
use hv_hw::warn;
use hv_hw::x86::boot::console;
use hv_hw::x86::power::{self, ResetMethod};
use hv_hw::x86::{CpuOptions, apic, iommu, panic, smp, virt};

/// Opens the consoles. Before this, lines only went to the ring; they are replayed. Until [`limit_log`], the story of the
/// boot is told whatever `loglvl=` says, as Xen's banner is.
pub fn open_consoles(o: &Options) {
    panic::set_no_reboot(o.noreboot);
    choose_reset(o.reboot);
    let info = Threshold {
        always: 3,
        limited: 3,
    };
    let chosen = threshold(o.loglvl);
    let told = if chosen.always < info.always {
        info
    } else {
        chosen
    };
    log::set_levels(Some(told), Some(threshold(o.guest_loglvl)));
    log::set_stamps(match o.console_timestamps {
        Timestamps::None => Stamps::None,
        Timestamps::Date => Stamps::Date,
        Timestamps::DateMs => Stamps::DateMs,
        Timestamps::Boot => Stamps::Boot,
        Timestamps::Raw => Stamps::Raw,
    });
    for (wanted, name, setup) in [
        (o.console.com1, "com1", &o.com1),
        (o.console.com2, "com2", &o.com2),
    ] {
        if wanted && !console::add_serial(setup.io_base, line(setup)) && o.console.given {
            warn!(
                "console={name}: nothing answers at port {:#x}",
                setup.io_base
            );
        }
    }
    if o.console.vga && !console::add_screen() && o.console.given {
        warn!("console=vga: {}", console::NO_SCREEN);
    }
}

/// From here on, only what `loglvl=` lets through is printed.
pub fn limit_log(o: &Options) {
    log::set_levels(Some(threshold(o.loglvl)), None);
}

/// Levels up to and including the named one are printed.
fn threshold(l: LogLevels) -> Threshold {
    let count = |level: Level| match level {
        Level::None => 0,
        Level::Error => 1,
        Level::Warning => 2,
        Level::Info => 3,
        Level::Debug => 4,
    };
    Threshold {
        always: count(l.print),
        limited: count(l.limited),
    }
}

fn line(s: &SerialSetup) -> LineSettings {
    let parity = match s.parity {
        Parity::None => 0,
        Parity::Odd => 0x08,
        Parity::Even => 0x18,
        Parity::Mark => 0x28,
        Parity::Space => 0x38,
    };
    let stop = if s.stop_bits == 2 { 4 } else { 0 };
    LineSettings {
        divisor: s.divisor(),
        control: (s.data_bits - 5) | stop | parity,
    }
}

/// What the bring-up of CPUs must know.
pub fn cpus(o: &Options) -> CpuOptions {
    CpuOptions {
        apic: apic::ApicOptions {
            x2apic: o.x2apic,
            mode: o.x2apic_mode,
            phys: o.x2apic_phys,
        },
        smp: smp::SmpOptions {
            max_cpus: o.maxcpus,
            no_smp: o.nosmp,
            serial: o.ap_bringup == ApBringup::Serial,
            delays: o.ap_delays,
            ipi_bench: o.ipi_bench,
            no_siblings: o.smt == Some(false),
            faults: o.ap_fault.map(|f| f.map(|(id, what)| (id, fault(what)))),
        },
        assist: virt::Assist {
            xapic: o.apicv.xapic,
            x2apic: o.apicv.x2apic,
            registers: o.apicv.registers,
            delivery: o.apicv.delivery,
            post: o.apicv.post,
        },
        iommu: iommu::IommuOptions {
            on: o.iommu.on,
            required: o.iommu.required,
            intremap: o.iommu.intremap,
            intpost: o.iommu.intpost,
            qinval: o.iommu.qinval,
            verbose: o.iommu.verbosity >= Verbosity::Verbose,
            debug: o.iommu.verbosity >= Verbosity::Debug,
            ioapics: o.ivrs_ioapics.map(|s| s.map(|s| (s.id, s.source))),
        },
    }
}

fn fault(f: ApFault) -> smp::ApFault {
    match f {
        ApFault::Deaf => smp::ApFault::Deaf,
        ApFault::Hang => smp::ApFault::Hang,
        ApFault::Panic => smp::ApFault::Panic,
        ApFault::Late => smp::ApFault::Late,
    }
}

fn choose_reset(reboot: Reboot) {
    let method = match reboot {
        Reboot::Default => return,
        Reboot::No => ResetMethod::Halt,
        Reboot::Acpi => ResetMethod::Acpi,
        Reboot::Kbd => ResetMethod::Keyboard,
        Reboot::Triple => ResetMethod::TripleFault,
        Reboot::Pci => ResetMethod::Chipset,
        Reboot::Power => ResetMethod::PowerCycle,
        Reboot::Efi => {
            warn!(
                "reboot=efi: the firmware's service is not called yet, the default order is used"
            );
            return;
        }
    };
    power::prefer_reset(method);
}
