//! The loop of each pCPU: choose a vCPU, run it until it sleeps or its slice ends, idle when there is none.
//!
//! Owns the pCPU's local state. Interrupts are off except at [`Machine::take_interrupt`] and in [`Machine::idle`].

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use hv_hw::machine::{CpuId, Exit, HostInterrupt};
use hv_hw::{GuestContext, Machine};

use super::exits::{self, Next};
use super::runstate::State;
use super::stats::Reason;
use super::{NEVER, NO_CPU, Sleep, Vcpu, VcpuLocal, VcpuRef, ipi, traced};
use crate::domain::{Domain, DomainRef};
use crate::hypervisor::{Hypervisor, Pcpu};
use crate::trace::Tracer;

/// The timer fired, or a deadline changed: look at the clock.
const CLOCK: u8 = 1 << 0;
/// Entries and exits are recorded. Stays set.
const TRACE: u8 = 1 << 1;

/// A pCPU's own state.
pub struct PcpuLocal {
    /// This CPU.
    pub cpu: CpuId,
    /// End of the running vCPU's slice.
    slice_end: u64,
    /// What the hardware timer is set to.
    armed: u64,
    /// What is to be done before the next entry: [`CLOCK`], [`TRACE`].
    attention: u8,
    /// For the trace buffer.
    pub tracer: Tracer,
    /// When the watchdog wants to hear of this pCPU again.
    beat_at: u64,
    /// vCPUs that last ran here and have a deadline.
    parked: Vec<VcpuRef>,
}

/// One turn of a vCPU on a pCPU: everything an exit handler may use.
pub struct Turn<'a> {
    /// The system.
    pub hv: &'a Hypervisor,
    /// This pCPU.
    pub pcpu: &'a mut PcpuLocal,
    /// The running domain.
    pub domain: &'a DomainRef,
    /// The running vCPU.
    pub vcpu: &'a VcpuRef,
    /// Its local half.
    pub local: &'a mut VcpuLocal,
}

impl PcpuLocal {
    /// State of a pCPU that has run nothing yet.
    pub fn new(cpu: CpuId) -> Self {
        PcpuLocal {
            cpu,
            slice_end: NEVER,
            armed: NEVER,
            attention: CLOCK,
            tracer: Tracer::default(),
            beat_at: 0,
            parked: Vec::new(),
        }
    }

    /// The clock is to be looked at before the next entry: the timer fired, or a deadline changed.
    #[inline]
    pub fn check_clock(&mut self) {
        self.attention |= CLOCK;
    }

    /// Takes notice of tracing that was switched on or off.
    fn look_at_trace(&mut self, hv: &Hypervisor) {
        if self.tracer.look(&hv.trace, self.cpu) {
            self.attention |= TRACE;
        } else {
            self.attention &= !TRACE;
        }
    }

    /// Whether entries and exits are recorded.
    #[inline]
    pub fn traces(&self) -> bool {
        self.attention & TRACE != 0
    }

    /// Arms the hardware timer for the earliest of the slice's end, `deadline`, the parked vCPUs' deadlines and the
    /// guests' watchdogs, and the next beat.
    fn arm(&mut self, hv: &Hypervisor, deadline: u64) {
        let parked = self
            .parked
            .iter()
            .map(|v| v.wake_at.load(Ordering::Acquire))
            .min()
            .unwrap_or(NEVER);
        let at = self
            .slice_end
            .min(deadline)
            .min(parked)
            .min(hv.watchdog_at())
            .min(self.beat_at);
        if at != self.armed {
            self.armed = at;
            hv.hw.set_timer((at != NEVER).then_some(at));
        }
    }

