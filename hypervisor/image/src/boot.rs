//! What happens between the loader and the first domain, line by line.

use alloc::string::ToString;
use alloc::vec::Vec;

use hv_core::dom0::acpi::{HostTable, IoApic};
use hv_core::dom0::build::{self, BootModule, Dom0Plan, Input};
use hv_core::dom0::memory::HostMemory;
use hv_core::dom0::start::{self, Choices, Loaded};
use hv_core::heartbeat::Heartbeat;
use hv_core::hvm::platform::PortFacts;
use hv_core::hypervisor::{Hypervisor, Identity};
use hv_core::options::{self, Build, Options};
use hv_core::sched::Scheduler;
use hv_core::vcpu::run::cpu_loop;
use hv_hw::bootinfo::BootInfo;
use hv_hw::bootinfo::memmap::Range;
use hv_hw::machine::CpuId;
use hv_hw::mem::{frames, heap::Heap};
use hv_hw::x86::panic::boot_error;
use hv_hw::x86::{self, Metal, acpi, boot, cpu};
use hv_hw::{Machine, info, warn};
use x86_model::PAGE_SIZE;
use x86_model::acpi::config_windows;
use x86_model::policy::topology::apic_id;

use crate::settings;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// The system, for the CPUs that enter later.
static HYPERVISOR: spin::Once<Hypervisor> = spin::Once::new();

/// Called once by the entry stub, on the boot CPU's stack, in long mode, with what the loader passed in EAX and EBX.
// SAFETY: the symbol is unique, and only the entry stub calls it.
#[unsafe(no_mangle)]
extern "C" fn xenolith_main(magic: u32, info: u32) -> ! {
    cpu::early_init();
    let info = boot::start(magic, info);
    boot::init_memory(info);
    let (options, warnings) = Build::THIS.options(info.command_line.as_bytes());
    settings::open_consoles(&options);
    banner(info, &options);
    for w in &warnings {
        warn!("{w}");
    }
    let cpus = settings::cpus(&options);
    let metal = x86::bring_up(info, &cpus).unwrap_or_else(|why| boot_error(format_args!("{why}")));
    x86::start_aps(&cpus.smp);
    let hv = HYPERVISOR.call_once(|| hypervisor(metal, info, &options));
    let loaded = load_dom0(hv, info, &options);
    let choices = Choices {
        vcpus: options.dom0_max_vcpus.resolve(hv.hw.online_cpus()),
        pin: options.dom0_vcpus_pin,
        ports: PortFacts {
            pm_timer: acpi::fadt()
                .and_then(|f| f.pm_timer)
                .map_or(0, |p| p.address as u16),
        },
        pirqs: options.dom0.hvm_pirq,
        windows: acpi::table(b"MCFG").map_or_else(Vec::new, |t| config_windows(&t.bytes).collect()),
    };
    if let Err(e) = start::start(hv, &loaded, &choices) {
        boot_error(format_args!("dom0 cannot be made: {e:?}"));
    }
    if options.trace.pages != 0 {
        let made = hv.trace_from_boot(options.trace.pages, options.trace.events);
        match made {
            Ok(()) => info!(
                "Trace buffers: {} pages a CPU, events {:#x} from now on",
                options.trace.pages, options.trace.events
            ),
            Err(e) => warn!("no trace buffers (tbuf_size): {e:?}"),
        }
    } else if options.trace.events != 0 {
        warn!("tevt_mask without tbuf_size: there are no buffers to record events in");
    }
    free_modules(info);
    info!("{} MiB free for guests", frames::free_frames() >> 8);
    hv.start_input(options.conswitch);
    settings::limit_log(&options);
    if !options.vga.keep {
        hv_hw::log::release_display();
    }
    x86::smp::enter(other_cpu);
    cpu_loop(hv, CpuId(0))
}

fn other_cpu(cpu: CpuId) -> ! {
    match HYPERVISOR.get() {
        Some(hv) => cpu_loop(hv, cpu),
        None => panic!("CPU {} came before the hypervisor was made", cpu.0),
    }
}

fn banner(info: &BootInfo, options: &Options) {
    let origin = boot::origin();
    if !origin.changeset.is_empty() {
        info!(
            "Latest ChangeSet: {}, by {}",
            origin.changeset, origin.compiler
        );
    }
    info!(
        "Presenting the interface of Xen {}.{}",
        options.xen_version.0, options.xen_version.1
    );
    info!("Console ring: {} KiB", hv_hw::log::RING >> 10);
    info!("Memory map:");
    for r in &info.regions {
        info!(
            "  [{:#014x}-{:#014x}] {:?}",
            r.base,
            r.base.wrapping_add(r.len).wrapping_sub(1),
            r.kind
        );
    }
}

