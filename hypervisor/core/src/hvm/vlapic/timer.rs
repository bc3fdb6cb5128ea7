//! The local APIC timer: one-shot, periodic and TSC-deadline, counted at Xen's bus clock of 100 MHz.

use x86_model::apic::{Lvt, TimerMode, timer_divisor};

/// Nanoseconds per bus clock.
const BUS_NS: u64 = 10;
/// Periods shorter than this expire late: a guest cannot load the host's timer with more than this rate.
const MIN_PERIOD_NS: u64 = 50_000;

/// When the timer wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Nanoseconds of the host clock.
    Ns(u64),
    /// A value of the guest's TSC.
    GuestTsc(u64),
}

/// Counting state.
#[derive(Clone, Debug, Default)]
pub(super) struct Timer {
    initial: u32,
    divide: u32,
    /// Host time at which the count was, or in periodic mode last would have been, `initial`. May lie before time 0
    /// after a change of the divisor.
    start_ns: i64,
    /// The count runs.
    armed: bool,
    tsc_deadline: u64,
}

impl Timer {
    fn tick_ns(&self) -> u64 {
        BUS_NS * u64::from(timer_divisor(self.divide))
    }

    fn period_ns(&self) -> u64 {
        // At most 2^32 * 1280.
        u64::from(self.initial) * self.tick_ns()
    }

    fn elapsed_ns(&self, now_ns: u64) -> u64 {
        u64::try_from(now_ns.cast_signed().saturating_sub(self.start_ns)).unwrap_or(0)
    }

    fn after(&self, ns: u64) -> Deadline {
        Deadline::Ns(u64::try_from(self.start_ns.saturating_add(ns.cast_signed())).unwrap_or(0))
    }

    pub(super) fn initial(&self) -> u32 {
        self.initial
    }

    pub(super) fn divide(&self) -> u32 {
        self.divide
    }

    pub(super) fn tsc_deadline(&self, lvt: Lvt) -> u64 {
        if lvt.timer_mode() == TimerMode::TscDeadline {
            self.tsc_deadline
        } else {
            0
        }
    }

    pub(super) fn set_initial(&mut self, lvt: Lvt, value: u32, now_ns: u64) {
        if lvt.timer_mode() == TimerMode::TscDeadline {
            return;
        }
        self.initial = value;
        self.start_ns = now_ns.cast_signed();
        self.armed = value != 0;
    }

    pub(super) fn set_tsc_deadline(&mut self, lvt: Lvt, value: u64) {
        if lvt.timer_mode() == TimerMode::TscDeadline {
            self.tsc_deadline = value;
        }
    }

    /// The count goes on from its present value at the new rate.
    pub(super) fn set_divide(&mut self, lvt: Lvt, value: u32, now_ns: u64) {
        let left = u64::from(self.current(lvt, now_ns));
        self.divide = value & 0xb;
        if self.armed {
            let done = (u64::from(self.initial) - left) * self.tick_ns();
            self.start_ns = now_ns.cast_signed().saturating_sub(done.cast_signed());
        }
    }

    /// A change between deadline mode and the others stops the timer.
    pub(super) fn mode_changed(&mut self, old: Lvt, new: Lvt) {
        let deadline = |l: Lvt| l.timer_mode() == TimerMode::TscDeadline;
        if deadline(old) != deadline(new) {
            self.initial = 0;
            self.armed = false;
            self.tsc_deadline = 0;
        }
    }

    /// The current-count register.
    pub(super) fn current(&self, lvt: Lvt, now_ns: u64) -> u32 {
        if !self.armed || self.initial == 0 {
            return 0;
        }
        let ticks = self.elapsed_ns(now_ns) / self.tick_ns();
        let initial = u64::from(self.initial);
        let left = match lvt.timer_mode() {
            TimerMode::Periodic => initial - ticks % initial,
            TimerMode::OneShot => initial.saturating_sub(ticks),
            TimerMode::TscDeadline | TimerMode::Reserved => 0,
        };
        left as u32
    }

    /// When it next expires; `None` if it is stopped.
    pub(super) fn deadline(&self, lvt: Lvt) -> Option<Deadline> {
        match lvt.timer_mode() {
            TimerMode::TscDeadline => {
                (self.tsc_deadline != 0).then_some(Deadline::GuestTsc(self.tsc_deadline))
            }
            TimerMode::OneShot => self.armed.then(|| self.after(self.period_ns())),
            TimerMode::Periodic => {
                let period = self.period_ns().max(MIN_PERIOD_NS);
                self.armed.then(|| self.after(period))
            }
            TimerMode::Reserved => None,
        }
    }

