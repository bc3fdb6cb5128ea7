//! How a starting CPU and the boot CPU meet, and how a CPU is stopped that may not have its trap handlers yet. Both are
//! decided by one atomic operation on one word, so each side knows what the other knows.

use core::fmt;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sync::Word;

/// How far a CPU has come. The numbers grow on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stage {
    /// Nothing was heard of it.
    Silent = 0,
    /// It has left real mode and found its record (written by the start-up code in assembly).
    LongMode = 1,
    /// Stack, CPU block and trap handlers.
    Traps = 2,
    /// Local APIC.
    Apic = 3,
    /// Comparison of features, memory types, microcode and TSC with the boot CPU.
    Checks = 4,
    /// Timer and virtualization.
    Virtualization = 5,
    /// It has reported.
    Reported = 6,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Silent,
        Self::LongMode,
        Self::Traps,
        Self::Apic,
        Self::Checks,
        Self::Virtualization,
        Self::Reported,
    ];
    fn from_word(word: u32) -> Self {
        Self::ALL
            .get(word as usize)
            .copied()
            .unwrap_or(Self::Reported)
    }
}

impl fmt::Display for Stage {
    /// After "last seen": "in long mode".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "nowhere: it did not answer the start-up message",
            Self::LongMode => "in long mode, before its trap handlers",
            Self::Traps => "with its trap handlers, before its local APIC",
            Self::Apic => "with its local APIC on, before the checks",
            Self::Checks => "after the checks, before timer and virtualization",
            Self::Virtualization => "with virtualization on, before its report",
            Self::Reported => "at its report",
        })
    }
}

/// What a CPU says of itself in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Report {
    /// It is ready for work.
    Up = 1,
    /// It is ready and sleeps for ever, as it was told.
    Parked = 2,
    /// It cannot be used.
    Broken = 3,
}

const WAITING: u32 = 0;
const ABANDONED: u32 = 4;

/// One CPU's call-in. Its lay-out is C's, for the start-up code.
#[repr(C)]
pub struct CallIn<W> {
    stage: W,
    state: W,
}

/// Offset of the stage, which the start-up code sets to [`Stage::LongMode`].
pub const STAGE_OFFSET: usize = offset_of!(CallIn<AtomicU32>, stage);

impl<W> CallIn<W> {
    /// From two cells that hold 0.
    pub const fn new(stage: W, state: W) -> Self {
        Self { stage, state }
    }
}

impl<W: Word> CallIn<W> {
    /// The starting CPU has come this far.
    pub fn reach(&self, stage: Stage) {
        self.stage.store(stage as u32, Ordering::Release);
    }

    /// The starting CPU reports, once. False if the boot CPU has given it up: then it must stop, touching nothing that is
    /// shared. Everything it wrote before is seen by the boot CPU after [`CallIn::close`].
    pub fn report(&self, report: Report) -> bool {
        self.reach(Stage::Reported);
        self.state.exchange(WAITING, report as u32).is_ok()
    }

    /// A CPU that has reported, and has stopped since, is started again. False if it was given up: then it may still come.
    pub fn reopen(&self) -> bool {
        if self.state.load(Ordering::Acquire) == ABANDONED {
            return false;
        }
        self.stage.store(Stage::Silent as u32, Ordering::Release);
        self.state.store(WAITING, Ordering::Release);
        true
    }

    /// Whether the report is still awaited.
    pub fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING
    }

    /// The boot CPU waits no longer. The report, or how far the CPU had come; a CPU without a report is given up for ever.
    pub fn close(&self) -> Result<Report, Stage> {
        match self.state.exchange(WAITING, ABANDONED) {
            Err(1) => Ok(Report::Up),
            Err(2) => Ok(Report::Parked),
            Err(3) => Ok(Report::Broken),
            _ => Err(Stage::from_word(self.stage.load(Ordering::Acquire))),
        }
    }
}

const TRAPS: u32 = 1;
const STOP: u32 = 2;

/// A CPU's stop request. An NMI to a CPU without trap handlers resets the machine, so such a CPU is not sent one; it looks
/// at the request when it has its handlers. One word decides who acts: never both, never neither.
pub struct StopRequest<W>(W);

impl<W> StopRequest<W> {
    /// From a cell that holds 0.
    pub const fn new(cell: W) -> Self {
        Self(cell)
    }
}

impl<W: Word> StopRequest<W> {
    /// This CPU has its trap handlers. True if it was asked to stop before: then nobody sends an NMI.
    pub fn traps_ready(&self) -> bool {
        self.0.fetch_or(TRAPS, Ordering::AcqRel) & STOP != 0
    }

    /// Asks the CPU to stop. True if an NMI must make it look; false if it will look by itself when it has handlers.
    pub fn ask(&self) -> bool {
        self.0.fetch_or(STOP, Ordering::AcqRel) & TRAPS != 0
    }

    /// Whether it was asked to.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Acquire) & STOP != 0
    }

    /// Whether the CPU can take an NMI.
    pub fn takes_nmi(&self) -> bool {
        self.0.load(Ordering::Acquire) & TRAPS != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn fresh() -> CallIn<AtomicU32> {
        CallIn::new(AtomicU32::new(0), AtomicU32::new(0))
    }

    #[test]
    fn a_report_in_time_counts_once() {
        for report in [Report::Up, Report::Parked, Report::Broken] {
            let c = fresh();
            assert!(c.is_waiting());
            assert!(c.report(report));
            assert!(!c.is_waiting());
            assert_eq!(c.close(), Ok(report));
            assert_eq!(c.close(), Ok(report));
            assert!(!c.report(Report::Up));
            assert!(c.reopen() && c.is_waiting());
            assert!(c.report(report));
        }
    }

    #[test]
    fn a_late_cpu_is_named_with_its_stage_and_learns_of_it() {
        for stage in Stage::ALL {
            let c = fresh();
            c.reach(stage);
            assert_eq!(c.close(), Err(stage));
            assert!(!c.report(Report::Up));
            assert!(c.close().is_err() && !c.reopen());
        }
        assert!(Stage::Silent.to_string().contains("did not answer"));
        assert!(Stage::ALL.is_sorted());
    }

    #[test]
    fn the_start_up_code_knows_the_number() {
        assert_eq!((Stage::LongMode as u32, STAGE_OFFSET), (1, 0));
    }

    #[test]
    fn stop_requests() {
        let early = StopRequest::new(AtomicU32::new(0));
        assert!(!early.ask() && early.traps_ready() && early.asked());
        let late = StopRequest::new(AtomicU32::new(0));
        assert!(!late.takes_nmi() && !late.traps_ready());
        assert!(late.takes_nmi() && !late.asked() && late.ask() && late.asked());
    }
}