fn hypervisor(metal: Metal, info: &BootInfo, options: &Options) -> Hypervisor {
    let cpus = metal.cpu_count();
    let slice_ns = u64::from(options.sched_tslice_ms.unwrap_or(10)) * 1_000_000;
    let name = match options.sched {
        options::Scheduler::Credit2 => "credit2",
        options::Scheduler::Null => "null",
    };
    let sched = Scheduler::by_name(name, cpus, slice_ns)
        .unwrap_or_else(|| panic!("scheduler {name} is not built in"));
    sched.with(|p| info!("Using scheduler: {}", p.name()));
    let told = |text: &str| if text.is_empty() { "unknown" } else { text }.to_string();
    let origin = boot::origin();
    let identity = Identity {
        major: options.xen_version.0,
        minor: options.xen_version.1,
        extra: ".0-xenolith".to_string(),
        // By whom and where is nobody's business, and would make each build differ.
        compile: [told(origin.compiler), told(""), told(""), told(origin.date)],
        changeset: told(origin.changeset),
        build_id: boot::build_id().to_vec(),
        command_line: info.command_line.to_string(),
        screen: info.screen,
        efi: info.efi_system_table.is_some(),
    };
    let mut hv = Hypervisor::new(metal, identity, sched, options.noreboot);
    hv.grant_limits = options.grants;
    hv.console_to_ring = options.console_to_ring;
    if options.watchdog.on {
        info!("Watchdog: {} s", options.watchdog.timeout_s);
        hv.heartbeat = Heartbeat::new(cpus, options.watchdog.timeout_s);
    }
    hv
}

/// Unpacks and places the kernel. Every reason not to is one line, and the end.
fn load_dom0(hv: &Hypervisor, info: &BootInfo, options: &Options) -> Loaded {
    let Some(kernel) = info.modules.first() else {
        boot_error(format_args!(
            "no dom0 kernel: the boot loader passed no module (GRUB: add a module2 line after multiboot2)"
        ));
    };
    let Some(bytes) = boot::take_module(0) else {
        boot_error(format_args!(
            "the dom0 kernel's module is empty or not in RAM"
        ));
    };
    let module = |n: usize| {
        info.modules.get(n).map(|m| BootModule {
            range: Range {
                start: m.start,
                end: m.start + m.size,
            },
            command_line: info.module_line(m).as_bytes(),
        })
    };
    let tables: Vec<HostTable<'_>> = acpi::tables()
        .iter()
        .map(|t| HostTable {
            address: t.address.0,
            bytes: &t.bytes,
        })
        .collect();
    let table_ranges: Vec<Range> = tables
        .iter()
        .map(|t| Range {
            start: t.address,
            end: t.address + t.bytes.len() as u64,
        })
        .collect();
    let vcpus = options.dom0_max_vcpus.resolve(hv.hw.online_cpus());
    let apic_ids: Vec<u32> = (0..vcpus).map(apic_id).collect();
    let ioapics: Vec<IoApic> = hv
        .hw
        .ioapics()
        .iter()
        .map(|a| IoApic {
            id: a.id,
            address: a.address.0 as u32,
            gsi_base: a.gsi_base,
        })
        .collect();
    let before = hv.hw.now_ns();
    let elf = build::unpack(&bytes).unwrap_or_else(|e| boot_error(format_args!("{e}")));
    info!(
        "dom0 kernel: {} KiB, unpacked in {} ms",
        elf.len() >> 10,
        (hv.hw.now_ns() - before) / 1_000_000
    );
    // Taken after unpacking: the unpacked kernel must not be overwritten by what is loaded from it.
    let mut ours = Vec::new();
    frames::hypervisor_runs(|first, count| {
        let start = first.hpa().0;
        ours.push(Range {
            start,
            end: start + count as u64 * PAGE_SIZE,
        });
    });
    let input = Input {
        kernel: BootModule {
            range: Range {
                start: kernel.start,
                end: kernel.start + kernel.size,
            },
            command_line: info.module_line(kernel).as_bytes(),
        },
        kernel_bytes: &bytes,
        initrd: module(1),
        options,
        memory: HostMemory {
            regions: &info.regions,
            hypervisor: &ours,
            tables: &table_ranges,
        },
        tables: &tables,
        apic_ids: &apic_ids,
        ioapics: &ioapics,
    };
    let plan =
        Dom0Plan::with_kernel(&input, elf).unwrap_or_else(|e| boot_error(format_args!("{e}")));
    for w in &plan.warnings {
        warn!("{w}");
    }
    info!("{}", plan.summary());
    start::load(&plan).unwrap_or_else(|e| boot_error(format_args!("{e}")))
}

/// Modules were copied or are dom0's by now; what is left of them becomes free memory.
fn free_modules(info: &BootInfo) {
    for n in 1..info.modules.len() {
        drop(boot::take_module(n));
    }
}
