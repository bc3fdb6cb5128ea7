//! Port accesses that exit: by the domain's policy to a virtual device, to hardware, or nowhere (all-ones).

use hv_hw::machine::{IoExit, Seg};
use hv_hw::{GuestContext, Machine};
use x86_model::walk::Access;
use x86_model::{Gpr, Gva};

use super::exits::{Next, PF};
use super::run::Turn;

/// Repetitions of a string instruction in one exit; the rest follows in the next one, with interrupts in between.
const MAX_REPEAT: u64 = 512;

/// Handles a port exit.
pub fn handle(turn: &mut Turn<'_>, io: IoExit) -> Next {
    if io.string {
        return string(turn, io);
    }
    if io.input {
        let value = turn.port_read(io.port, io.width);
        let g = turn.local.ctx.gprs_mut();
        let mask = io.width.mask();
        // 32-bit results clear the upper half; narrower ones leave the rest of RAX alone.
        let keep = if io.width.bytes() == 4 {
            0
        } else {
            g.get(Gpr::Rax) & !mask
        };
        g.set(Gpr::Rax, keep | u64::from(value) & mask);
    } else {
        let value = turn.local.ctx.gprs().get32(Gpr::Rax) & io.width.mask() as u32;
        turn.port_write(io.port, io.width, value);
    }
    turn.local.ctx.set_rip(io.next_rip);
    Next::Continue
}

/// INS and OUTS. Address size is taken from the code size; segment overrides of OUTS are not known here, and no kernel
/// uses them.
fn string(turn: &mut Turn<'_>, io: IoExit) -> Next {
    let bits = turn.code_bits();
    let mask = if bits == 64 {
        u64::MAX
    } else {
        (1u64 << bits) - 1
    };
    let state = turn.local.ctx.state();
    let base = if bits == 64 {
        0
    } else {
        state.segments[if io.input { Seg::Es } else { Seg::Ds } as usize].base
    };
    let step = io.width.bytes() as u64;
    let backwards = state.rflags & 1 << 10 != 0;
    let index = if io.input { Gpr::Rdi } else { Gpr::Rsi };
    let cpl = turn.local.ctx.paging().cpl;
    let total = if io.rep {
        turn.local.ctx.gprs().get(Gpr::Rcx) & mask
    } else {
        1
    };
    let mut done = 0;
    let mut fault = None;
    while done < total.min(MAX_REPEAT) {
        let at = turn.local.ctx.gprs().get(index) & mask;
        let gva = Gva(base.wrapping_add(at));
        let mut bytes = [0u8; 4];
        let width = io.width.bytes();
        let moved = if io.input {
            let probe = turn
                .memory()
                .read_as(gva, &mut bytes[..width], Access::WRITE.at_cpl(cpl));
            probe.and_then(|()| {
                let value = turn.port_read(io.port, io.width);
                turn.memory().write_as(
                    gva,
                    &value.to_le_bytes()[..width],
                    Access::WRITE.at_cpl(cpl),
                )
            })
        } else {
            turn.memory()
                .read_as(gva, &mut bytes[..width], Access::READ.at_cpl(cpl))
                .map(|()| {
                    turn.port_write(io.port, io.width, u32::from_le_bytes(bytes));
                })
        };
        if let Err(f) = moved {
            fault = Some((f, gva));
            break;
        }
        let next = if backwards {
            at.wrapping_sub(step)
        } else {
            at.wrapping_add(step)
        };
        let g = turn.local.ctx.gprs_mut();
        g.set(index, g.get(index) & !mask | next & mask);
        if io.rep {
            let left = (g.get(Gpr::Rcx) & mask).wrapping_sub(1);
            g.set(Gpr::Rcx, g.get(Gpr::Rcx) & !mask | left & mask);
        }
        done += 1;
    }
    match fault {
        Some((f, gva)) => turn.raise_walk_fault(f, gva),
        None if done == total => turn.local.ctx.set_rip(io.next_rip),
        None => {}
    }
    Next::Continue
}

impl Turn<'_> {
    /// Turns a failed access of an emulated instruction into the guest's exception.
    pub fn raise_walk_fault(&mut self, fault: x86_model::walk::WalkFault, gva: Gva) {
        match fault.error_code() {
            Some(code) => {
                let mut s = self.local.ctx.state();
                s.cr2 = gva.0;
                self.local.ctx.set_state(&s);
                self.raise(PF, Some(code));
            }
            None => self.raise_gp(),
        }
    }

    /// Reads a port for the guest.
    pub fn port_read(&mut self, port: u16, width: x86_model::Width) -> u32 {
        let all_ones = width.mask() as u32;
        match &self.domain.platform {
            Some(p) => p
                .port_read(self.hv, self.local, port, width)
                .unwrap_or(all_ones),
            None => all_ones,
        }
    }

    /// Writes a port for the guest.
    pub fn port_write(&mut self, port: u16, width: x86_model::Width, value: u32) {
        // The debug port of every Xen domain: bytes go to the hypervisor's console.
        if port == 0xe9 {
            self.hv
                .hw
                .console_write(&value.to_le_bytes()[..width.bytes()]);
            return;
        }
        if let Some(p) = &self.domain.platform {
            p.port_write(self.hv, self.domain, self.local, port, width, value);
        }
    }
}
