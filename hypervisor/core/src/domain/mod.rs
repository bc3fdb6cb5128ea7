//! Domains: what they own and how they end.

mod control;
pub mod cpu;
pub mod grants;
mod info;
mod kill;
pub mod limbo;
mod new;
pub mod params;
mod stop;
pub mod watchdog;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};

use hv_hw::mem::FrameRef;
use hv_hw::sync::{SpinLock, rank};
use x86_model::{Gfn, Gpa, Mfn};
use xen_abi::DomId;
use xen_abi::domctl::{CpuidLeaf, TscInfo, cdf, emu, misc};

use crate::hvm::msr::MsrPolicy;
use crate::hvm::platform::Platform;
use crate::hypervisor::Wallclock;
use crate::irq::pirq::Pirqs;
use crate::p2m::P2m;
use crate::vcpu::VcpuRef;

pub use control::Life;
pub use cpu::CpuPolicy;
pub use params::HvmParams;

/// An entry of a domain's physical memory map, in E820 terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First address.
    pub start: Gpa,
    /// Bytes.
    pub len: u64,
    /// E820 type (1 RAM, 2 reserved, 3 ACPI, 4 NVS, 5 unusable).
    pub ty: u32,
}

/// Why a domain stopped (`SHUTDOWN_*`, `sched.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ShutdownReason {
    /// Clean power-off.
    PowerOff = 0,
    /// Reboot.
    Reboot = 1,
    /// Suspended.
    Suspend = 2,
    /// Crashed.
    Crash = 3,
    /// Its watchdog fired.
    Watchdog = 4,
    /// Soft reset.
    SoftReset = 5,
}

impl ShutdownReason {
    /// The reason with number `n`, if Xen defines it.
    pub const fn from_number(n: u32) -> Option<Self> {
        match n {
            0 => Some(Self::PowerOff),
            1 => Some(Self::Reboot),
            2 => Some(Self::Suspend),
            3 => Some(Self::Crash),
            4 => Some(Self::Watchdog),
            5 => Some(Self::SoftReset),
            _ => None,
        }
    }
}

const RUNNING: u8 = 0xff;
/// No reason for a shutdown is known.
const NO_CODE: u32 = u32::MAX;

/// What the toolstack chooses for a domain when it is created.
#[derive(Clone, Copy, Debug)]
pub struct DomainConfig {
    /// `XEN_DOMCTL_CDF_*`.
    pub flags: u32,
    /// `XEN_X86_EMU_*`.
    pub emulation: u32,
    /// `XEN_X86_MSR_RELAXED`, and those of [`xen_abi::domctl::misc`] that are our own.
    pub misc: u32,
    /// Security label; only kept.
    pub ssidref: u32,
    /// Event channel ports, port 0 included.
    pub max_ports: u32,
    /// Bounds of the grant table.
    pub grants: crate::grant::Limits,
}

impl DomainConfig {
    /// The processor may handle xAPIC mode.
    pub fn assists_xapic(&self) -> bool {
        self.misc & misc::NO_ASSISTED_XAPIC == 0
    }

    /// The processor may handle x2APIC mode.
    pub fn assists_x2apic(&self) -> bool {
        self.misc & misc::NO_ASSISTED_X2APIC == 0
    }
}

impl Default for DomainConfig {
    fn default() -> Self {
        DomainConfig {
            flags: cdf::HVM | cdf::HAP,
            emulation: emu::LAPIC,
            misc: 0,
            ssidref: 0,
            max_ports: crate::evtchn::DEFAULT_MAX_PORTS,
            grants: crate::grant::Limits::default(),
        }
    }
}

/// What [`Domain::new`] needs besides memory.
pub struct DomainSetup {
    /// Identifier.
    pub id: DomId,
    /// Control domain: may use the hardware and every hypercall.
    pub privileged: bool,
    /// UUID.
    pub handle: [u8; 16],
    /// Guest-visible memory map.
    pub memory_map: Vec<MemoryRange>,
    /// Most pages of RAM that the domain may have.
    pub max_pages: u64,
    /// Number of vCPUs that the domain gets by [`Domain::make_vcpus`].
    pub vcpus: u32,
    /// The toolstack's choices.
    pub config: DomainConfig,
    /// CPUID and feature policy.
    pub cpu: CpuPolicy,
    /// Ports that go to hardware directly (clear bits); `None` traps all.
    pub io_bitmap: Option<&'static [u8; 8192]>,
    /// Devices of the platform, for a domain that has any.
    pub platform: Option<Platform>,
    /// Interrupts as events, if it has them.
    pub pirqs: Option<Pirqs>,
}

