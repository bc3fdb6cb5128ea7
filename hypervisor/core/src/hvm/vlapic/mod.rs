//! Virtual local APIC, in xAPIC and x2APIC mode.
//!
//! [`Vlapic`] is owned by the vCPU's run loop and needs no lock. Everyone else sees [`LapicPost`], a set of atomics in
//! the vCPU's shared half, into which interrupts are posted and which the run loop merges before guest entry. Register
//! writes return what they ask for as an [`Effect`]; the APIC calls nobody.
//!
//! ```text
//! // before entry
//! if post.is_pending() { let m = lapic.merge(&post); /* m.nmi, m.init, m.sipi */ }
//! if lapic.timer_due(now_ns, guest_tsc) { }            // sets its own IRR bit
//! if ctx.interruptible() {
//!     if let Some(v) = lapic.pending_vector() { if ctx.inject(Event::Interrupt(v)) { lapic.ack(v); } }
//! } else if lapic.pending_vector().is_some() { ctx.request_window(true) }
//! if let Some(v) = lapic.blocked_by_tpr() { ctx.watch_tpr(v >> 4) }
//! host_timer(lapic.timer_deadline());
//! // on an access
//! let effect = lapic.mmio_write(offset, width, value, now)?;   // or wrmsr
//! match effect {
//!     Effect::None | Effect::Timer => {}
//!     Effect::SoftwareEnabled => /* re-raise the event-channel upcall vector if an upcall is pending */,
//!     Effect::Ipi(ipi) => { ipi.resolve(Some(me), n, |v| posts[v].facts(), |v| if posts[v].deliver(ipi.mode, ipi.vector, false) { kick(v) }); }
//!     Effect::Eoi(vector) => /* tell the virtual IO-APICs */,
//! }
//! ```

mod dest;
mod post;
mod record;
mod regs;
mod timer;
mod vectors;

pub use dest::{DestSpec, Ipi};
pub use post::{ApicFacts, LapicPost, Merged};
pub use timer::Deadline;
pub use vectors::Vectors;

use hv_hw::machine::ApicVectors;
use x86_model::apic::{
    ApicBase, ApicMode, DEFAULT_BASE, DeliveryMode, ESR_RECEIVE_ILLEGAL, Lvt, SVR_ENABLE, reg,
    x2apic_ldr,
};

use timer::Timer;
use x86_model::policy::topology::apic_id;

/// What a register access asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The APIC became software-enabled: an event-channel upcall that was raised before was not accepted and must be
    /// raised again if it is still pending.
    SoftwareEnabled,
    /// An inter-processor interrupt. One to the sender alone never gets here.
    Ipi(Ipi),
    /// The guest ended a level-triggered interrupt of this vector.
    Eoi(u8),
    /// [`Vlapic::timer_deadline`] may have changed.
    Timer,
}

/// What becomes of the highest request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is none that could be delivered before another interrupt ends.
    Nothing,
    /// Only the task priority is in its way.
    Held(u8),
    /// It is delivered as soon as the processor takes interrupts.
    Deliver(u8),
}

/// The access raises #GP in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gp;

/// The clocks at the time of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Host time in nanoseconds.
    pub now_ns: u64,
    /// The guest's TSC.
    pub guest_tsc: u64,
}

/// Number of LVT entries: timer, thermal, performance, LINT0, LINT1, error.
const LVTS: usize = 6;
const LVT_TIMER: usize = 0;
const LVT_ERROR: usize = 5;

/// One vCPU's local APIC.
#[derive(Clone, Debug)]
pub struct Vlapic {
    id: u32,
    base: ApicBase,
    /// The timer's deadline mode exists (CPUID says so).
    tsc_deadline: bool,
    tpr: u8,
    svr: u32,
    /// xAPIC form; derived from the id in x2APIC mode.
    ldr: u32,
    dfr: u32,
    esr: u32,
    esr_next: u32,
    icr: u64,
    lvt: [Lvt; LVTS],
    timer: Timer,
    irr: Vectors,
    isr: Vectors,
    tmr: Vectors,
    /// Facts changed since they were published.
    unpublished: bool,
    /// Merge even if nothing is flagged: level vectors may have been put back.
    remerge: bool,
    /// What [`Vlapic::registers`] gives may have changed.
    changed: bool,
}