    /// Takes the interrupts that wait, in bounded number, and looks at what others have left to be done.
    fn take_interrupts(&mut self, hv: &Hypervisor) {
        for _ in 0..16 {
            match hv.hw.take_interrupt() {
                None => break,
                Some(HostInterrupt::Timer) => {
                    self.armed = NEVER;
                    self.check_clock();
                }
                Some(HostInterrupt::Kick | HostInterrupt::Spurious) => {}
                Some(HostInterrupt::Wake) => hv.wake_posted(self.cpu),
                Some(HostInterrupt::Posted) => {
                    let cpu = self.cpu;
                    hv.hw
                        .serve_posted(&mut |vector| hv.posted_interrupt(cpu, vector));
                }
                Some(HostInterrupt::Console) => hv.console_input(),
                Some(HostInterrupt::Device(vector)) => hv.device_interrupt(self.cpu, vector),
            }
        }
        let clean = &hv.pcpus[self.cpu.0 as usize].clean;
        if clean.load(Ordering::Relaxed) && clean.swap(false, Ordering::SeqCst) {
            hv.clean_vectors(self.cpu);
        }
        if let Some(adopted) = hv.pcpus[self.cpu.0 as usize].hotplug.take_adopted() {
            self.parked.extend(adopted);
            self.check_clock();
        }
        // Not before each entry, which would cost every exit: a timer comes soon enough.
        if hv.has_log_news() {
            hv.tell_log_news();
        }
    }

    /// Wakes parked vCPUs whose time has come; forgets those that run or moved elsewhere. Looks at the watchdogs.
    fn expire_parked(&mut self, hv: &Hypervisor, now: u64) {
        hv.bite(now);
        if now >= self.beat_at {
            let (next, silent) = hv.heartbeat.beat(self.cpu, now);
            self.beat_at = next;
            if let Some(cpu) = silent {
                hv.hw.hangs(cpu, hv.heartbeat.timeout_s());
            }
        }
        let here = self.cpu.0;
        self.parked.retain(|v| {
            // One that moved is watched by its new home alone.
            if v.home.load(Ordering::Acquire) == here {
                hv.expire_sleeper(v, now);
            }
            v.home.load(Ordering::Acquire) == here && v.wake_at.load(Ordering::Acquire) != NEVER
        });
    }
}

/// Runs this pCPU until it is taken away.
pub fn cpu_loop(hv: &Hypervisor, cpu: CpuId) -> ! {
    let mut pcpu = PcpuLocal::new(cpu);
    while !hv.pcpus[cpu.0 as usize].hotplug.must_leave() {
        step(hv, &mut pcpu);
    }
    hv.hand_over(cpu, pcpu.parked);
    hv.hw.stop_cpu()
}

/// One choice of the scheduler and what follows from it; returns when the pCPU must choose again.
pub fn step(hv: &Hypervisor, pcpu: &mut PcpuLocal) {
    pcpu.take_interrupts(hv);
    let now = hv.hw.now_ns();
    pcpu.expire_parked(hv, now);
    let shared = &hv.pcpus[pcpu.cpu.0 as usize];
    shared.resched.store(false, Ordering::SeqCst);
    pcpu.look_at_trace(hv);
    let pick = hv.sched.with(|p| p.pick(pcpu.cpu, now));
    pcpu.slice_end = pick.until_ns;
    match pick.vcpu.map(|key| (key, hv.vcpu(key))) {
        Some((_, Some((domain, vcpu)))) => run_vcpu(hv, pcpu, &domain, &vcpu),
        // Its domain has just gone, and the scheduler's entry with it.
        Some((_, None)) => {
            let _ = hv.sched.with(|p| p.put(pcpu.cpu, now, false));
        }
        None => {
            pcpu.slice_end = NEVER;
            pcpu.arm(hv, NEVER);
            if pcpu.traces() {
                pcpu.tracer.turn_to(hv, pcpu.cpu, None);
            }
            hv.hw
                .idle(&mut || shared.resched.load(Ordering::SeqCst) || hv.has_log_news());
            let idle = hv.hw.now_ns().saturating_sub(now);
            shared.idle_ns.fetch_add(idle, Ordering::Relaxed);
            if pcpu.traces() {
                let tracer = &pcpu.tracer;
                tracer.state(hv, pcpu.cpu, State::Running, State::Runnable);
            }
        }
    }
}

