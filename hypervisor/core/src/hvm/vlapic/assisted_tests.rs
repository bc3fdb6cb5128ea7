//! The APIC with a processor that does a part of its work, against the APIC alone: whatever the guest does, it sees the same.

use super::*;
use hv_hw::machine::ApicAssist;
use proptest::prelude::*;
use x86_model::Width;
use x86_model::apic::MSR_X2APIC_FIRST;

const T0: Clocks = Clocks {
    now_ns: 1_000_000,
    guest_tsc: 5_000_000,
};

/// An APIC whose registers the guest reaches through a processor, as the manual has it (SDM vol. 3, 31.1 to 31.5).
struct Assisted {
    lapic: Vlapic,
    does: ApicAssist,
    page: [u32; 256],
    vectors: ApicVectors,
}

impl Assisted {
    fn x2apic(&self) -> bool {
        self.lapic.mode() == ApicMode::X2Apic
    }

    fn off(&self) -> bool {
        self.lapic.mode() == ApicMode::Disabled
    }

    fn enter(&mut self) {
        if self.does.registers && self.lapic.take_changed() {
            for (at, value) in self.lapic.registers() {
                self.page[at as usize / 4] = value;
            }
        }
        self.vectors = self.lapic.vectors();
    }

    fn exit(&mut self) {
        if self.does.delivery {
            self.lapic.set_vectors(&self.vectors);
        } else {
            self.lapic.set_tpr(self.vectors.tpr);
        }
    }

    /// Something that the software does, between an exit and an entry.
    fn outside<R>(&mut self, act: impl FnOnce(&mut Vlapic) -> R) -> R {
        self.exit();
        let result = act(&mut self.lapic);
        self.enter();
        result
    }

    fn read(&mut self, register: u32) -> Option<u32> {
        if self.off() {
            return self.outside(|l| direct_read(l, register));
        }
        let set = |set: &[u64; 4], base| {
            let n = (register - base) / 16;
            (set[n as usize / 2] >> (n % 2 * 32)) as u32
        };
        let shown = match register {
            reg::TPR => return Some(self.vectors.tpr.into()),
            reg::ISR..reg::TMR => Some(set(&self.vectors.isr, reg::ISR)),
            reg::TMR..reg::IRR => Some(set(&self.vectors.tmr, reg::TMR)),
            reg::IRR..reg::ESR => Some(set(&self.vectors.irr, reg::IRR)),
            reg::ID | reg::VERSION | reg::LDR | reg::SVR | reg::ESR | reg::ICR_LOW => {
                Some(self.page[register as usize / 4])
            }
            reg::LVT_TIMER..=reg::TIMER_INITIAL | reg::TIMER_DIVIDE => {
                Some(self.page[register as usize / 4])
            }
            reg::DFR | reg::ICR_HIGH if !self.x2apic() => Some(self.page[register as usize / 4]),
            _ => None,
        };
        shown
            .filter(|_| self.does.registers)
            .or_else(|| self.outside(|l| direct_read(l, register)))
    }

    fn write(&mut self, register: u32, value: u32) -> Option<Effect> {
        if self.off() {
            return self.outside(|l| direct_write(l, register, value));
        }
        let x2apic = self.x2apic();
        match register {
            reg::TPR if !x2apic || value <= 0xff => {
                self.vectors.tpr = value as u8;
                return Some(Effect::None);
            }
            reg::EOI if self.does.delivery && (!x2apic || value == 0) => {
                let Some(v) = Vectors(self.vectors.isr).highest() else {
                    return Some(Effect::None);
                };
                let bit = |set: &[u64; 4]| set[usize::from(v >> 6)] >> (v & 63) & 1 != 0;
                let level = bit(&self.vectors.tmr);
                self.vectors.isr[usize::from(v >> 6)] &= !(1 << (v & 63));
                return Some(if level { Effect::Eoi(v) } else { Effect::None });
            }
            _ => {}
        }
        let kept = matches!(
            register,
            reg::ID
                | reg::EOI
                | reg::LDR
                | reg::DFR
                | reg::SVR
                | reg::ESR
                | reg::ICR_LOW
                | reg::ICR_HIGH
                | reg::LVT_TIMER..=reg::TIMER_INITIAL | reg::TIMER_DIVIDE
        );
        // Without the registers, delivery has the two that it is about.
        let kept = if self.does.registers {
            kept
        } else {
            self.does.delivery && matches!(register, reg::EOI | reg::ICR_LOW)
        };
        if x2apic || !kept {
            return self.outside(|l| direct_write(l, register, value));
        }
        self.page[register as usize / 4] = value;
        if register == reg::ICR_HIGH {
            self.page[register as usize / 4] &= 0xff00_0000;
            return Some(Effect::None);
        }
        let destination = self.page[reg::ICR_HIGH as usize / 4];
        let destination = self.does.registers.then_some(destination);
        Some(self.outside(|l| l.page_written(register, value, destination, T0)))
    }