impl Vlapic {
    /// In its reset state. `vcpu` 0 is the boot processor; `tsc_deadline` says whether CPUID shows that timer mode.
    pub fn new(vcpu: u32, tsc_deadline: bool) -> Self {
        let bsp = if vcpu == 0 { ApicBase::BSP } else { 0 };
        Self {
            id: apic_id(vcpu),
            base: ApicBase(DEFAULT_BASE | ApicBase::EN | bsp),
            tsc_deadline,
            tpr: 0,
            svr: 0xff,
            ldr: 0,
            dfr: u32::MAX,
            esr: 0,
            esr_next: 0,
            icr: 0,
            lvt: [Lvt(Lvt::MASKED); LVTS],
            timer: Timer::default(),
            irr: Vectors::default(),
            isr: Vectors::default(),
            tmr: Vectors::default(),
            unpublished: true,
            remerge: false,
            changed: true,
        }
    }

    /// Back to the reset state, mode included: what INIT does to a virtual APIC.
    pub fn reset(&mut self) {
        *self = Self::new(self.id / 2, self.tsc_deadline);
    }

    /// APIC id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Mode by the base MSR.
    pub fn mode(&self) -> ApicMode {
        // The constructor and `set_base` admit valid modes only.
        self.base.mode().unwrap_or(ApicMode::Disabled)
    }

    /// Software-enabled, and not disabled by the base MSR.
    #[inline]
    pub fn enabled(&self) -> bool {
        self.svr & SVR_ENABLE != 0 && self.base.0 & ApicBase::EN != 0
    }

    /// By what others address this APIC.
    pub fn facts(&self) -> ApicFacts {
        let mode = self.mode();
        ApicFacts {
            id: self.id,
            mode,
            software_enabled: self.enabled(),
            ldr: if mode == ApicMode::X2Apic {
                x2apic_ldr(self.id)
            } else {
                self.ldr >> 24
            },
            cluster: self.dfr >> 28 != 0xf,
        }
    }

    /// Takes in what was posted and publishes changed facts. Call before guest entry when
    /// [`Vlapic::needs_merge`] says so.
    pub fn merge(&mut self, post: &LapicPost) -> Merged {
        if self.unpublished {
            post.publish(&self.facts());
            self.unpublished = false;
        }
        self.remerge = false;
        let (irr, level, merged) = post.take();
        if irr == [0; 4] {
            return merged;
        }
        if !self.enabled() {
            // Edges are lost; levels are sent again until they are accepted.
            post.put_back(&level);
            return merged;
        }
        for i in 0..4 {
            let legal = if i == 0 { irr[0] & !0xffff } else { irr[i] };
            self.irr.0[i] |= legal;
            // The trigger mode follows acceptance.
            self.tmr.0[i] = self.tmr.0[i] & !legal | level[i] & legal;
        }
        if irr[0] & 0xffff != 0 {
            self.error(ESR_RECEIVE_ILLEGAL);
        }
        merged
    }

    /// Takes in edge-triggered vectors that were posted by hardware's means. Dropped if the APIC is disabled.
    pub fn accept_posted(&mut self, mut words: [u64; 4]) {
        if !self.enabled() {
            return;
        }
        words[0] &= !0xffff;
        for (n, word) in words.into_iter().enumerate() {
            self.irr.0[n] |= word;
            self.tmr.0[n] &= !word;
        }
    }

    /// Whether [`Vlapic::merge`] has something to do.
    #[inline]
    pub fn needs_merge(&self, post: &LapicPost) -> bool {
        post.is_pending() || self.unpublished || self.remerge
    }

    /// Accepts an interrupt from this vCPU itself (edge). Dropped if the APIC is disabled.
    pub fn raise(&mut self, vector: u8) {
        if !self.enabled() {
            return;
        }
        if vector < 16 {
            self.error(ESR_RECEIVE_ILLEGAL);
        } else {
            self.accept(vector);
        }
    }

