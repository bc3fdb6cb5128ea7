//! Making a domain: its memory map, shared page, vCPUs.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use hv_hw::machine::{ApicAssist, VcpuSetup};
use hv_hw::mem::FrameRef;
use hv_hw::sync::SpinLock;
use hv_hw::{GuestContext, Hw, Machine};
use x86_model::policy::topology::apic_id;
use xen_abi::Errno;

use super::{Domain, DomainSetup, NO_CODE, RUNNING};
use crate::evtchn::{self, Evtchn};
use crate::grant::GrantTable;
use crate::hvm::cpuid::CpuidTable;
use crate::hvm::cr;
use crate::hvm::vlapic::{LapicPost, Vlapic};
use crate::p2m::P2m;
use crate::sched::CpuMask;
use crate::vcpu::info::Areas;
use crate::vcpu::posting::Posting;
use crate::vcpu::runstate::RunState;
use crate::vcpu::stats::Stats;
use crate::vcpu::{NEVER, NO_CPU, Vcpu, VcpuKey, VcpuLocal, VcpuRef};

impl Domain {
    /// A domain without vCPUs. The caller fills `p2m`'s memory, makes the vCPUs, sets vCPU 0's state and adds the domain to
    /// the system.
    pub fn new(hw: &Hw, setup: DomainSetup, p2m: P2m) -> Result<Arc<Domain>, Errno> {
        let shared_info = FrameRef::alloc(setup.id).ok_or(Errno::ENOMEM)?;
        let assists = hw.apic_assists();
        let apic_page = if assists.page && setup.config.assists_xapic() {
            Some(p2m.map_apic_page()?)
        } else {
            None
        };
        let cpu = setup.cpu.assisted(
            apic_page.is_some() && assists.xapic,
            setup.config.assists_x2apic() && assists.x2apic,
        );
        let max_ports = if setup.privileged {
            evtchn::CONTROL_MAX_PORTS
        } else {
            setup.config.max_ports
        };
        Ok(Arc::new(Domain {
            id: setup.id,
            privileged: setup.privileged,
            handle: SpinLock::new(setup.handle),
            config: setup.config,
            p2m,
            grants: GrantTable::new(setup.id, setup.config.grants),
            evtchn: Evtchn::new(shared_info.clone(), setup.vcpus, max_ports)?,
            shared_info,
            narrow: AtomicBool::new(false),
            shared_at: SpinLock::new(BTreeMap::new()),
            params: Default::default(),
            msr_policy: cpu.msrs(hw),
            uses_vmmcall: cpu.uses_vmmcall(hw),
            callback_vector: AtomicU8::new(0),
            memory_map: SpinLock::new(setup.memory_map),
            max_pages: AtomicU64::new(setup.max_pages),
            vm_assist: AtomicU32::new(0),
            platform: setup.platform,
            pirqs: setup.pirqs.map(SpinLock::new),
            mmio_fixups: AtomicU64::new(0),
            watchdogs: Default::default(),
            time_offset: Default::default(),
            tsc: SpinLock::new(Default::default()),
            cpuid_allowed: SpinLock::new(Vec::new()),
            sched_cap: Default::default(),
            suspend_port: Default::default(),
            cpu,
            apic_page,
            io_bitmap: setup.io_bitmap,
            debug_port: Default::default(),
            limbo: Default::default(),
            control: Default::default(),
            stopped: AtomicU8::new(RUNNING),
            shutdown_code: AtomicU32::new(NO_CODE),
            max_vcpus: setup.vcpus,
            making: SpinLock::new(Vec::new()),
            vcpus: spin::Once::new(),
        }))
    }

    /// Makes at most `budget` of the vCPUs, all down; true when all are there. ENOMEM: call again when there is memory.
    pub fn make_vcpus(&self, hw: &Hw, budget: u32) -> Result<bool, Errno> {
        if self.vcpus.is_completed() {
            return Ok(true);
        }
        let mut making = self.making.lock();
        for _ in 0..budget {
            let index = making.len() as u32;
            if index == self.max_vcpus {
                break;
            }
            making.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            making.push(self.make_vcpu(hw, index)?);
        }
        let done = making.len() as u32 == self.max_vcpus;
        if done {
            let all = core::mem::take(&mut *making).into_boxed_slice();
            self.vcpus.call_once(|| all);
        }
        Ok(done)
    }

    /// CPUID of one vCPU: the machine's, as far as the toolstack allows it.
    pub fn cpuid_table(&self, hw: &Hw, vcpu: u32) -> CpuidTable {
        let mut table = self.cpu.table(hw, vcpu);
        for l in self.cpuid_allowed.lock().iter() {
            table.restrict(l.leaf, l.subleaf, [l.a, l.b, l.c, l.d]);
        }
        table
    }

    /// Bytes of a vCPU's extended registers in the standard form of XSAVE.
    pub fn xsave_size(&self) -> u32 {
        self.cpu.xsave_size
    }

    fn make_vcpu(&self, hw: &Hw, index: u32) -> Result<VcpuRef, Errno> {
        let ctx = hw
            .new_vcpu(&VcpuSetup {
                stage2_root: self.p2m.stage2().root(),
                io_bitmap: self.io_bitmap,
                xcr0_allowed: self.cpu.xcr0_allowed,
                xsave_size: self.cpu.xsave_size,
                apic_page: self.apic_page.as_ref().map(|page| page.mfn()),
                assist_x2apic: self.config.assists_x2apic(),
            })
            .ok_or(Errno::ENOMEM)?;
        let posting = Posting::new(hw, ctx.post_target());
        let mut local = VcpuLocal {
            cr4_allowed: 0,
            assistable: hw.apic_assists().any,
            assisted_as: None,
            assist: ApicAssist::default(),
            ctx,
            lapic: Vlapic::new(index, false),
            cpuid: self.cpu.table(hw, index),
            pci_address: 0,
            nmi_pending: false,
            reset: None,
            started: false,
            xcr0_allowed: self.cpu.xcr0_allowed,
            lengths: Default::default(),
            walks: Default::default(),
            msrs: Default::default(),
            tsc_offset: 0,
        };
        local.cr4_allowed = cr::allowed_cr4(|leaf, reg, bit| local.cpuid.has(leaf, reg, bit));
        Ok(Arc::new(Vcpu {
            key: VcpuKey {
                domain: self.id,
                vcpu: index,
            },
            up: AtomicBool::new(false),
            pause: AtomicU32::new(0),
            initialised: AtomicBool::new(false),
            waits_for_sipi: AtomicBool::new(false),
            sleep: AtomicU8::new(0),
            running_on: AtomicU32::new(NO_CPU),
            home: AtomicU32::new(NO_CPU),
            entered_generation: AtomicU64::new(NEVER),
            post: LapicPost::new(apic_id(index)),
            posting,
            upcall_vector: AtomicU8::new(0),
            singleshot: AtomicU64::new(NEVER),
            period: AtomicU64::new(0),
            next_tick: AtomicU64::new(NEVER),
            wake_at: AtomicU64::new(NEVER),
            pinned_from: SpinLock::new(None),
            soft_affinity: SpinLock::new(CpuMask::ALL),
            areas: Areas::new(&self.shared_info, index),
            runstate: RunState::new(hw.now_ns()),
            stats: Stats::new()?,
            local: SpinLock::new(local),
        }))
    }
}
