//! Posted MSIs of the host: all device messages of a CPU are posted into one descriptor, and one notification vector has
//! them served together. During a burst ON stays set, so the unit sends no further notifications, and entering and ending
//! an interrupt is paid once for all of them. A lone message is notified at once, as without posting.
//!
//! How one notification is served ([`serve`]) follows the review of the Linux series that first did this ("x86/irq:
//! Install posted MSI notification handler", RFC 9 of 13, November 2023 to January 2024). Each remark, and what came of it
//! here:
//!
//! - "use the plain exchange, no casts" (Zijlstra): a word is an atomic cell; there is nothing to cast.
//! - "two copies of the loop" (Zijlstra): [`Descriptor::take`] and the dispatch stand in one place, the look after ON is one
//!   more turn of the same loop. What he asked for was compact, clear code; so much for speed.
//! - "skip words that are zero" (Zijlstra): only words with a bit are exchanged, one locked operation instead of four for
//!   a single busy device.
//! - "reading and exchanging in turns is slower" (Pan): all four words are read before the first is exchanged. The line
//!   goes from the unit to this CPU once for the reads and is then owned for the exchanges; between a read and its exchange
//!   a unit would find time to take it back.
//! - "what is the copy for?" (Gleixner): handlers run from the copy, after the last access to the line. While they run, the
//!   unit posts into a line that nobody touches. He asked for the reason to be written down: this is it.
//! - "the end of interrupt is not in the handlers" (Gleixner): it is made once, at the end of [`serve`]; the handlers have
//!   none of their own to make.
//! - "device handlers never run with interrupts on" (Gleixner): interrupts are off in the hypervisor. No handler is given
//!   a way to turn them on.
//! - "why look at vectors up to 255?" (Gleixner): posting makes no new vectors. Bits outside of the range that devices are
//!   given are counted as stray and dispatched nowhere.
//! - "one turn too many" (Gleixner): at most [`PASSES`] turns while ON is set, compared by equality, and one after.
//! - "test with something real" (Gleixner): his point stands; no machine at hand has such a unit. `cargo xtask bench
//!   posted-msi` is a model, and the page on interrupts in the guide says so.
//! - The sketches in the thread exchange word 0 in place of each word, and use a loop variable that is not declared: not
//!   taken over.

use core::ops::RangeInclusive;

use super::Descriptor;
use crate::sync::Word64;

/// Most turns while ON is set. `cargo xtask bench posted-msi` measures others.
pub const PASSES: u32 = 3;

/// What one notification led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Turns, the one after ON was cleared included: 2 to `passes + 1`.
    pub turns: u32,
    /// Vectors dispatched.
    pub interrupts: u32,
    /// Bits that belong to no device vector.
    pub stray: u32,
}

/// Serves one notification: dispatches what is posted, at most `passes` times as long as there is more, allows
/// notifications again, looks once more, and ends the interrupt. `devices` is the range of vectors that devices are given.
/// To be called with interrupts off, on the descriptor's own CPU.
#[inline]
pub fn serve<W: Word64>(
    descriptor: &Descriptor<W>,
    devices: RangeInclusive<u8>,
    passes: u32,
    mut dispatch: impl FnMut(u8),
    eoi: impl FnOnce(),
) -> Served {
    let mut served = Served::default();
    let mut allowed = false;
    loop {
        let words = descriptor.take();
        served.turns += 1;
        for (base, word) in (0u8..4).map(|n| n * 64).zip(words) {
            let mut rest = word;
            while rest != 0 {
                let vector = base + rest.trailing_zeros() as u8;
                rest &= rest - 1;
                if devices.contains(&vector) {
                    served.interrupts += 1;
                    dispatch(vector);
                } else {
                    served.stray += 1;
                }
            }
        }
        if allowed {
            break;
        }
        // Last, so that a burst has the longest time to gather; but before the last look, or a message that came after
        // the look and before this would wait for the next one.
        if words == [0; 4] || served.turns == passes {
            descriptor.clear_on();
            allowed = true;
        }
    }
    eoi();
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posted::{Ndst, Notice, Post};
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::vec::Vec;

    const HERE: Notice = Notice {
        vector: 0xe2,
        dest: match Ndst::new(0, true) {
            Some(d) => d,
            None => panic!(),
        },
    };

    fn descriptor() -> Descriptor {
        let d = Descriptor::suppressed();
        d.run_on(HERE);
        d
    }

    #[test]
    fn a_lone_message_is_notified_served_and_ended_once() {
        let d = descriptor();
        for _ in 0..3 {
            assert_eq!(d.post_by_unit(0x41, false), Some(HERE));
            let (mut seen, ended) = (Vec::new(), Cell::new(0));
            let served = serve(
                &d,
                0x30..=0xdf,
                PASSES,
                |v| seen.push(v),
                || ended.set(ended.get() + 1),
            );
            assert_eq!((seen, ended.get()), (std::vec![0x41], 1));
            // One turn with it, one that finds nothing, one after ON.
            assert_eq!(
                served,
                Served {
                    turns: 3,
                    interrupts: 1,
                    stray: 0
                }
            );
        }
    }

    #[test]
    fn a_notification_that_finds_nothing_is_ended_too() {
        let ended = Cell::new(0);
        let served = serve(
            &descriptor(),
            0x30..=0xdf,
            PASSES,
            |_| panic!(),
            || ended.set(1),
        );
        assert_eq!((ended.get(), served.turns, served.interrupts), (1, 2, 0));
    }

    #[test]
    fn vectors_of_nobody_are_counted_and_not_dispatched() {
        let d = descriptor();
        for v in [0, 0x2f, 0x30, 0xdf, 0xe0, 0xff] {
            d.post(v);
        }
        let mut seen = Vec::new();
        let served = serve(&d, 0x30..=0xdf, PASSES, |v| seen.push(v), || ());
        assert_eq!((seen, served.stray), (std::vec![0x30, 0xdf], 4));
    }

    /// A device that posts again from every handler: the handler gives way after its bound, and what is left over is
    /// notified anew.
    #[test]
    fn a_storm_is_bounded_and_its_rest_notified() {
        for passes in [1, 2, 3, 5, 8] {
            let d = descriptor();
            d.post(0x50);
            let told = Cell::new(0u32);
            let served = serve(
                &d,
                0x30..=0xdf,
                passes,
                |v| told.set(told.get() + u32::from(matches!(d.post(v), Post::Notify(_)))),
                || (),
            );
            assert_eq!((served.turns, served.interrupts), (passes + 1, passes + 1));
            // Only the post from the turn after ON found notifications allowed.
            assert_eq!(told.get(), 1);
            assert!(d.is_notified());
        }
    }

    proptest! {
        /// Messages that arrive between any two steps: each is dispatched at least once after its post, or a notification
        /// for it is outstanding at the end.
        #[test]
        fn nothing_is_left_behind(first in proptest::collection::vec(any::<u8>(), 1..20), later in proptest::collection::vec(any::<u8>(), 0..30), passes in 1u32..6) {
            let d = descriptor();
            for v in first { d.post(v); }
            let mut later = later.into_iter();
            let served = serve(&d, 0..=255, passes, |_| { if let Some(v) = later.next() { d.post(v); } }, || ());
            prop_assert!(served.turns <= passes + 1);
            prop_assert!(d.words() == [0; 4] || d.is_notified());
        }
    }
}
