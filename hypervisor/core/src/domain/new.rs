//! Making a domain: its memory map, shared page, vCPUs.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use hv_hw::machine::VcpuSetup;
use hv_hw::mem::FrameRef;
use hv_hw::sync::SpinLock;
use hv_hw::{Hw, Machine};
use x86_model::policy::topology::apic_id;
use xen_abi::Errno;

use super::{Domain, DomainSetup, RUNNING};
use crate::evtchn::{self, Evtchn};
use crate::grant::{GrantTable, Limits};
use crate::hvm::cr4;
use crate::hvm::vlapic::{LapicPost, Vlapic};
use crate::p2m::P2m;
use crate::vcpu::info::Areas;
use crate::vcpu::runstate::RunState;
use crate::vcpu::{NEVER, NO_CPU, Vcpu, VcpuKey, VcpuLocal, VcpuRef};

impl Domain {
    /// A domain whose vCPUs are all down. The caller fills `p2m`'s memory, sets vCPU 0's state and adds the domain to the
    /// system.
    pub fn new(hw: &Hw, setup: DomainSetup, p2m: P2m) -> Result<Arc<Domain>, Errno> {
        let shared_info = FrameRef::alloc(setup.id).ok_or(Errno::ENOMEM)?;
        let max_ports = if setup.privileged {
            evtchn::CONTROL_MAX_PORTS
        } else {
            evtchn::DEFAULT_MAX_PORTS
        };
        let root = p2m.stage2().root();
        let mut vcpus: Vec<VcpuRef> = Vec::new();
        vcpus
            .try_reserve_exact(setup.vcpus as usize)
            .map_err(|_| Errno::ENOMEM)?;
        for index in 0..setup.vcpus {
            let ctx = hw
                .new_vcpu(&VcpuSetup {
                    stage2_root: root,
                    io_bitmap: setup.io_bitmap,
                    xcr0_allowed: setup.cpu.xcr0_allowed,
                    xsave_size: setup.cpu.xsave_size,
                })
                .ok_or(Errno::ENOMEM)?;
            let cpuid = setup.cpu.table(hw, index);
            let local = VcpuLocal {
                cr4_allowed: cr4::allowed(|leaf, register, bit| cpuid.has(leaf, register, bit)),
                ctx,
                lapic: Vlapic::new(index, false),
                cpuid,
                pci_address: 0,
                nmi_pending: false,
                reset: None,
                started: false,
                xcr0_allowed: setup.cpu.xcr0_allowed,
                lengths: Default::default(),
                walks: Default::default(),
                msrs: Default::default(),
                tsc_offset: 0,
                shown_tpr: 0,
            };
            vcpus.push(Arc::new(Vcpu {
                key: VcpuKey {
                    domain: setup.id,
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
                upcall_vector: AtomicU8::new(0),
                singleshot: AtomicU64::new(NEVER),
                period: AtomicU64::new(0),
                next_tick: AtomicU64::new(NEVER),
                wake_at: AtomicU64::new(NEVER),
                pinned_from: SpinLock::new(None),
                areas: Areas::new(&shared_info, index),
                runstate: RunState::new(hw.now_ns()),
                stats: Default::default(),
                local: SpinLock::new(local),
            }));
        }
        let vcpus: Box<[VcpuRef]> = vcpus.into_boxed_slice();
        Ok(Arc::new(Domain {
            id: setup.id,
            privileged: setup.privileged,
            handle: setup.handle,
            p2m,
            grants: GrantTable::new(setup.id, Limits::default()),
            evtchn: Evtchn::new(shared_info.clone(), setup.vcpus, max_ports)?,
            shared_info,
            shared_at: SpinLock::new(BTreeMap::new()),
            params: Default::default(),
            msr_policy: setup.cpu.msrs(hw),
            uses_vmmcall: setup.cpu.uses_vmmcall(hw),
            callback_vector: AtomicU8::new(0),
            memory_map: SpinLock::new(setup.memory_map),
            max_pages: AtomicU64::new(setup.max_pages),
            vm_assist: AtomicU32::new(0),
            platform: setup.platform,
            mmio_fixups: AtomicU64::new(0),
            watchdogs: Default::default(),
            stopped: AtomicU8::new(RUNNING),
            vcpus,
        }))
    }
}
