//! From a plan to a running domain: carries the plan out, gives dom0 its frames, maps them, sets the first vCPU.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hv_hw::bootinfo::memmap::{Kind, Range, Region};
use hv_hw::mem::{FrameRef, build, frames};
use hv_hw::{Machine, info};
use x86_model::acpi::ConfigWindow;
use x86_model::{Gfn, Gpa, Hpa, Mfn, PAGE_SIZE};
use xen_abi::domctl::emu;
use xen_abi::{DomId, Errno};

use super::Dom0Error;
use super::build::{Dom0Plan, PhysWriter};
use crate::domain::{CpuPolicy, Domain, DomainConfig, DomainSetup, MemoryRange};
use crate::hvm::platform::{self, Platform, PortFacts};
use crate::hypervisor::Hypervisor;
use crate::irq::pirq::Pirqs;
use crate::p2m::{P2m, PageType};
use crate::sched::{CpuMask, Params};
use crate::vcpu::boot_state;

/// What is left to say when the plan is made.
#[derive(Clone, Debug)]
pub struct Choices {
    /// vCPUs.
    pub vcpus: u32,
    /// Pin vCPU n to pCPU n.
    pub pin: bool,
    /// Fixed ports of the host.
    pub ports: PortFacts,
    /// PCI configuration windows of the host.
    pub windows: Vec<ConfigWindow>,
    /// dom0 may have interrupts as event channels.
    pub pirqs: bool,
}

/// What a carried-out plan leaves behind; the plan itself, with the unpacked kernel, can be dropped.
#[derive(Clone, Debug)]
pub struct Loaded {
    map: Vec<Region>,
    ram: Vec<Range>,
    /// Memory that is not dom0's to give up and that it does not count: the ACPI tables, and the first page, which Linux
    /// leaves to the firmware. A toolstack that waits for dom0 to balloon down compares the two counts to the page.
    apart: Vec<Range>,
    entry: u64,
    start_info: u64,
    max_pages: u64,
}

struct Writer;

impl PhysWriter for Writer {
    fn copy(&mut self, from: Hpa, to: Hpa, len: u64) -> bool {
        build::copy(from, to, len)
    }
    fn write(&mut self, to: Hpa, bytes: &[u8]) -> bool {
        build::write(to, bytes)
    }
    fn zero(&mut self, to: Hpa, len: u64) -> bool {
        build::zero(to, len)
    }
}

/// Writes kernel, RAM disk and tables to their places. Boot CPU, before any vCPU exists.
pub fn load(plan: &Dom0Plan<'_>) -> Result<Loaded, Dom0Error> {
    plan.load(&mut Writer)?;
    let mut ram: Vec<Range> = plan.memory.ram().collect();
    // The tables were taken out of RAM in the map but are RAM all the same.
    if !plan.placement.tables.is_empty() {
        ram.push(plan.placement.tables);
        ram.sort_by_key(|r| r.start);
    }
    let mut apart: Vec<Range> = Vec::new();
    apart.extend(ram.first().filter(|r| r.start == 0).map(|_| Range {
        start: 0,
        end: PAGE_SIZE,
    }));
    apart.extend(Some(plan.placement.tables).filter(|t| !t.is_empty()));
    let count = |ranges: &[Range]| ranges.iter().map(|r| r.len() / PAGE_SIZE).sum::<u64>();
    let pages = count(&ram) - count(&apart);
    Ok(Loaded {
        map: plan.memory.map.clone(),
        ram,
        apart,
        entry: plan.entry,
        start_info: plan.placement.block.start,
        max_pages: plan
            .memory
            .max_bytes
            .map_or(pages, |b| pages.max(b / PAGE_SIZE)),
    })
}

/// E820 number of a kind.
fn e820(kind: Kind) -> u32 {
    match kind {
        Kind::Ram => 1,
        Kind::AcpiReclaim => 3,
        Kind::AcpiNvs => 4,
        Kind::Bad => 5,
        _ => 2,
    }
}

