//! What the machine is made of, and which domains there are.

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use hv_hw::mem::{frames, free_frames, reserved_frames, total_frames};
use x86_model::PAGE_SIZE;
use x86_model::pci::Bdf;
use xen_abi::physdev::PhysdevPciDevice;
use xen_abi::sysctl::{
    AvailHeap, CpuTopo, CpuTopoInfo, GetCpuInfo, GetDomainInfoList, MemInfo, NumaInfo, PciTopoInfo,
    PhysInfo, invalid, physcap,
};
use xen_abi::{DomId, Errno};

use super::super::ptr;
use super::{Op, Result, cpu};
use crate::hotplug::Progress;
use crate::hypervisor::Hypervisor;

/// Most NUMA nodes that Xen knows, as tools size their lists.
const NODES: u32 = 64;
/// Distance of a node from itself.
const NEAR: u32 = 10;

/// Bits of a host APIC ID below the core's number, and below the package's.
#[derive(Clone, Copy)]
struct Shifts {
    core: u32,
    package: u32,
}

impl Shifts {
    /// From the topology leaf, or else from the count of APIC IDs in a package.
    fn of(hv: &Hypervisor) -> Self {
        let level = |n| hv.hw.cpuid(0xb, n);
        if hv.hw.cpuid(0, 0)[0] >= 0xb && level(0)[1] != 0 {
            let core = level(0)[0] & 0x1f;
            return Shifts {
                core,
                package: (level(1)[0] & 0x1f).max(core),
            };
        }
        let ids = (hv.hw.cpuid(1, 0)[1] >> 16 & 0xff).max(1);
        Shifts {
            core: 0,
            package: ids.next_power_of_two().trailing_zeros(),
        }
    }

    fn core(self, apic: u32) -> u32 {
        (apic & ((1 << self.package) - 1)) >> self.core
    }

    fn package(self, apic: u32) -> u32 {
        apic >> self.package
    }
}

fn apic_ids(hv: &Hypervisor) -> impl Iterator<Item = u32> + '_ {
    (0..hv.hw.cpu_count()).filter_map(|n| hv.hw.cpu_ids(CpuId(n)).map(|(apic, _)| apic))
}

/// `physinfo`.
pub fn physinfo(o: &mut Op<'_, '_, '_>) -> Result {
    let hv = o.call.hv();
    let shifts = Shifts::of(hv);
    let first = apic_ids(hv).next().unwrap_or(0);
    let same = |f: &dyn Fn(u32) -> u32| apic_ids(hv).filter(|&id| f(id) == f(first)).count() as u32;
    let threads = same(&|id| id >> shifts.core).max(1);
    let cpus = hv.hw.cpu_count();
    let grants = match hv.grant_limits.max_version {
        1 => physcap::GNTTAB_V1,
        _ => physcap::GNTTAB_V1 | physcap::GNTTAB_V2,
    };
    let mut hw_cap = [0; 8];
    let words = cpu::host_words(hv);
    hw_cap.copy_from_slice(&words[..8]);
    let info = PhysInfo {
        threads_per_core: threads,
        cores_per_socket: (same(&|id| shifts.package(id)) / threads).max(1),
        nr_cpus: hv.hw.online_cpus(),
        max_cpu_id: cpus - 1,
        nr_nodes: 1,
        max_node_id: NODES - 1,
        cpu_khz: hv.hw.tsc_khz(),
        capabilities: physcap::HVM | physcap::HAP | grants,
        total_pages: total_frames() as u64,
        free_pages: free_frames() as u64,
        outstanding_pages: reserved_frames() as u64,
        max_mfn: (frames::table_len() as u64).saturating_sub(1),
        hw_cap,
        ..Default::default()
    };
    o.put(&info)
}

/// `getdomaininfolist`: as many as there is room for, from a number on.
pub fn domains(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: GetDomainInfoList = o.get()?;
    let hv = o.call.hv();
    let mut next = Some(a.first_domain);
    a.num_domains = 0;
    while a.num_domains < a.max_domains {
        let Some(d) = next.and_then(|id| hv.next_domain(id)) else {
            break;
        };
        let info = hv.domain_info(&d);
        o.call
            .memory()
            .write_at(ptr(a.buffer), a.num_domains.into(), &info)?;
        a.num_domains += 1;
        next = d.id.0.checked_add(1).map(DomId);
    }
    o.put(&a)
}