    /// Advances to now; true if it expired. Missed periods count as one.
    pub(super) fn expire(&mut self, lvt: Lvt, now_ns: u64, guest_tsc: u64) -> bool {
        match self.deadline(lvt) {
            Some(Deadline::Ns(at)) if now_ns >= at => {
                if lvt.timer_mode() == TimerMode::Periodic {
                    let period = self.period_ns();
                    let late = self.elapsed_ns(now_ns);
                    self.start_ns = now_ns
                        .cast_signed()
                        .saturating_sub((late % period).cast_signed());
                } else {
                    self.armed = false;
                }
                true
            }
            Some(Deadline::GuestTsc(at)) if guest_tsc >= at => {
                self.tsc_deadline = 0;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_SHOT: Lvt = Lvt(0x40);
    const PERIODIC: Lvt = Lvt(0x2_0040);
    const DEADLINE: Lvt = Lvt(0x4_0040);

    #[test]
    fn one_shot_counts_down_once() {
        let mut t = Timer::default();
        t.set_divide(ONE_SHOT, 0xb, 0);
        t.set_initial(ONE_SHOT, 1000, 5_000);
        assert_eq!(t.deadline(ONE_SHOT), Some(Deadline::Ns(15_000)));
        assert_eq!(t.current(ONE_SHOT, 10_000), 500);
        assert!(!t.expire(ONE_SHOT, 14_999, 0));
        assert!(t.expire(ONE_SHOT, 15_000, 0));
        assert_eq!(
            (t.deadline(ONE_SHOT), t.current(ONE_SHOT, 16_000)),
            (None, 0)
        );
    }

    #[test]
    fn periodic_keeps_phase_and_merges_missed_ticks() {
        let mut t = Timer::default();
        // Divide by 2: 20 ns a tick, 100 us a period.
        t.set_initial(PERIODIC, 5_000, 0);
        assert!(t.expire(PERIODIC, 350_000, 0));
        assert_eq!(t.deadline(PERIODIC), Some(Deadline::Ns(400_000)));
        assert_eq!(t.current(PERIODIC, 360_000), 2_000);
    }

    #[test]
    fn tiny_periods_are_throttled() {
        let mut t = Timer::default();
        t.set_initial(PERIODIC, 1, 1_000);
        assert_eq!(t.deadline(PERIODIC), Some(Deadline::Ns(51_000)));
        assert!(t.expire(PERIODIC, 51_000, 0));
    }

    #[test]
    fn divide_change_keeps_the_count() {
        let mut t = Timer::default();
        t.set_divide(ONE_SHOT, 0xb, 0);
        t.set_initial(ONE_SHOT, 1000, 100_000);
        t.set_divide(ONE_SHOT, 0xa, 104_000);
        assert_eq!(t.current(ONE_SHOT, 104_000), 600);
        assert_eq!(
            t.deadline(ONE_SHOT),
            Some(Deadline::Ns(104_000 + 600 * 1280))
        );
    }

    #[test]
    fn a_start_before_time_zero_is_fine() {
        let mut t = Timer::default();
        t.set_divide(PERIODIC, 0xb, 0);
        t.set_initial(PERIODIC, 6_000, 0);
        // 5,000 ticks done, now of 1,280 ns each: the start lies 6.4 ms back, in the past of time 0.
        t.set_divide(PERIODIC, 0xa, 50_000);
        assert_eq!(t.current(PERIODIC, 50_000), 1_000);
        assert!(t.expire(PERIODIC, 50_000 + 1_000 * 1_280, 0));
        assert_eq!(t.current(PERIODIC, 50_000 + 1_000 * 1_280), 6_000);
        assert!(!t.expire(PERIODIC, 50_000 + 1_000 * 1_280, 0));
    }

    #[test]
    fn tsc_deadline_is_one_shot_and_ignores_the_count() {
        let mut t = Timer::default();
        t.set_initial(DEADLINE, 77, 0);
        t.set_tsc_deadline(DEADLINE, 900);
        assert_eq!((t.initial(), t.tsc_deadline(DEADLINE)), (0, 900));
        assert!(!t.expire(DEADLINE, 0, 899));
        assert!(t.expire(DEADLINE, 0, 900));
        assert_eq!(t.tsc_deadline(DEADLINE), 0);
        t.set_tsc_deadline(DEADLINE, 900);
        t.mode_changed(DEADLINE, ONE_SHOT);
        assert_eq!(t.deadline(ONE_SHOT), None);
    }
}
