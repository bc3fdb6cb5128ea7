//! A vCPU on VT-x: its control structure, registers, and the run from entry to exit.

use alloc::sync::Arc;
use core::cell::Cell;

use x86_model::apic::ApicMode;
use x86_model::regs::cr;
use x86_model::virt::svm::AsidTag;
use x86_model::virt::vmx::capability::ApicFeatures;
use x86_model::virt::vmx::control::{pin, primary};
use x86_model::virt::vmx::delivery;
use x86_model::virt::vmx::event;
use x86_model::virt::vmx::exit::ENTRY_FAILED;
use x86_model::virt::vmx::field::*;
use x86_model::{Gpr, Gprs, Hpa, Mfn};

use super::cpu::{self, CpuBlock};
use super::delivery::Delivery;
use super::instr::{read, write};
use super::registers::Resident;
use super::vmcs::{OwnedVmcs, write_host_state};
use super::{CONTROLS, early, entry, state};
use crate::machine::{
    ApicAssist, ApicVectors, Event, Exit, GuestContext, PagingState, SystemState, VcpuSetup,
};
use crate::mem::Stage2;
use crate::posted::PostTarget;
use crate::x86::cpu::percpu;
use crate::x86::virt::fpu::Switched;
use crate::x86::{asm, quirks};

/// Where the preemption timer starts. It is used on Bochs alone, which counts every cycle.
const TIMER_START: u32 = 16_000;

/// The context of one vCPU.
pub struct VmxVcpu {
    gprs: Gprs,
    vmcs: OwnedVmcs,
    /// The CPU that it runs on, between `enter_cpu` and `leave`.
    cpu: Option<&'static CpuBlock>,
    /// The structure was entered since it was last cleared.
    launched: bool,
    pub(super) tagged: bool,
    pub(super) one_tree: bool,
    pub(super) tag: AsidTag,
    /// Root and value of [`Stage2::generation`] of the tree at the last flush.
    pub(super) root: Mfn,
    pub(super) flushed: u64,
    /// The CPU that tag, flush and host state belong to.
    last_cpu: *const CpuBlock,
    /// The entries of PAE paging must be read again.
    pub(super) pdptes_stale: bool,
    /// Primary controls as they should be, and as the structure has them.
    primary: u32,
    written: Cell<u32>,
    /// [`quirks::bochs`].
    bochs: bool,
    /// Pin-based controls in use: without and, while a guest on Bochs has interrupts off, with the preemption timer; and as
    /// the structure has them.
    pub(super) pin: [u32; 2],
    pub(super) pin_written: u32,
    /// Where vectors are posted to it; exits by interrupts then acknowledge them. The structure has its address.
    pub(super) target: Option<Arc<PostTarget>>,
    /// APIC features that this vCPU may have.
    pub(super) apic: ApicFeatures,
    pub(super) delivery: Delivery,
    /// What the next entry injects; 0 if nothing. With its error code.
    pub(super) event: u32,
    pub(super) error_code: u32,
    /// An interrupt that the guest cannot take yet.
    pub(super) pending: Option<u8>,
    /// The guest's NMI mask, or a shadow, held an NMI back.
    pub(super) nmi_waits: bool,
    /// The interrupt window was asked for.
    pub(super) window: bool,
    /// The class below which a lower task priority exits, or 0; and the threshold that the structure has.
    pub(super) tpr_watch: u8,
    threshold: u8,
    pub(super) switched: Switched,
    pub(super) resident: Resident,
}

// SAFETY: the pointers lead to pages that this vCPU owns, and to the block of the CPU that runs it, which is `None` in
// `cpu` unless the vCPU is on that CPU (`enter_cpu`, `leave`); `last_cpu` is only compared.
unsafe impl Send for VmxVcpu {}