    /// The interrupt that the guest takes now.
    fn take(&mut self) -> Option<u8> {
        if !self.does.delivery {
            return self.outside(|l| l.pending_vector().inspect(|&v| l.ack(v)));
        }
        let v = Vectors(self.vectors.irr).highest()?;
        let serving = Vectors(self.vectors.isr).highest().unwrap_or(0);
        (v >> 4 > (serving >> 4).max(self.vectors.tpr >> 4)).then(|| {
            self.vectors.irr[usize::from(v >> 6)] &= !(1 << (v & 63));
            self.vectors.isr[usize::from(v >> 6)] |= 1 << (v & 63);
            v
        })
    }
}

fn direct_read(l: &mut Vlapic, register: u32) -> Option<u32> {
    if l.mode() == ApicMode::X2Apic {
        let msr = MSR_X2APIC_FIRST + (register >> 4);
        l.x2apic_read(msr, T0).ok().map(|v| v as u32)
    } else {
        Some(l.mmio_read(register, Width::B4, T0) as u32)
    }
}

fn direct_write(l: &mut Vlapic, register: u32, value: u32) -> Option<Effect> {
    if l.mode() == ApicMode::X2Apic {
        let msr = MSR_X2APIC_FIRST + (register >> 4);
        l.x2apic_write(msr, value.into(), T0).ok()
    } else {
        Some(l.mmio_write(register, Width::B4, value.into(), T0))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Read(u32),
    Write(u32, u32),
    Post(u8, bool),
    Take,
    Mode(u64),
    Init,
}

fn op() -> impl Strategy<Value = Op> {
    let register = prop_oneof![
        Just(reg::TPR),
        Just(reg::EOI),
        (0..0x40u32).prop_map(|r| r << 4)
    ];
    let value = prop_oneof![any::<u32>(), 0..0x200u32, Just(0u32)];
    prop_oneof![
        register.clone().prop_map(Op::Read),
        (register, value).prop_map(|(r, v)| Op::Write(r, v)),
        (any::<u8>(), any::<bool>()).prop_map(|(v, level)| Op::Post(v, level)),
        Just(Op::Take),
        prop_oneof![Just(0x900u64), Just(0xd00), Just(0x100)].prop_map(Op::Mode),
        Just(Op::Init),
    ]
}

/// One that accepts interrupts, in either mode.
fn started(x2apic: bool) -> Vlapic {
    let mut l = Vlapic::new(1, true);
    if x2apic {
        l.set_base(DEFAULT_BASE | ApicBase::EN | ApicBase::EXTD)
            .unwrap();
    }
    direct_write(&mut l, reg::SVR, 0x1ff);
    l
}

proptest! {
    #[test]
    fn a_guest_cannot_tell(
        ops in prop::collection::vec(op(), 1..200),
        x2apic: bool,
        registers: bool,
        delivery: bool,
    ) {
        let mut plain = started(x2apic);
        let mut a = Assisted {
            lapic: started(x2apic),
            does: ApicAssist { registers, delivery },
            page: [0; 256],
            vectors: ApicVectors::default(),
        };
        a.enter();
        let posts = [LapicPost::new(2), LapicPost::new(2)];
        for o in ops {
            match o {
                Op::Read(r) => prop_assert_eq!(a.read(r), direct_read(&mut plain, r), "{:#x}", r),
                Op::Write(r, v) => {
                    let found = a.write(r, v);
                    prop_assert_eq!(found, direct_write(&mut plain, r, v), "{:#x} = {:#x}", r, v);
                }
                Op::Post(v, level) => {
                    for p in &posts {
                        p.vector(v, level);
                    }
                    a.outside(|l| l.merge(&posts[0]));
                    plain.merge(&posts[1]);
                }
                Op::Take => {
                    let expected = plain.pending_vector().inspect(|&v| plain.ack(v));
                    prop_assert_eq!(a.take(), expected);
                }
                Op::Mode(bits) => {
                    let base = DEFAULT_BASE | bits;
                    let found = a.outside(|l| l.set_base(base));
                    prop_assert_eq!(found, plain.set_base(base));
                }
                Op::Init => {
                    a.outside(Vlapic::reset);
                    plain.reset();
                }
            }
            // What is delivered follows the mode, as in the run loop.
            let on = delivery && a.lapic.enabled();
            if a.does.delivery != on {
                a.exit();
                a.does.delivery = on;
                a.lapic.touch();
                a.enter();
            }
        }
    }
}
