//! Exits that QEMU's emulation makes twice.
//!
//! Now and then an exit is carried out, and then once more with the host's state as the guest's: the control block then holds this
//! CPU's own registers, and the exit says that the host's page tables are not in the guest's memory. If the guest has not run
//! a step, the entry can be made again from what was in the block before.
//!
//! The cause, in QEMU 10.0: when any CPU restores its FPU state, QEMU clears a bit in a word of its first CPU, without a lock. The
//! same word says that nested paging is on. If the first CPU turns that off in the same moment, it stays on.

use super::vmcb::{Save, V_INTR_MASKING, Vmcb, VmcbSegment};
use crate::Gprs;

/// What an exit overwrites of a control block, as it was before the entry.
pub struct Before {
    gprs: Beside,
    segments: [VmcbSegment; 6],
    /// CR0, CR2, CR3, CR4, EFER, RFLAGS, RIP, RSP, RAX, DR6, DR7.
    registers: [u64; 11],
    cpl: u8,
    /// Interrupt control, interrupt state, event to inject.
    control: [u64; 3],
}

/// The general registers beside the block: RCX, RDX and RBX, and RBP to R15. RAX and RSP are in it.
type Beside = ([u64; 3], [u64; 11]);

#[inline]
fn beside(gprs: &Gprs) -> Beside {
    let [_, rcx, rdx, rbx, _, rest @ ..] = gprs.0;
    ([rcx, rdx, rbx], rest)
}

fn registers(s: &mut Save) -> [&mut u64; 11] {
    [
        &mut s.cr0,
        &mut s.cr2,
        &mut s.cr3,
        &mut s.cr4,
        &mut s.efer,
        &mut s.rflags,
        &mut s.rip,
        &mut s.rsp,
        &mut s.rax,
        &mut s.dr6,
        &mut s.dr7,
    ]
}

impl Before {
    /// Takes note of a block and the registers beside it.
    pub fn of(vmcb: &mut Vmcb, gprs: &Gprs) -> Self {
        let c = &vmcb.control;
        let control = [c.int_ctl, c.int_state, c.event_inj];
        let s = &mut vmcb.save;
        Before {
            gprs: beside(gprs),
            segments: [s.es, s.cs, s.ss, s.ds, s.gdtr, s.idtr],
            cpl: s.cpl,
            registers: registers(s).map(|r| *r),
            control,
        }
    }

    /// After an exit: whether it was made twice. The second time the emulator has forgotten its interrupt control and
    /// writes zeros; no guest and no setter clears the bit.
    pub fn exited_twice(vmcb: &Vmcb) -> bool {
        vmcb.control.int_ctl & V_INTR_MASKING == 0
    }

    /// Puts the block back as it was. False if the guest has run after all: then its state is lost.
    pub fn restore(&self, vmcb: &mut Vmcb, gprs: &Gprs) -> bool {
        if beside(gprs) != self.gprs {
            return false;
        }
        let c = &mut vmcb.control;
        [c.int_ctl, c.int_state, c.event_inj] = self.control;
        c.clean = 0;
        let s = &mut vmcb.save;
        [s.es, s.cs, s.ss, s.ds, s.gdtr, s.idtr] = self.segments;
        s.cpl = self.cpl;
        for (to, from) in registers(s).into_iter().zip(self.registers) {
            *to = from;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gpr;
    use zerocopy::FromZeros;

    fn guest() -> (Vmcb, Gprs) {
        let mut vmcb = Vmcb::new_zeroed();
        let mut gprs = Gprs::default();
        let s = &mut vmcb.save;
        for (n, r) in (1u64..).zip(registers(s)) {
            *r = n << 12;
        }
        s.cs.selector = 0x10;
        s.idtr.base = 0xffff_0000;
        s.cpl = 3;
        vmcb.control.int_ctl = V_INTR_MASKING | 1 << 8;
        vmcb.control.int_state = 1;
        gprs.set(Gpr::Rdx, 0xcf8);
        gprs.set(Gpr::Rax, vmcb.save.rax);
        (vmcb, gprs)
    }

    /// What the emulator leaves behind.
    fn exit_twice(vmcb: &mut Vmcb) {
        vmcb.control.int_ctl = 0;
        vmcb.control.int_state = 0;
        let s = &mut vmcb.save;
        for r in registers(s) {
            *r = 0xdead;
        }
        (s.cs.selector, s.idtr.base, s.cpl) = (8, 1, 0);
    }

    #[test]
    fn the_block_is_as_before() {
        let (mut vmcb, gprs) = guest();
        let before = Before::of(&mut vmcb, &gprs);
        assert!(!Before::exited_twice(&vmcb));
        exit_twice(&mut vmcb);
        assert!(Before::exited_twice(&vmcb));
        let mut after = gprs.clone();
        after.set(Gpr::Rax, 0xdead);
        after.set(Gpr::Rsp, 0xdead);
        assert!(before.restore(&mut vmcb, &after));
        let (mut expected, _) = guest();
        assert_eq!(
            registers(&mut vmcb.save).map(|r| *r),
            registers(&mut expected.save).map(|r| *r)
        );
        assert_eq!(vmcb.save.cs, expected.save.cs);
        assert_eq!(vmcb.save.idtr, expected.save.idtr);
        assert_eq!(vmcb.save.cpl, 3);
        assert_eq!(vmcb.control.int_ctl, expected.control.int_ctl);
        assert_eq!(vmcb.control.int_state, 1);
    }

    #[test]
    fn a_guest_that_has_run_is_lost() {
        let (mut vmcb, mut gprs) = guest();
        let before = Before::of(&mut vmcb, &gprs);
        exit_twice(&mut vmcb);
        gprs.set(Gpr::Rdx, 0xcfc);
        assert!(!before.restore(&mut vmcb, &gprs));
        assert_eq!(vmcb.save.rip, 0xdead);
    }
}