impl VmxVcpu {
    /// A vCPU in the state after reset. `None` without memory.
    pub fn new(setup: &VcpuSetup) -> Option<Self> {
        let controls = CONTROLS.get()?;
        let bochs = quirks::bochs();
        let pin_timed = if bochs && controls.preemption_timer {
            controls.pin | pin::PREEMPTION_TIMER
        } else {
            controls.pin
        };
        let apic = super::apic_features().and(ApicFeatures {
            accesses: setup.apic_page.is_some(),
            x2apic: setup.assist_x2apic,
            registers: true,
            delivery: true,
            posted: true,
        });
        let target = if delivery::posting(apic, ApicMode::X2Apic) != 0
            || delivery::posting(apic, ApicMode::XApic) != 0
        {
            Some(Arc::new(PostTarget::new()?))
        } else {
            None
        };
        let descriptor = target.as_ref().map(|t| t.hpa());
        let mut vcpu = VmxVcpu {
            gprs: Gprs::default(),
            vmcs: OwnedVmcs::new(setup, controls, cpu::this_cpu(), descriptor)?,
            cpu: None,
            launched: false,
            tagged: controls.tagged(),
            one_tree: controls.ept.flushes_one_tree(),
            tag: AsidTag::default(),
            root: setup.stage2_root,
            flushed: 0,
            last_cpu: core::ptr::null(),
            pdptes_stale: false,
            primary: controls.primary,
            written: Cell::new(controls.primary),
            bochs,
            pin: [controls.pin, pin_timed],
            pin_written: controls.pin,
            apic,
            target,
            delivery: Delivery::default(),
            event: 0,
            error_code: 0,
            pending: None,
            nmi_waits: false,
            window: false,
            tpr_watch: 0,
            threshold: 0,
            switched: Switched::new(setup.xcr0_allowed, setup.xsave_size)?,
            resident: Resident::new(),
        };
        vcpu.set_state(&SystemState {
            cr0: cr::CR0_ET,
            pat: x86_model::regs::msr::PAT_RESET,
            dr6: 0xffff_0ff0,
            dr7: 0x400,
            ..SystemState::default()
        });
        Some(vcpu)
    }

    /// Runs `f` while the control structure is current on this CPU.
    #[inline]
    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.cpu.is_some() {
            return f();
        }
        let cpu = cpu::this_cpu();
        // SAFETY: outside of `enter_cpu` and `leave` the structure is clear, and whoever holds the vCPU is alone with it.
        let previous = unsafe { cpu.load(self.vmcs.hpa()) };
        let result = f();
        // SAFETY: as above.
        unsafe { cpu.unload(self.vmcs.hpa(), previous) };
        result
    }

    /// The control structure and its pages.
    pub(super) fn vmcs(&self) -> &OwnedVmcs {
        &self.vmcs
    }

    /// [`quirks::bochs`].
    pub(super) fn on_bochs(&self) -> bool {
        self.bochs
    }

    /// An event waits for the next entry or for the guest's flags.
    pub(super) fn occupied(&self) -> bool {
        self.event != 0 || self.pending.is_some()
    }

    /// Whether an external interrupt may be injected into the state that the structure holds.
    #[inline]
    pub(super) fn open(&self) -> bool {
        read(GUEST_RFLAGS) & cr::RFLAGS_IF != 0 && read(GUEST_INTERRUPTIBILITY) & event::SHADOW == 0
    }

    /// Writes what the coming entry shall inject or watch for.
    #[inline]
    fn arm(&mut self) {
        if self.event == 0
            && let Some(vector) = self.pending
            && self.open()
        {
            self.event = event::interrupt(vector);
            self.pending = None;
        }
        let mut primary = self.primary;
        if self.delivery.readable {
            self.arm_delivery();
        }
        if self.window || self.pending.is_some() || self.delivery_waits() {
            primary |= primary::INTERRUPT_WINDOW;
        }
        if self.nmi_waits {
            primary |= primary::NMI_WINDOW;
        }
        // A threshold above the task priority would be refused; and with delivery by the CPU there is nothing to watch.
        let threshold = if self.delivery.on || self.tpr_watch == 0 {
            0
        } else {
            self.tpr_watch.min(self.vmcs.tpr() >> 4)
        };
        // SAFETY: only windows change; the event is one that the CPU accepts, or the entry fails.
        unsafe {
            if threshold != self.threshold {
                write(TPR_THRESHOLD, threshold.into());
                self.threshold = threshold;
            }
            if primary != self.written.get() {
                write(PRIMARY_CONTROLS, primary);
                self.written.set(primary);
            }
            if self.event != 0 {
                write(ENTRY_EVENT, self.event);
                if self.event & event::ERROR_VALID != 0 {
                    write(ENTRY_ERROR_CODE, self.error_code);
                }
            }
        }
    }

    /// Has the guest exit after a while if it has interrupts off.
    fn arm_timer(&mut self) {
        let off = read(GUEST_RFLAGS) & cr::RFLAGS_IF == 0;
        let pin = self.pin[usize::from(off)];
        // SAFETY: more exits; all others stay.
        unsafe {
            if pin != self.pin_written {
                write(PIN_CONTROLS, pin);
                self.pin_written = pin;
            }
            if off {
                write(GUEST_PREEMPTION_TIMER, TIMER_START);
            }
        }
    }
}

