//! A vCPU on AMD-V: its control block, registers, and the run from entry to exit.
//!
//! Fields of the control block are changed only through methods that clear the matching clean bit.

use x86_model::virt::svm::event::Redelivery;
use x86_model::virt::svm::twice::Before;
use x86_model::virt::svm::vmcb::*;
use x86_model::virt::svm::{AsidTag, SvmFeatures, event, intercept};
use x86_model::{Gpr, Gprs, Mfn};

use super::cpu::{self, CpuBlock};
use super::entry;
use super::vmcb::OwnedVmcb;
use super::{CAPABILITIES, state};
use crate::machine::{Event, Exit, GuestContext, PagingState, SystemState, VcpuSetup};
use crate::mem::Stage2;
use crate::x86::virt::fpu::Switched;
use crate::x86::{apic, quirks};

const RFLAGS_TF: u64 = 1 << 8;
const RFLAGS_IF: u64 = 1 << 9;
const RFLAGS_RF: u64 = 1 << 16;
const DR6_BS: u64 = 1 << 14;

/// Use of the one virtual interrupt of a control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Virq {
    /// Not used.
    Off,
    /// Its acceptance is intercepted: the interrupt window.
    Window,
    /// It is the interrupt that the guest gets as soon as its flags allow.
    Vector,
}

/// The context of one vCPU.
pub struct SvmVcpu {
    gprs: Gprs,
    pub(super) vmcb: OwnedVmcb,
    /// The CPU that it runs on, between `enter_cpu` and `leave`.
    cpu: Option<&'static CpuBlock>,
    tag: AsidTag,
    /// Root and value of [`Stage2::generation`] of the tree at the last flush under `tag`.
    root: Mfn,
    flushed: u64,
    /// The CPU that `tag` and the clean bits belong to.
    last_cpu: *const CpuBlock,
    pub(super) has_next_rip: bool,
    flush_by_asid: bool,
    pub(super) lbr_virt: bool,
    /// An NMI was delivered and its IRET has not come yet.
    nmi_masked: bool,
    /// What the control block's virtual interrupt stands for.
    virq: Virq,
    /// The guest is at an IRET that has exited once: it must get past it.
    at_iret: bool,
    pub(super) switched: Switched,
}

// SAFETY: the pointers lead to pages that this vCPU owns, and to the block of the CPU that runs it, which is `None` in
// `cpu` unless the vCPU is on that CPU (`enter_cpu`, `leave`); `last_cpu` is only compared.
unsafe impl Send for SvmVcpu {}

impl SvmVcpu {
    /// A vCPU in the state after reset. `None` without memory.
    pub fn new(setup: &VcpuSetup) -> Option<Self> {
        let capabilities = CAPABILITIES.get()?;
        let features = capabilities.features;
        Some(SvmVcpu {
            gprs: Gprs::default(),
            vmcb: OwnedVmcb::new(setup, capabilities)?,
            cpu: None,
            tag: AsidTag::default(),
            root: setup.stage2_root,
            flushed: 0,
            last_cpu: core::ptr::null(),
            has_next_rip: features.contains(SvmFeatures::NEXT_RIP),
            flush_by_asid: features.contains(SvmFeatures::FLUSH_BY_ASID),
            lbr_virt: features.contains(SvmFeatures::LBR_VIRT),
            nmi_masked: false,
            virq: Virq::Off,
            at_iret: false,
            switched: Switched::new(setup.xcr0_allowed, setup.xsave_size)?,
        })
    }

    /// Settles translation for the coming entry: the tree that the caller keeps alive, and a tag of this CPU's present
    /// generation without stale translations.
    #[inline]
    fn prepare_tlb(&mut self, cpu: &CpuBlock, stage2: &Stage2) {
        let generation = stage2.generation();
        if self.tag.generation == cpu.generation.get()
            && self.flushed == generation
            && self.root == stage2.root()
        {
            return;
        }
        self.renew_translations(cpu, stage2.root(), generation);
    }

