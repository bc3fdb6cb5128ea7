//! Random hypercalls with hostile arguments: whatever a guest passes, the dispatcher returns.
//!
//! `XENOLITH_CASES` sets the number of cases (a short slice by default; a million takes about a minute).

mod common;

use common::{PAGES, System};

/// A small generator: reproducible, and its seed is in the panic message of a failing run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }
    /// Values that have broken code before: small, pointers into RAM, page ends, the ends of the address space.
    fn value(&mut self) -> u64 {
        match self.next() % 8 {
            0 => self.next() % 64,
            1 => self.next() % (PAGES * 4096),
            2 => (self.next() % PAGES) * 4096 + 4096 - self.next() % 16,
            3 => u64::MAX - self.next() % 64,
            4 => 1 << (self.next() % 64),
            5 => self.next() % 0x8000,
            6 => PAGES * 4096 - self.next() % 64,
            _ => self.next(),
        }
    }
}

#[test]
fn dispatcher_survives_hostile_arguments() {
    let cases: u64 = std::env::var("XENOLITH_CASES")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(20_000);
    let seed: u64 = std::env::var("XENOLITH_SEED")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0x5eed_1234_5678);
    let mut r = Random(seed);
    let numbers = [
        7u64, 12, 13, 15, 17, 18, 20, 21, 24, 29, 32, 33, 34, 26, 35, 36, 48, 60,
    ];
    let mut s = System::new(2);
    for case in 0..cases {
        if case % 1000 == 0 {
            s = System::new(2);
        }
        // A structure with hostile fields somewhere in RAM, so that not every call ends in EFAULT.
        let at = (r.next() % (PAGES * 4096 - 256)) & !7;
        let bytes: Vec<u8> = (0..16).flat_map(|_| r.value().to_le_bytes()).collect();
        if s.dom.p2m.frame(x86_model::Gfn(at >> 12)).is_some()
            && s.dom.p2m.frame(x86_model::Gfn((at + 255) >> 12)).is_some()
        {
            s.poke(at, &bytes);
        }
        let number = if r.one_in(50) {
            r.value()
        } else {
            r.pick(&numbers)
        };
        let mut args = [r.next() % 32, r.value(), r.value(), r.value(), r.value()];
        if r.one_in(2) {
            args[1] = at;
        }
        if r.one_in(3) {
            args[2] = at;
        }
        if number == 7 && r.one_in(2) {
            args[0] = at;
            if s.dom.p2m.frame(x86_model::Gfn(at >> 12)).is_some() {
                s.poke(at + 4, &0x0300_0001u32.to_le_bytes());
            }
        }
        // dom0's own shutdown ends the machine, by design.
        if number == 29 && args[0] == 2 {
            continue;
        }
        let vcpu = (r.next() % 2) as u32;
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.call(vcpu, number, args)));
        assert!(
            result.is_ok(),
            "case {case} seed {seed:#x}: hypercall {number} args {args:x?} struct {bytes:x?}"
        );
    }
}