// Not inlined, and cold for the optimizer's sake: what is shared with the other backend must stay as small as with that one
// alone. A call costs nothing beside the reads and writes of fields that these make.
impl GuestContext for VmxVcpu {
    #[cold]
    #[inline(never)]
    fn gprs(&self) -> &Gprs {
        &self.gprs
    }

    #[cold]
    #[inline(never)]
    fn gprs_mut(&mut self) -> &mut Gprs {
        &mut self.gprs
    }

    #[cold]
    #[inline(never)]
    fn rip(&self) -> u64 {
        self.with(|| read(GUEST_RIP))
    }

    #[cold]
    #[inline(never)]
    fn set_rip(&mut self, rip: u64) {
        self.alone(|vcpu| vcpu.move_to(rip));
    }

    #[cold]
    #[inline(never)]
    fn paging(&self) -> PagingState {
        self.with(state::paging)
    }

    #[cold]
    #[inline(never)]
    fn state(&self) -> SystemState {
        self.with(|| self.read_state())
    }

    #[cold]
    #[inline(never)]
    fn set_state(&mut self, new: &SystemState) {
        (self.event, self.pending, self.nmi_waits) = (0, None, false);
        self.alone(|vcpu| {
            vcpu.write_state(new);
            vcpu.paging_changed();
        });
    }

    #[cold]
    #[inline(never)]
    fn set_cr4(&mut self, value: u64) {
        self.alone(|vcpu| {
            state::set_guest_cr4(value);
            vcpu.paging_changed();
        });
    }

    #[cold]
    #[inline(never)]
    fn context_msr(&self, index: u32) -> Option<u64> {
        self.with(|| self.read_msr(index))
    }

    #[cold]
    #[inline(never)]
    fn set_context_msr(&mut self, index: u32, value: u64) -> bool {
        self.alone(|vcpu| vcpu.write_msr(index, value))
    }

    #[cold]
    #[inline(never)]
    fn set_xcr0(&mut self, value: u64) {
        self.switched.set_xcr0(value);
    }

    #[cold]
    #[inline(never)]
    fn xcr0(&self) -> u64 {
        self.switched.xcr0()
    }

    #[cold]
    #[inline(never)]
    fn extended(&self) -> &[u8] {
        self.switched.extended()
    }

    fn set_extended(&mut self, image: &[u8]) {
        self.switched.set_extended(image);
    }

    fn breakpoints(&self) -> [u64; 4] {
        self.switched.breakpoints()
    }

    fn set_breakpoints(&mut self, at: [u64; 4]) {
        self.switched.set_breakpoints(at);
    }

    fn set_tsc_offset(&mut self, offset: u64) {
        // SAFETY: only shifts the guest's view of the counter.
        self.with(|| unsafe { write(TSC_OFFSET, offset) });
    }

    #[cold]
    #[inline(never)]
    fn enter_cpu(&mut self) {
        let cpu = cpu::this_cpu();
        // SAFETY: our structure, which `leave` cleared.
        unsafe { cpu.load(self.vmcs.hpa()) };
        self.cpu = Some(cpu);
        self.launched = false;
        if !core::ptr::eq(self.last_cpu, cpu) {
            self.last_cpu = cpu;
            self.tag = AsidTag::default();
            self.drop_translations();
        }
        write_host_state();
        self.switched.load();
        self.resident.load();
        self.show_requests();
    }

    #[cold]
    #[inline(never)]
    fn leave(&mut self) {
        if self.cpu.is_some() {
            early::forget_requests();
        }
        self.resident.save();
        self.switched.save();
        if let Some(cpu) = self.cpu.take() {
            // SAFETY: our structure, active on this CPU.
            unsafe { cpu.unload(self.vmcs.hpa(), Hpa(0)) };
        }
    }

    #[cold]
    #[inline(never)]
    fn run(&mut self, stage2: &Stage2) -> Exit {
        let cpu = self.cpu.expect("a vCPU runs between enter_cpu and leave");
        loop {
            self.settle_translations(cpu, stage2);
            if self.pdptes_stale {
                self.load_pdptes(stage2);
            }
            self.arm();
            if self.bochs {
                if percpu::this().has_vector() {
                    return Exit::Interrupt;
                }
                self.arm_timer();
            }
            // SAFETY: guest state.
            unsafe { write(GUEST_RSP, self.gprs.get(Gpr::Rsp)) };
            // SAFETY: interrupts are off throughout the hypervisor. The current structure is ours (`enter_cpu`), made by
            // `OwnedVmcs::new`, which has physical interrupts exit and second-stage translation on; its root is that of
            // `stage2`, which the caller keeps alive; its host fields are this CPU's (`enter_cpu`).
            let how = unsafe { entry::enter(&mut self.gprs, self.launched.into()) };
            if self.bochs {
                asm::settle_interrupt_flag();
            }
            if how != entry::EXITED {
                return self.refused(how);
            }
            self.launched = true;
            self.gprs.set(Gpr::Rsp, read(GUEST_RSP));
            let exit = read(EXIT_REASON);
            if exit & ENTRY_FAILED != 0 {
                self.event = 0;
                return self.entry_failed(exit);
            }
            self.settle_events();
            if self.delivery.on {
                self.settle_delivery();
                if self.bochs {
                    self.undo_early(exit & 0xffff, stage2);
                }
            }
            if let Some(exit) = self.decode(exit & 0xffff) {
                return exit;
            }
            percpu::this().count_settled();
        }
    }