fn run_vcpu(hv: &Hypervisor, pcpu: &mut PcpuLocal, domain: &DomainRef, vcpu: &VcpuRef) {
    let cpu = pcpu.cpu;
    // Never contended: the scheduler gives a vCPU to one pCPU at a time, and the previous one let go before `put`.
    let Some(mut guard) = vcpu.local.try_lock() else {
        put(hv, cpu, vcpu, State::Runnable, domain);
        return;
    };
    let local = &mut *guard;
    vcpu.running_on.store(cpu.0, Ordering::SeqCst);
    vcpu.home.store(cpu.0, Ordering::Release);
    hv.posting_runs(vcpu, cpu);
    vcpu.areas.update_clock(&hv.clock());
    vcpu.runstate.enter(
        State::Running,
        hv.hw.now_ns(),
        &vcpu.areas,
        domain.flags_runstate(),
    );
    local.ctx.enter_cpu();
    pcpu.check_clock();
    if pcpu.traces() {
        pcpu.tracer.turn_to(hv, cpu, Some(vcpu.key));
    }
    let mut turn = Turn {
        hv,
        pcpu,
        domain,
        vcpu,
        local,
    };
    let ended = turn.run();
    if turn.pcpu.traces() {
        turn.trace_end(ended);
    }
    local.ctx.leave();
    local.walks.get_mut().clear();
    vcpu.entered_generation.store(NEVER, Ordering::SeqCst);
    if ended != State::Blocked
        && let Some(p) = &vcpu.posting
    {
        p.target.preempt();
    }
    let deadline = vcpu.wake_at.load(Ordering::Acquire);
    vcpu.running_on.store(NO_CPU, Ordering::SeqCst);
    drop(guard);
    if deadline != NEVER && !pcpu.parked.iter().any(|v| Arc::ptr_eq(v, vcpu)) {
        pcpu.parked.push(vcpu.clone());
    }
    put(hv, cpu, vcpu, ended, domain);
}

/// Gives the vCPU back to the scheduler. Whether it still wants a pCPU is decided under the scheduler's lock, where
/// wake-ups are serialised.
fn put(hv: &Hypervisor, cpu: CpuId, vcpu: &Vcpu, ended: State, domain: &Domain) {
    let now = hv.hw.now_ns();
    vcpu.runstate
        .enter(ended, now, &vcpu.areas, domain.flags_runstate());
    if let Some(other) = hv.sched.with(|p| p.put(cpu, now, vcpu.wants_cpu())) {
        hv.resched(other);
    }
}