    fn accept(&mut self, vector: u8) {
        self.irr.insert(vector);
        self.tmr.remove(vector);
    }

    /// Records an error and raises the error vector. An illegal error vector is itself only recorded, which ends the
    /// recursion.
    fn error(&mut self, bit: u32) {
        self.esr_next |= bit;
        let lvt = self.lvt[LVT_ERROR];
        if lvt.masked() || !self.enabled() {
            return;
        }
        if lvt.vector() < 16 {
            self.esr_next |= ESR_RECEIVE_ILLEGAL;
        } else {
            self.accept(lvt.vector());
        }
    }

    /// Task priority (bits 7:4 are CR8).
    pub fn tpr(&self) -> u8 {
        self.tpr
    }

    /// Sets the task priority, for backends that let the guest change it (by CR8) without telling.
    #[inline]
    pub fn set_tpr(&mut self, tpr: u8) {
        self.tpr = tpr;
    }

    /// Processor priority.
    #[inline]
    pub fn ppr(&self) -> u8 {
        let isr = self.isr.highest().unwrap_or(0) & 0xf0;
        if self.tpr & 0xf0 >= isr {
            self.tpr
        } else {
            isr
        }
    }

    /// Whether any interrupt is requested. If none is, the task priority decides nothing.
    #[inline]
    pub fn has_requests(&self) -> bool {
        !self.irr.is_empty()
    }

    /// What becomes of the highest request.
    #[inline]
    pub fn next(&self) -> Next {
        let Some(v) = self.irr.highest().filter(|_| self.enabled()) else {
            return Next::Nothing;
        };
        let class = v >> 4;
        if class <= self.isr.highest().unwrap_or(0) >> 4 {
            Next::Nothing
        } else if class <= self.tpr >> 4 {
            Next::Held(v)
        } else {
            Next::Deliver(v)
        }
    }

    /// The interrupt to deliver now, if one has a higher priority class than the processor.
    #[inline]
    pub fn pending_vector(&self) -> Option<u8> {
        match self.next() {
            Next::Deliver(v) => Some(v),
            _ => None,
        }
    }

    /// The interrupt that would be deliverable if the task priority were zero: a reason to watch CR8.
    pub fn blocked_by_tpr(&self) -> Option<u8> {
        match self.next() {
            Next::Held(v) => Some(v),
            _ => None,
        }
    }

    /// All vectors and the task priority, for a processor that delivers them. A disabled APIC delivers none.
    pub fn vectors(&self) -> ApicVectors {
        ApicVectors {
            irr: if self.enabled() { self.irr.0 } else { [0; 4] },
            isr: self.isr.0,
            tmr: self.tmr.0,
            tpr: self.tpr,
        }
    }

    /// What the processor made of [`Vlapic::vectors`].
    pub fn set_vectors(&mut self, v: &ApicVectors) {
        if self.enabled() {
            self.irr.0 = v.irr;
        }
        self.isr.0 = v.isr;
        self.tpr = v.tpr;
    }

    /// The guest takes `vector`, as [`Vlapic::pending_vector`] named it: it goes from requested to in service.
    pub fn ack(&mut self, vector: u8) {
        self.irr.remove(vector);
        self.isr.insert(vector);
    }

    /// Ends the highest interrupt in service; its vector if it was level-triggered.
    pub fn eoi(&mut self) -> Option<u8> {
        let v = self.isr.highest()?;
        self.isr.remove(v);
        self.tmr.contains(v).then_some(v)
    }

    /// When the timer must be looked at. `None` while it is stopped or cannot interrupt.
    pub fn timer_deadline(&self) -> Option<Deadline> {
        if self.lvt[LVT_TIMER].masked() || !self.enabled() {
            return None;
        }
        self.timer.deadline(self.lvt[LVT_TIMER])
    }