    #[cold]
    fn renew_translations(&mut self, cpu: &CpuBlock, root: Mfn, generation: u64) {
        self.flushed = generation;
        self.root = root;
        let c = &mut self.vmcb.get_mut().control;
        c.nested_cr3 = root.hpa().0;
        c.clean &= !CLEAN_NESTED;
        if self.tag.generation == cpu.generation.get() && self.flush_by_asid {
            c.tlb_control = TLB_FLUSH_ASID;
            return;
        }
        // A fresh tag has no translations, so it serves as a flush too.
        let (tag, flush_all) = cpu.take_asid();
        c.asid = tag.asid;
        c.tlb_control = if flush_all { TLB_FLUSH_ALL } else { TLB_KEEP };
        c.clean &= !CLEAN_ASID;
        self.tag = tag;
    }

    /// Sets the virtual interrupt, which is always of sufficient priority.
    #[inline]
    fn set_virq(&mut self, virq: Virq, vector: u8) {
        self.virq = virq;
        let c = &mut self.vmcb.get_mut().control;
        c.intercept_1 &= !intercept::VINTR;
        c.int_ctl &= !(V_IRQ | V_IGN_TPR | 0xff << V_VECTOR_SHIFT);
        if virq != Virq::Off {
            c.int_ctl |= V_IRQ | V_IGN_TPR | u64::from(vector) << V_VECTOR_SHIFT;
        }
        if virq == Virq::Window {
            c.intercept_1 |= intercept::VINTR;
        }
        c.clean &= !(CLEAN_INTERCEPTS | CLEAN_TPR);
    }

    /// Closes the interrupt window.
    #[inline]
    pub(super) fn close_window(&mut self) {
        if self.virq == Virq::Window {
            self.set_virq(Virq::Off, 0);
        }
    }

    /// Takes in what became of the virtual interrupt and of an interrupted delivery.
    #[inline]
    fn settle_events(&mut self) {
        let c = &mut self.vmcb.get_mut().control;
        let (pending, info) = (c.int_ctl & V_IRQ != 0, c.exit_int_info);
        c.event_inj = 0;
        if self.virq == Virq::Vector && !pending {
            self.virq = Virq::Off;
        }
        match event::redeliver(info) {
            Redelivery::Nothing => {}
            Redelivery::Inject(event) => self.vmcb.get_mut().control.event_inj = event,
            Redelivery::Interrupt(vector) => self.set_virq(Virq::Vector, vector),
        }
    }

    /// Starts or ends the time in which a further NMI must wait; IRET is watched meanwhile.
    pub(super) fn set_nmi_mask(&mut self, on: bool) {
        self.nmi_masked = on;
        self.watch_iret(on);
    }

    /// The guest is about to execute an IRET that was watched.
    pub(super) fn reached_iret(&mut self) {
        self.at_iret = true;
        self.set_nmi_mask(false);
    }

    #[inline]
    fn watch_iret(&mut self, on: bool) {
        let c = &mut self.vmcb.get_mut().control;
        if (c.intercept_1 & intercept::IRET != 0) == on {
            return;
        }
        c.intercept_1 ^= intercept::IRET;
        c.clean &= !CLEAN_INTERCEPTS;
    }
}

impl GuestContext for SvmVcpu {
    #[inline]
    fn gprs(&self) -> &Gprs {
        &self.gprs
    }

    #[inline]
    fn gprs_mut(&mut self) -> &mut Gprs {
        &mut self.gprs
    }

    #[inline]
    fn rip(&self) -> u64 {
        self.vmcb.get().save.rip
    }

    /// Also ends RFLAGS.RF and, for a guest that single-steps, raises the trap that the skipped instruction owes.
    #[inline]
    fn set_rip(&mut self, rip: u64) {
        let vmcb = self.vmcb.get_mut();
        vmcb.save.rip = rip;
        vmcb.control.int_state = 0;
        let rflags = vmcb.save.rflags;
        if rflags & (RFLAGS_RF | RFLAGS_TF) != 0 {
            vmcb.save.rflags = rflags & !RFLAGS_RF;
            if rflags & RFLAGS_TF != 0 && self.inject(Event::Exception(1, None)) {
                let vmcb = self.vmcb.get_mut();
                vmcb.save.dr6 |= DR6_BS;
                vmcb.control.clean &= !CLEAN_DRX;
            }
        }
    }