    #[cold]
    #[inline(never)]
    fn exit_number(&self) -> u32 {
        self.with(|| read(EXIT_REASON))
    }

    #[cold]
    #[inline(never)]
    fn interruptible(&self) -> bool {
        self.event == 0 && self.pending.is_none() && self.with(|| self.open())
    }

    #[cold]
    #[inline(never)]
    fn interrupts_enabled(&self) -> bool {
        self.with(|| read(GUEST_RFLAGS) & cr::RFLAGS_IF != 0)
    }

    /// False also for an NMI while an earlier one is being handled; [`Exit::InterruptWindow`] follows when it returns.
    #[cold]
    #[inline(never)]
    fn inject(&mut self, event: Event) -> bool {
        match event {
            Event::Interrupt(vector) => {
                let free = self.pending.is_none();
                if free {
                    self.pending = Some(vector);
                }
                free
            }
            _ if self.event != 0 => {
                self.nmi_waits |= event == Event::Nmi;
                false
            }
            Event::Nmi => {
                const HELD: u32 = event::BLOCKED_BY_NMI | event::SHADOW;
                let held = self.with(|| read(GUEST_INTERRUPTIBILITY) & HELD != 0);
                self.nmi_waits = held;
                if !held {
                    self.event = event::nmi();
                }
                !held
            }
            Event::Exception(vector, code) => {
                let protected = || read(GUEST_CR0) & cr::CR0_PE != 0;
                // Real mode has no error codes.
                let code = code.filter(|_| self.with(protected));
                self.event = event::exception(vector, code.is_some());
                self.error_code = code.unwrap_or(0);
                true
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn injecting(&self) -> bool {
        self.pending.is_some() || self.event != 0
    }

    #[cold]
    #[inline(never)]
    fn request_window(&mut self, on: bool) {
        self.window = on;
    }

    /// VT-x does not keep them.
    #[cold]
    #[inline(never)]
    fn fetched_bytes(&self) -> &[u8] {
        &[]
    }

    #[cold]
    #[inline(never)]
    fn set_apic_mode(&mut self, mode: ApicMode, enabled: bool) -> ApicAssist {
        self.alone(|vcpu| vcpu.switch_apic(mode, enabled))
    }

    #[cold]
    #[inline(never)]
    fn put_registers(&mut self, registers: &[(u32, u32)]) {
        self.fill_page(registers);
    }

    #[cold]
    #[inline(never)]
    fn put_vectors(&mut self, vectors: &ApicVectors) {
        self.delivery.vectors = *vectors;
    }

    #[cold]
    #[inline(never)]
    fn vectors(&self) -> ApicVectors {
        self.delivery.vectors
    }

    #[cold]
    #[inline(never)]
    fn post_target(&self) -> Option<Arc<PostTarget>> {
        self.target.clone()
    }

    #[cold]
    #[inline(never)]
    fn tpr(&self, _last: u8) -> u8 {
        self.vmcs.tpr()
    }

    #[cold]
    #[inline(never)]
    fn set_tpr(&mut self, tpr: u8) {
        self.vmcs.set_tpr(tpr);
    }

    #[cold]
    #[inline(never)]
    fn watch_tpr(&mut self, class: u8) {
        self.tpr_watch = class;
    }
}

impl VmxVcpu {
    /// As [`VmxVcpu::with`], for changes.
    #[inline]
    fn alone<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        if self.cpu.is_some() {
            return f(self);
        }
        let cpu = cpu::this_cpu();
        // SAFETY: as in `with`.
        let previous = unsafe { cpu.load(self.vmcs.hpa()) };
        let result = f(self);
        // SAFETY: as in `with`.
        unsafe { cpu.unload(self.vmcs.hpa(), previous) };
        result
    }
}

impl Drop for VmxVcpu {
    /// The page must not go back while a CPU could still write the structure to it.
    fn drop(&mut self) {
        self.leave();
    }
}