    /// Lets the timer run up to now; true if it expired, and then its interrupt is requested.
    pub fn timer_due(&mut self, clocks: Clocks) -> bool {
        let lvt = self.lvt[LVT_TIMER];
        if !self.timer.expire(lvt, clocks.now_ns, clocks.guest_tsc) {
            return false;
        }
        if !lvt.masked() {
            self.raise(lvt.vector());
        }
        true
    }

    /// Reads IA32_APIC_BASE.
    pub fn base(&self) -> u64 {
        self.base.0
    }

    /// Writes IA32_APIC_BASE. The page cannot be moved; EXTD is left only through "disabled", and reached only from
    /// xAPIC mode.
    pub fn set_base(&mut self, value: u64) -> Result<Effect, Gp> {
        let new = ApicBase(value & !ApicBase::BSP | self.base.0 & ApicBase::BSP);
        let known = ApicBase::BSP | ApicBase::EXTD | ApicBase::EN;
        if new.address() != DEFAULT_BASE || new.0 & 0xfff & !known != 0 {
            return Err(Gp);
        }
        let to = new.mode().ok_or(Gp)?;
        match (self.mode(), to) {
            (ApicMode::Disabled, ApicMode::X2Apic) | (ApicMode::X2Apic, ApicMode::XApic) => {
                return Err(Gp);
            }
            (_, ApicMode::Disabled) => {
                // Disabling loses the state, as a reset does.
                self.reset();
                self.base = new;
                return Ok(Effect::Timer);
            }
            _ => {}
        }
        self.base = new;
        self.unpublished = true;
        self.changed = true;
        Ok(Effect::None)
    }

    fn lvt_index(register: u32) -> Option<usize> {
        match register {
            reg::LVT_TIMER..=reg::LVT_ERROR => Some((register - reg::LVT_TIMER) as usize >> 4),
            _ => None,
        }
    }

    fn set_svr(&mut self, value: u32) -> Effect {
        let was = self.svr & SVR_ENABLE != 0;
        // Focus checking and EOI-broadcast suppression do not exist here.
        self.svr = value & 0x1ff;
        let is = self.svr & SVR_ENABLE != 0;
        if was == is {
            return Effect::None;
        }
        self.unpublished = true;
        if is {
            self.remerge = true;
            return Effect::SoftwareEnabled;
        }
        for l in &mut self.lvt {
            l.0 |= Lvt::MASKED;
        }
        Effect::Timer
    }

    fn set_lvt(&mut self, index: usize, value: u32) -> Effect {
        let keep = match index {
            LVT_TIMER if self.tsc_deadline => 0x0007_00ff,
            LVT_TIMER => 0x0003_00ff,
            LVT_ERROR => 0x0001_00ff,
            // Thermal and performance have a delivery mode; the LINTs polarity and trigger mode as well.
            1 | 2 => 0x0001_07ff,
            _ => 0x0001_a7ff,
        };
        let mut new = Lvt(value & keep);
        if self.svr & SVR_ENABLE == 0 {
            new.0 |= Lvt::MASKED;
        }
        let old = core::mem::replace(&mut self.lvt[index], new);
        if index == LVT_TIMER {
            self.timer.mode_changed(old, new);
            return Effect::Timer;
        }
        Effect::None
    }

    fn send(&mut self, x2apic: bool) -> Effect {
        let icr = x86_model::apic::Icr(self.icr);
        if icr.mode().has_vector() && icr.vector() < 16 {
            self.error(x86_model::apic::ESR_SEND_ILLEGAL);
            return Effect::None;
        }
        match Ipi::from_icr(icr, x2apic) {
            Some(Ipi {
                dest: DestSpec::SelfOnly,
                mode,
                vector,
                ..
            }) if mode.has_vector() => {
                self.raise(vector);
                Effect::None
            }
            // The manual allows the self shorthand with vectors only.
            Some(Ipi {
                dest: DestSpec::SelfOnly,
                mode: DeliveryMode::Init | DeliveryMode::Startup,
                ..
            })
            | None => Effect::None,
            Some(ipi) => Effect::Ipi(ipi),
        }
    }
}

#[cfg(test)]
mod assisted_tests;
#[cfg(test)]
mod tests;