    #[inline]
    fn paging(&self) -> PagingState {
        state::paging(&self.vmcb.get().save)
    }

    fn state(&self) -> SystemState {
        state::read(&self.vmcb.get().save)
    }

    fn set_state(&mut self, new: &SystemState) {
        let vmcb = self.vmcb.get_mut();
        state::write(&mut vmcb.save, new);
        let c = &mut vmcb.control;
        c.int_state = 0;
        c.event_inj = 0;
        c.clean = 0;
        self.set_nmi_mask(false);
        self.set_virq(Virq::Off, 0);
    }

    fn set_cr4(&mut self, value: u64) {
        let vmcb = self.vmcb.get_mut();
        vmcb.save.cr4 = value;
        vmcb.control.clean &= !CLEAN_CRX;
        // No generation is that high: the next entry flushes.
        self.flushed = u64::MAX;
    }

    fn context_msr(&self, index: u32) -> Option<u64> {
        self.read_msr(index)
    }

    fn set_context_msr(&mut self, index: u32, value: u64) -> bool {
        self.write_msr(index, value)
    }

    fn set_xcr0(&mut self, value: u64) {
        self.switched.set_xcr0(value);
    }

    fn xcr0(&self) -> u64 {
        self.switched.xcr0()
    }

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
        let c = &mut self.vmcb.get_mut().control;
        c.tsc_offset = offset;
        c.clean &= !CLEAN_INTERCEPTS;
    }

    fn enter_cpu(&mut self) {
        let cpu = cpu::this_cpu();
        self.cpu = Some(cpu);
        if !core::ptr::eq(self.last_cpu, cpu) {
            // Tag and cached control block belong to another CPU.
            self.last_cpu = cpu;
            self.tag = AsidTag::default();
            self.vmcb.get_mut().control.clean = 0;
        }
        self.switched.load();
    }

    fn leave(&mut self) {
        self.switched.save();
        self.cpu = None;
    }

    fn run(&mut self, stage2: &Stage2) -> Exit {
        let cpu = self.cpu.expect("a vCPU runs between enter_cpu and leave");
        loop {
            self.prepare_tlb(cpu, stage2);
            let requested = self.virq != Virq::Off;
            let emulated = quirks::emulated();
            let save = &mut self.vmcb.get_mut().save;
            save.rax = self.gprs.get(Gpr::Rax);
            save.rsp = self.gprs.get(Gpr::Rsp);
            let before = emulated.then(|| Before::of(self.vmcb.get_mut(), &self.gprs));
            // SAFETY: interrupts are off throughout the hypervisor. The control block came from `OwnedVmcb::new`, which
            // turned nested paging on and intercepts all physical interrupts; setters keep that. Its root is that of
            // `stage2` (`prepare_tlb`), which the caller keeps alive. `cpu` is the CPU that we run on (`enter_cpu`),
            // enabled for SVM.
            unsafe { entry::enter(&mut self.gprs, self.vmcb.hpa().0, cpu.host_vmcb.0) };
            if let Some(before) = before
                && Before::exited_twice(self.vmcb.get())
            {
                if before.restore(self.vmcb.get_mut(), &self.gprs) {
                    quirks::exit_repaired();
                    self.flushed = u64::MAX;
                    continue;
                }
                return self.unsupported();
            }
            let vmcb = self.vmcb.get_mut();
            self.gprs.set(Gpr::Rax, vmcb.save.rax);
            self.gprs.set(Gpr::Rsp, vmcb.save.rsp);
            let c = &mut vmcb.control;
            c.clean = CLEAN_ALL;
            c.tlb_control = TLB_KEEP;
            self.settle_events();
            if requested && emulated {
                apic::look_again();
            }
            if let Some(exit) = self.decode() {
                return exit;
            }
        }
    }

    #[cold]
    fn exit_number(&self) -> u32 {
        self.vmcb.get().control.exit_code as u32
    }

    #[inline]
    fn interruptible(&self) -> bool {
        let vmcb = self.vmcb.get();
        vmcb.save.rflags & RFLAGS_IF != 0
            && vmcb.control.int_state & INT_SHADOW == 0
            && vmcb.control.event_inj == 0
            && self.virq != Virq::Vector
    }

    #[inline]
    fn interrupts_enabled(&self) -> bool {
        self.vmcb.get().save.rflags & RFLAGS_IF != 0
    }

    /// False also for an NMI while an earlier one is being handled; [`Exit::InterruptWindow`] follows when it returns.
    ///
    /// An interrupt goes by the virtual interrupt, not by event injection: QEMU's emulation of the latter delivers some
    /// interrupts twice, the second time without regard to RFLAGS.IF (its VMRUN leaves the vector behind as a pending exception,
    /// which comes up if another CPU happens to stop this one before the next exit).
    #[inline]
    fn inject(&mut self, event: Event) -> bool {
        if let Event::Interrupt(vector) = event {
            let free = self.virq != Virq::Vector;
            if free {
                self.set_virq(Virq::Vector, vector);
            }
            return free;
        }
        if self.vmcb.get().control.event_inj != 0 {
            return false;
        }
        let encoded = match event {
            Event::Exception(vector, error) => event::exception(vector, error),
            Event::Nmi if self.nmi_masked => return false,
            _ => {
                self.set_nmi_mask(true);
                event::nmi()
            }
        };
        self.vmcb.get_mut().control.event_inj = encoded;
        true
    }

    #[inline]
    fn injecting(&self) -> bool {
        self.virq == Virq::Vector || self.vmcb.get().control.event_inj != 0
    }

    /// The request ends with the exit that it asked for. While the virtual interrupt is taken, the end of its handler is
    /// waited for instead: the window can be opened then.
    #[inline]
    fn request_window(&mut self, on: bool) {
        let given = self.virq == Virq::Vector;
        let past = core::mem::replace(&mut self.at_iret, false);
        let iret = given && (on || quirks::emulated()) && !past;
        self.watch_iret(iret || self.nmi_masked);
        if given || on == (self.virq == Virq::Window) {
            return;
        }
        self.set_virq(if on { Virq::Window } else { Virq::Off }, 0);
    }

    fn fetched_bytes(&self) -> &[u8] {
        let c = &self.vmcb.get().control;
        c.fetched.get(..usize::from(c.fetched_len)).unwrap_or(&[])
    }

    /// The hardware keeps the class alone.
    #[inline]
    fn tpr(&self, last: u8) -> u8 {
        let class = (self.vmcb.get().control.int_ctl & V_TPR_MASK) as u8;
        if class == last >> 4 { last } else { class << 4 }
    }

    /// The next write to CR8 need not be watched after this; if it must, that is asked for again.
    #[inline]
    fn set_tpr(&mut self, tpr: u8) {
        let c = &mut self.vmcb.get_mut().control;
        let new = c.int_ctl & !V_TPR_MASK | u64::from(tpr >> 4);
        if new != c.int_ctl {
            c.int_ctl = new;
            c.clean &= !CLEAN_TPR;
        }
        if c.intercept_cr & intercept::CR8_WRITE != 0 {
            c.intercept_cr &= !intercept::CR8_WRITE;
            c.clean &= !CLEAN_INTERCEPTS;
        }
    }

    /// By the intercept, not by the priority of the virtual interrupt: that is in use for other things, and QEMU takes equal
    /// priorities for higher ones.
    #[inline]
    fn watch_tpr(&mut self, _class: u8) {
        let c = &mut self.vmcb.get_mut().control;
        if c.intercept_cr & intercept::CR8_WRITE == 0 {
            c.intercept_cr |= intercept::CR8_WRITE;
            c.clean &= !CLEAN_INTERCEPTS;
        }
    }
}