/// `getcpuinfo`: how long each pCPU had nothing to do.
pub fn idle_times(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: GetCpuInfo = o.get()?;
    let hv = o.call.hv();
    a.nr_cpus = a.max_cpus.min(hv.pcpus.len() as u32);
    for (i, p) in (0..a.nr_cpus.into()).zip(&hv.pcpus) {
        let idle = p.idle_ns.load(Ordering::Relaxed);
        o.call.memory().write_at(ptr(a.info), i, &idle)?;
    }
    o.put(&a)
}

/// `availheap`: all memory is alike.
pub fn free_memory(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: AvailHeap = o.get()?;
    a.avail_bytes = match a.node {
        -1 | 0 => free_frames() as u64 * PAGE_SIZE,
        _ => 0,
    };
    o.put(&a)
}

/// `cputopoinfo`; a null list asks for the count.
pub fn topology(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: CpuTopoInfo = o.get()?;
    let hv = o.call.hv();
    let cpus = hv.hw.cpu_count();
    if a.cputopo == 0 {
        a.num_cpus = cpus;
        return o.put(&a);
    }
    let shifts = Shifts::of(hv);
    a.num_cpus = a.num_cpus.min(cpus);
    for n in 0..a.num_cpus {
        let topo = match hv.hw.cpu_ids(CpuId(n)) {
            Some((apic, _)) => CpuTopo {
                core: shifts.core(apic),
                socket: shifts.package(apic),
                node: 0,
            },
            None => CpuTopo {
                core: invalid::CORE,
                socket: invalid::SOCKET,
                node: invalid::NODE,
            },
        };
        o.call.memory().write_at(ptr(a.cputopo), n.into(), &topo)?;
    }
    o.put(&a)
}

/// `numainfo`: one node; null lists ask for the count.
pub fn nodes(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: NumaInfo = o.get()?;
    if a.meminfo == 0 && a.distance == 0 || a.num_nodes > 1 {
        a.num_nodes = a.num_nodes.min(1);
        if a.meminfo == 0 && a.distance == 0 {
            a.num_nodes = 1;
            return o.put(&a);
        }
    }
    if a.num_nodes == 1 {
        let info = MemInfo {
            memsize: frames::table_len() as u64 * PAGE_SIZE,
            memfree: free_frames() as u64 * PAGE_SIZE,
        };
        if a.meminfo != 0 {
            o.call.memory().write(ptr(a.meminfo), &info)?;
        }
        if a.distance != 0 {
            o.call.memory().write(ptr(a.distance), &NEAR)?;
        }
    }
    o.put(&a)
}

/// `cpu_hotplug`: a pCPU goes or comes, or all siblings do.
pub fn hotplug(o: &mut Op<'_, '_, '_>) -> core::result::Result<Progress, Errno> {
    const ONLINE: u32 = 0;
    const OFFLINE: u32 = 1;
    const SMT_ENABLE: u32 = 2;
    const SMT_DISABLE: u32 = 3;
    let [cpu, what]: [u32; 2] = o.get()?;
    match what {
        ONLINE => o.call.hv().cpu_up(CpuId(cpu)).map(|()| Progress::Done),
        OFFLINE => o.call.hv().cpu_down(CpuId(cpu)),
        SMT_ENABLE => o.call.hv().siblings(true),
        SMT_DISABLE => o.call.hv().siblings(false),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// `page_offline_op`: no page can be taken out of use.
pub fn offline_pages(o: &mut Op<'_, '_, '_>) -> Result {
    let [cmd, start, end]: [u32; 3] = o.get()?;
    if end < start || !(1..=3).contains(&cmd) {
        return Err(Errno::EINVAL);
    }
    Err(Errno::EOPNOTSUPP)
}

/// `pcitopoinfo`: devices have no node that is known.
pub fn devices(o: &mut Op<'_, '_, '_>) -> Result {
    /// Devices that one call looks at; the caller goes on where the answer ends.
    const BATCH: u32 = 64;
    let mut a: PciTopoInfo = o.get()?;
    if a.devs == 0 || a.nodes == 0 {
        return Err(Errno::EINVAL);
    }
    a.num_devs = a.num_devs.min(BATCH);
    for i in 0..u64::from(a.num_devs) {
        let dev: PhysdevPciDevice = o.call.memory().read_at(ptr(a.devs), i)?;
        let bdf = Bdf {
            segment: dev.seg,
            bus: dev.bus,
            devfn: dev.devfn,
        };
        let platform = o.call.domain().platform.as_ref();
        let node = if platform.is_some_and(|p| p.knows_function(bdf)) {
            invalid::NODE
        } else {
            invalid::DEV
        };
        o.call.memory().write_at(ptr(a.nodes), i, &node)?;
    }
    o.put(&a)
}
