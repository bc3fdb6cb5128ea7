//! Interrupts that Bochs delivers too early.
//!
//! When a physical interrupt arrives in a guest that has interrupts off, Bochs 3.0 first delivers a virtual interrupt that is
//! requested, although that waits for RFLAGS.IF (`HandleExtInterrupt` in its `event.cc` asks whether one is pending, not whether
//! it is masked). The physical one stays and exits before the first instruction of the handler, so nothing but the delivery has
//! happened: it is undone here, and the vector is requested again.
//!
//! Such a delivery is known by its frame, which holds a clear RFLAGS.IF: on a processor the frame of no interrupt does. Only
//! deliveries in 64-bit mode without a change of privilege or stack are undone; a kernel with interrupts off sees no others.

use super::delivery::{Set, highest};

const RFLAGS_IF: u64 = 1 << 9;
/// RIP, CS, RFLAGS, RSP and SS.
const FRAME: u64 = 40;
/// Present interrupt gate of 64-bit mode without a stack of its own: the fixed bits of its first half, and which they are.
const GATE: u64 = 0x8e00 << 32;
const GATE_MASK: u64 = 0x9f07 << 32;

/// The registers that a delivery changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// RIP.
    pub rip: u64,
    /// Selector of CS.
    pub cs: u16,
    /// RFLAGS.
    pub rflags: u64,
    /// RSP.
    pub rsp: u64,
}