/// A domain.
pub struct Domain {
    /// Identifier.
    pub id: DomId,
    /// Control domain.
    pub privileged: bool,
    /// UUID.
    pub handle: SpinLock<[u8; 16], { rank::DEVICE }>,
    /// The toolstack's choices.
    pub config: DomainConfig,
    /// Guest-physical memory.
    pub p2m: P2m,
    /// The shared_info page.
    pub shared_info: FrameRef,
    /// It has the 32-bit layout.
    narrow: AtomicBool,
    /// HVM parameters.
    pub params: HvmParams,
    /// Guest-visible memory map, for `XENMEM_memory_map`.
    pub memory_map: SpinLock<Vec<MemoryRange>, { rank::DOMAIN }>,
    /// Most pages of RAM.
    max_pages: AtomicU64,
    /// Where the shared pages are mapped.
    shared_at: SpinLock<BTreeMap<Mfn, Gfn>, { rank::DOMAIN }>,
    /// What MSRs read as and accept.
    pub msr_policy: MsrPolicy,
    /// Hypercalls are made by VMMCALL, not VMCALL.
    pub uses_vmmcall: bool,
    /// Vector of the global event callback; 0 if none is set.
    pub callback_vector: AtomicU8,
    /// `vm_assist` bits.
    pub vm_assist: AtomicU32,
    /// Event channels.
    pub evtchn: crate::evtchn::Evtchn,
    /// Grant table.
    pub grants: Arc<crate::grant::GrantTable>,
    /// Virtual IO-APICs and the physical lines bound to them, where the domain has any.
    pub platform: Option<Platform>,
    /// Interrupts as events, if it has them.
    pub pirqs: Option<SpinLock<Pirqs, { rank::DEVICE }>>,
    /// Times that an unlisted device page was mapped on first touch.
    pub mmio_fixups: AtomicU64,
    /// Watchdogs.
    pub watchdogs: watchdog::Watchdogs,
    /// Seconds that the domain's wall clock is off the system's.
    pub time_offset: AtomicI64,
    /// How the domain sees the TSC, as the toolstack said.
    pub tsc: SpinLock<TscInfo, { rank::DEVICE }>,
    /// What the toolstack allows of CPUID; empty: all.
    pub cpuid_allowed: SpinLock<Vec<CpuidLeaf>, { rank::DOMAIN }>,
    /// Share of CPU time that the domain shall not exceed, in percent of one pCPU; only kept.
    pub sched_cap: AtomicU16,
    /// Port that asks the domain to suspend.
    pub suspend_port: AtomicU32,
    cpu: CpuPolicy,
    /// The page that [`P2m::map_apic_page`] made; lives as long as the map.
    apic_page: Option<FrameRef>,
    io_bitmap: Option<&'static [u8; 8192]>,
    /// Text that the domain writes to port 0xe9.
    pub debug_port: crate::hvm::debug_port::DebugPort,
    limbo: limbo::Limbo,
    control: control::State,
    stopped: AtomicU8,
    shutdown_code: AtomicU32,
    max_vcpus: u32,
    making: SpinLock<Vec<VcpuRef>, { rank::DOMAIN }>,
    vcpus: spin::Once<Box<[VcpuRef]>>,
}

impl Domain {
    /// Whether the domain stopped, and why.
    pub fn shutdown_reason(&self) -> Option<ShutdownReason> {
        match self.stopped.load(Ordering::Acquire) {
            RUNNING => None,
            n => ShutdownReason::from_number(u32::from(n)),
        }
    }