impl Turn<'_> {
    /// Runs the vCPU until it sleeps, goes down or must give way. Returns the run state that it is left in.
    fn run(&mut self) -> State {
        self.vcpu.wake_at.store(NEVER, Ordering::Release);
        let mut spent = (Reason::Schedule, self.hv.hw.tsc());
        self.vcpu.stats.count(spent.0);
        let state = self.enter_and_exit(&mut spent);
        self.account(spent);
        state
    }

    /// The hypervisor is done with what began at this time.
    #[inline]
    fn account(&self, (reason, since): (Reason, u64)) {
        if cfg!(CONFIG_EXIT_TIMES) {
            let now = self.hv.hw.tsc();
            self.vcpu.stats.time(reason, now.wrapping_sub(since));
        }
    }

    /// `spent` says what the time is spent on, and since when.
    #[inline]
    fn enter_and_exit(&mut self, spent: &mut (Reason, u64)) -> State {
        // As in `before_entry`.
        let (hv, vcpu): (&Hypervisor, &Vcpu) = (self.hv, self.vcpu);
        let shared = &hv.pcpus[self.pcpu.cpu.0 as usize];
        let stage2 = self.domain.p2m.stage2();
        // Does not change within a turn.
        let traced = self.pcpu.traces();
        loop {
            if let Some(state) = self.before_entry(shared) {
                return state;
            }
            self.account(*spent);
            if traced {
                self.trace_entry();
            }
            vcpu.entered_generation
                .store(stage2.generation(), Ordering::SeqCst);
            let exit = self.local.ctx.run(stage2);
            vcpu.entered_generation.store(NEVER, Ordering::Release);
            let reason = Reason::of(&exit);
            vcpu.stats.count(reason);
            if cfg!(CONFIG_EXIT_TIMES) {
                *spent = (reason, self.hv.hw.tsc());
            }
            self.local.take_delivery();
            if traced {
                self.trace_exit(reason, traced::detail(&exit));
            }
            match exit {
                Exit::Interrupt => self.pcpu.take_interrupts(self.hv),
                Exit::InterruptWindow | Exit::Nmi => {}
                other => match exits::handle(self, other) {
                    Next::Continue => {}
                    Next::Yield => return self.preempted(),
                    Next::Sleep(how, timeout) => {
                        let sleeps = self.arm_wake()
                            && self.local.try_sleep(self.domain, self.vcpu, how, timeout);
                        if sleeps {
                            return State::Blocked;
                        }
                        self.disarm_wake();
                    }
                    Next::Down => {
                        self.vcpu.up.store(false, Ordering::SeqCst);
                        fence(Ordering::SeqCst);
                        // An INIT that came before was posted to a vCPU that was up: nobody else will act on it.
                        self.local.merge_posted(self.vcpu);
                        if self.local.reset.is_none() {
                            return State::Offline;
                        }
                    }
                },
            }
        }
    }

    /// Everything that may have changed since the last exit. `Some` if the vCPU must not be entered now.
    #[inline]
    fn before_entry(&mut self, shared: &Pcpu) -> Option<State> {
        if shared.resched.load(Ordering::Relaxed) {
            return Some(self.preempted());
        }
        if self.pcpu.attention != 0
            && let Some(state) = self.attend()
        {
            return Some(state);
        }
        // References of their own: what they point to need not be looked up again after each call.
        let (domain, vcpu): (&Domain, &Vcpu) = (self.domain, self.vcpu);
        self.local.merge_posted(vcpu);
        if self.local.reset.is_some() {
            ipi::take_reset(self);
        }
        if !vcpu.up.load(Ordering::Relaxed) || vcpu.pause.load(Ordering::Relaxed) != 0 {
            return Some(State::Offline);
        }
        self.local.inject_pending(domain, vcpu);
        None
    }

    /// What else is to be done before an entry. `Some` if the vCPU must not be entered now.
    #[cold]
    fn attend(&mut self) -> Option<State> {
        if self.pcpu.attention & CLOCK != 0 {
            self.pcpu.attention &= !CLOCK;
            self.hv.fire_timers(self.domain, self.vcpu, self.local);
            let now = self.hv.hw.now_ns();
            self.pcpu.expire_parked(self.hv, now);
            if now >= self.pcpu.slice_end {
                return Some(self.preempted());
            }
            let deadline = self.vcpu.next_deadline(self.local.lapic_deadline());
            self.pcpu.arm(self.hv, deadline);
        }
        if self.pcpu.traces() {
            self.trace_answer();
        }
        None
    }

    /// The vCPU stays runnable but must be watched for its deadline while it waits.
    fn preempted(&mut self) -> State {
        let deadline = self.vcpu.next_deadline(self.local.lapic_deadline());
        self.vcpu.wake_at.store(deadline, Ordering::Release);
        State::Runnable
    }

    /// Moves RIP past an instruction of `len` bytes.
    #[inline]
    pub fn skip(&mut self, len: u8) {
        let rip = self.local.ctx.rip().wrapping_add(u64::from(len));
        let rip = if self.local.ctx.paging().long {
            rip
        } else {
            rip & 0xffff_ffff
        };
        self.local.ctx.set_rip(rip);
    }
}

/// Puts a vCPU to sleep state values into words, for the debug keys.
pub fn sleep_name(sleep: u8) -> &'static str {
    match sleep {
        s if s == Sleep::Halted as u8 => "halted",
        s if s == Sleep::Polling as u8 => "polling",
        _ => "awake",
    }
}