/// The registers before `vector` was delivered too early; `None` if it was not, or something has happened since. `idt` is the
/// base of the guest's table, `read` reads eight bytes at a guest-linear address.
pub fn before(
    now: Registers,
    vector: u8,
    idt: u64,
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Option<Registers> {
    if now.rflags & RFLAGS_IF != 0 {
        return None;
    }
    let at = idt.wrapping_add(u64::from(vector) * 16);
    let (low, high) = (read(at)?, read(at.wrapping_add(8))?);
    let handler = low & 0xffff | low >> 32 & 0xffff_0000 | high << 32;
    let selector = (low >> 16) as u16;
    if low & GATE_MASK != GATE || (handler, selector) != (now.rip, now.cs) {
        return None;
    }
    let mut word = |n: u64| read(now.rsp.wrapping_add(8 * n));
    let then = Registers {
        rip: word(0)?,
        cs: word(1)? as u16,
        rflags: word(2)?,
        rsp: word(3)?,
    };
    // The processor aligns the stack before it pushes.
    let pushed_at = (then.rsp & !15).wrapping_sub(FRAME);
    let same = then.cs == now.cs && pushed_at == now.rsp;
    (same && then.rflags & RFLAGS_IF == 0).then_some(then)
}

/// Undoes all deliveries that came too early, the last one first: the vectors go from those in service back to the requests.
/// How many there were.
pub fn undo(
    registers: &mut Registers,
    irr: &mut Set,
    isr: &mut Set,
    idt: u64,
    mut read: impl FnMut(u64) -> Option<u64>,
) -> u32 {
    let mut undone = 0;
    while let Some(vector) = highest(isr)
        && let Some(then) = before(*registers, vector, idt, &mut read)
    {
        let (word, bit) = (usize::from(vector >> 6), 1 << (vector & 63));
        isr[word] &= !bit;
        irr[word] |= bit;
        *registers = then;
        undone += 1;
    }
    undone
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const IDT: u64 = 0xffff_fe00_0000_0000;
    const CS: u16 = 0x10;
    const OFF: u64 = 0x46;
    const ON: u64 = OFF | RFLAGS_IF;

    /// A guest's memory and registers.
    struct Guest {
        memory: BTreeMap<u64, u64>,
        now: Registers,
        irr: Set,
        isr: Set,
    }

    fn handler(vector: u8) -> u64 {
        0xffff_ffff_81a0_0000 + u64::from(vector) * 0x20
    }

    impl Guest {
        fn new(rflags: u64) -> Self {
            let mut memory = BTreeMap::new();
            for v in 0..=255u8 {
                let to = handler(v);
                let low = to & 0xffff | u64::from(CS) << 16 | GATE | (to & 0xffff_0000) << 32;
                memory.insert(IDT + u64::from(v) * 16, low);
                memory.insert(IDT + u64::from(v) * 16 + 8, to >> 32);
            }
            Guest {
                memory,
                now: Registers {
                    rip: 0xffff_ffff_8100_1234,
                    cs: CS,
                    rflags,
                    rsp: 0xffff_c900_0000_3f38,
                },
                irr: [0; 4],
                isr: [0; 4],
            }
        }

        /// What the emulator does.
        fn deliver(&mut self, vector: u8) {
            let then = self.now;
            let rsp = (then.rsp & !15) - FRAME;
            let frame = [then.rip, then.cs.into(), then.rflags, then.rsp, 0x18];
            for (n, word) in (0..).zip(frame) {
                self.memory.insert(rsp + 8 * n, word);
            }
            self.now = Registers {
                rip: handler(vector),
                rflags: then.rflags & !RFLAGS_IF,
                rsp,
                ..then
            };
            self.irr[usize::from(vector >> 6)] &= !(1 << (vector & 63));
            self.isr[usize::from(vector >> 6)] |= 1 << (vector & 63);
        }

        fn undo(&mut self) -> u32 {
            let memory = &self.memory;
            undo(&mut self.now, &mut self.irr, &mut self.isr, IDT, |at| {
                memory.get(&at).copied()
            })
        }
    }

    #[test]
    fn an_early_delivery_is_undone() {
        let mut g = Guest::new(OFF);
        let before = g.now;
        g.deliver(0xf3);
        assert_eq!(g.undo(), 1);
        assert_eq!(g.now, before);
        assert_eq!((g.irr, g.isr), ([0, 0, 0, 1 << 0x33], [0; 4]));
        assert_eq!(g.undo(), 0);
    }

    #[test]
    fn two_of_them_are_undone_in_turn() {
        let mut g = Guest::new(OFF);
        let before = g.now;
        g.isr[0] = 1 << 0x31;
        g.deliver(0x51);
        g.deliver(0xf3);
        assert_eq!(g.undo(), 2);
        assert_eq!(g.now, before);
        assert_eq!(g.irr, [0, 1 << 0x11, 0, 1 << 0x33]);
        // The one that the guest was serving stays.
        assert_eq!(g.isr, [1 << 0x31, 0, 0, 0]);
    }

    #[test]
    fn one_that_came_in_time_stays() {
        let mut g = Guest::new(ON);
        g.deliver(0xf3);
        let there = g.now;
        assert_eq!(g.undo(), 0);
        assert_eq!((g.now, g.isr), (there, [0, 0, 0, 1 << 0x33]));
        // On top of it one that did not.
        g.deliver(0xfb);
        assert_eq!(g.undo(), 1);
        assert_eq!(g.now, there);
    }

    #[test]
    fn what_has_gone_on_stays() {
        let change: [fn(&mut Guest); 6] = [
            |g| g.now.rip += 1,
            |g| g.now.rsp -= 8,
            |g| g.now.cs = 0x33,
            |g| g.now.rflags |= RFLAGS_IF,
            |g| g.isr = [0; 4],
            // No memory where the stack should be.
            |g| g.memory.retain(|at, _| *at >= IDT),
        ];
        for f in change {
            let mut g = Guest::new(OFF);
            g.deliver(0xf3);
            f(&mut g);
            let there = g.now;
            assert_eq!((g.undo(), g.now), (0, there));
        }
    }

    #[test]
    fn other_gates_and_other_rings_are_left_alone() {
        let mut g = Guest::new(OFF);
        g.deliver(0xf3);
        // A stack of its own.
        *g.memory.get_mut(&(IDT + 0xf30)).unwrap() |= 1 << 32;
        assert_eq!(g.undo(), 0);
        let mut g = Guest::new(OFF);
        g.deliver(0xf3);
        g.memory.insert(g.now.rsp + 8, 0x33);
        assert_eq!(g.undo(), 0);
    }
}