    /// Marks the domain as stopped, for the reason that was announced before if one was. False if it was already.
    pub fn stop(&self, reason: ShutdownReason) -> bool {
        let _ = self.announce_shutdown(reason);
        let reason = ShutdownReason::from_number(self.shutdown_code()).unwrap_or(reason);
        self.stopped
            .compare_exchange(RUNNING, reason as u8, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Notes why the domain is going to stop, unless a reason is known (`SCHEDOP_shutdown_code`).
    pub fn announce_shutdown(&self, reason: ShutdownReason) -> bool {
        self.shutdown_code
            .compare_exchange(NO_CODE, reason as u32, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Number of the reason that was announced; all ones if none.
    pub fn shutdown_code(&self) -> u32 {
        self.shutdown_code.load(Ordering::Acquire)
    }

    /// The vCPUs by index; none until all have been made.
    #[inline]
    pub fn vcpus(&self) -> &[VcpuRef] {
        self.vcpus.get().map_or(&[], |v| v)
    }

    /// One vCPU.
    #[inline]
    pub fn vcpu(&self, index: u32) -> Option<&VcpuRef> {
        self.vcpus().get(index as usize)
    }

    /// vCPUs that the domain has once they are made.
    pub fn max_vcpus(&self) -> u32 {
        self.max_vcpus
    }

    /// Sets the most pages of RAM. The domain may have more already; it gets no further ones then.
    pub fn set_max_pages(&self, pages: u64) {
        self.max_pages.store(pages, Ordering::Relaxed);
    }

    /// Most pages of RAM that the domain may have.
    pub fn max_pages(&self) -> u64 {
        self.max_pages.load(Ordering::Relaxed)
    }

    /// Sets the event callback (`HVM_PARAM_CALLBACK_IRQ`): type 2 is a vector; lines and pins, which need legacy interrupt
    /// controllers, are accepted and have no effect: a vector set before stays, as on Xen.
    pub fn set_callback(&self, via: u64) {
        if via >> 56 == 2 {
            self.callback_vector.store(via as u8, Ordering::Release);
        }
    }

    /// Notes that a shared page is now mapped at `gfn`; returns where it was.
    pub fn note_shared(&self, mfn: Mfn, gfn: Gfn) -> Option<Gfn> {
        self.shared_at.lock().insert(mfn, gfn)
    }

    /// Where a shared page is mapped.
    pub fn shared_gfn(&self, mfn: Mfn) -> Option<Gfn> {
        self.shared_at.lock().get(&mfn).copied()
    }

    /// Forgets the place of a shared page if it was `gfn`.
    pub fn forget_shared(&self, mfn: Mfn, gfn: Gfn) {
        let mut at = self.shared_at.lock();
        if at.get(&mfn) == Some(&gfn) {
            at.remove(&mfn);
        }
    }

    /// Whether runstate updates are flagged (`VMASST_TYPE_runstate_update_flag`).
    pub fn flags_runstate(&self) -> bool {
        self.vm_assist.load(Ordering::Relaxed) & 1 << 5 != 0
    }

    /// Takes the layout of the caller's mode into use for everything that the guest shares with the hypervisor. Of what is in
    /// the page, only the wall clock is written anew, and pending bits are where they were: a kernel does this before it uses
    /// the rest.
    pub fn latch_layout(&self, narrow: bool, wall: Wallclock) {
        self.narrow.store(narrow, Ordering::Relaxed);
        self.evtchn.set_narrow(narrow);
        for v in self.vcpus() {
            v.areas.set_narrow(narrow);
        }
        self.publish_wallclock(wall);
    }

    /// Writes the wall clock into shared_info (`wc_*`), under its version protocol.
    pub fn publish_wallclock(&self, wall: Wallclock) {
        use xen_abi::compat::shared_info::offset as narrow;
        use xen_abi::shared_info::offset as wide;
        let [at_version, at_sec, at_nsec, at_hi] = if self.narrow.load(Ordering::Relaxed) {
            [
                narrow::WC_VERSION,
                narrow::WC_SEC,
                narrow::WC_NSEC,
                narrow::WC_SEC_HI,
            ]
        } else {
            [
                wide::WC_VERSION,
                wide::WC_SEC,
                wide::WC_NSEC,
                wide::WC_SEC_HI,
            ]
        };
        let offset = self.time_offset.load(Ordering::Relaxed);
        let wall = Wallclock {
            secs: wall.secs.wrapping_add_signed(offset),
            ..wall
        };
        let version = self.shared_info.atomic_u32(at_version);
        let odd = version.load(Ordering::Relaxed).wrapping_add(1) | 1;
        version.store(odd, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.shared_info
            .write(at_sec, &(wall.secs as u32).to_le_bytes());
        self.shared_info.write(at_nsec, &wall.nsecs.to_le_bytes());
        self.shared_info
            .write(at_hi, &((wall.secs >> 32) as u32).to_le_bytes());
        fence(Ordering::SeqCst);
        version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// A counted domain.
pub type DomainRef = Arc<Domain>;