/// Makes the domain of loaded contents and adds it to the system, ready to be scheduled.
pub fn start(hv: &Hypervisor, loaded: &Loaded, choices: &Choices) -> Result<Arc<Domain>, Errno> {
    let id = DomId::DOM0;
    let identity = loaded
        .ram
        .iter()
        .map(|r| r.start / PAGE_SIZE..r.end / PAGE_SIZE)
        .collect();
    let p2m = P2m::new(id, hv.hw.stage2_format(), hv.hw.phys_bits(), identity)?;
    // 1 GiB pages where the processor has them (CPUID 8000_0001h EDX bit 26).
    let huge = hv.hw.cpuid(0x8000_0001, 0)[3] & 1 << 26 != 0;
    let orders: &[u8] = if huge { &[18, 9, 0] } else { &[9, 0] };
    for r in &loaded.ram {
        give(&p2m, *r, &loaded.apart, id, orders)?;
    }
    // Display memory and firmware below 1 MiB; the rest of device memory is mapped on first touch.
    for gfn in 0xa0..0x100 {
        if p2m.page_type(Gfn(gfn)).is_none() {
            p2m.map_mmio(Gfn(gfn), 0)?;
        }
    }
    let memory_map = loaded
        .map
        .iter()
        .map(|r| MemoryRange {
            start: Gpa(r.base),
            len: r.len,
            ty: e820(r.kind),
        })
        .collect();
    let version = (hv.identity.major, hv.identity.minor);
    let ioapics = hv.hw.ioapics();
    let platform = Platform::new(&ioapics, choices.windows.clone(), &hv.hw.own_functions());
    let mut emulation = emu::LAPIC | emu::IOAPIC | emu::VPCI;
    let pirqs = choices.pirqs.then(|| {
        let lines = ioapics.iter().map(|a| a.gsi_base + a.pins).max();
        Pirqs::new(lines.unwrap_or(0))
    });
    if pirqs.is_some() {
        emulation |= emu::USE_PIRQ;
    }
    let setup = DomainSetup {
        id,
        privileged: true,
        handle: [0; 16],
        memory_map,
        max_pages: loaded.max_pages,
        vcpus: choices.vcpus,
        config: DomainConfig {
            emulation,
            grants: hv.grant_limits,
            ..Default::default()
        },
        cpu: CpuPolicy::new(&hv.hw, id, choices.vcpus, version, true),
        io_bitmap: Some(platform::io_bitmap(&hv.hw, choices.ports)),
        platform: Some(platform),
        pirqs,
    };
    let domain = Domain::new(&hv.hw, setup, p2m)?;
    domain.make_vcpus(&hv.hw, u32::MAX)?;
    domain.publish_wallclock(hv.wallclock());
    for v in domain.vcpus() {
        let hard = if choices.pin {
            CpuMask::single(hv_hw::machine::CpuId(v.key.vcpu % hv.hw.online_cpus()))
        } else {
            CpuMask::ALL
        };
        hv.sched
            .with(|p| p.insert(v.key, Params { weight: 256, hard }));
    }
    let first = domain.vcpu(0).ok_or(Errno::EINVAL)?;
    if let Some(mut local) = first.local.try_lock() {
        let entry = u32::try_from(loaded.entry).map_err(|_| Errno::EINVAL)?;
        boot_state::pvh_entry(&mut local, entry, Gpa(loaded.start_info));
        local.started = true;
    }
    hv.add_domain(domain.clone())?;
    if let Some(p) = &domain.platform {
        info!("PCI: {} functions", p.scan_pci(hv, &domain));
    }
    first.initialised.store(true, Ordering::SeqCst);
    first.up.store(true, Ordering::SeqCst);
    info!(
        "dom0: {} MiB of RAM, {} vCPUs",
        domain.p2m.pages() >> 8,
        choices.vcpus
    );
    hv.make_runnable(first);
    Ok(domain)
}

/// Claims a range of RAM for dom0 and maps it at its own address, in pages as large as fit; what is `apart` as pages that
/// do not count as its RAM.
fn give(p2m: &P2m, range: Range, apart: &[Range], id: DomId, orders: &[u8]) -> Result<(), Errno> {
    let (mut at, end) = (range.start / PAGE_SIZE, range.end / PAGE_SIZE);
    let taken = frames::claim_for_guest(Mfn(at), (end - at) as usize, id);
    if taken as u64 != end - at {
        // A frame of the hypervisor inside dom0's RAM would be ours to lose.
        return Err(Errno::EBUSY);
    }
    while at < end {
        let meets = |order: u8| {
            let (first, behind) = (at * PAGE_SIZE, (at + (1 << order)) * PAGE_SIZE);
            apart.iter().any(|a| a.start < behind && a.end > first)
        };
        let fits = |&o: &u8| at & ((1 << o) - 1) == 0 && at + (1 << o) <= end && !meets(o);
        let order = orders.iter().copied().find(fits).unwrap_or(0);
        if meets(order) {
            p2m.map(Gfn(at), FrameRef::from_raw(Mfn(at)), PageType::Shared, true)?;
        } else {
            p2m.map_identity_ram(Gfn(at), order)?;
        }
        at += 1 << order;
    }
    Ok(())
}
