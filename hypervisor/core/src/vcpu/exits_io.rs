//! Port accesses that exit: by the domain's policy to a virtual device, to hardware, or nowhere.

use hv_hw::GuestContext;
use hv_hw::machine::IoExit;
use x86_model::{Gpr, Width};

use super::exits::Next;
use super::run::Turn;

/// Handles a port exit.
pub fn handle(turn: &mut Turn<'_>, io: IoExit) -> Next {
    if io.string {
        return turn.emulate();
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

/// What a port reads as that nothing answers: all-ones. No domain has an interval timer, and the counter by which kernels measure
/// the TSC stands at 0: they give up at once, where they would read 0xff a hundred thousand times, an exit each.
fn nobody(port: u16, width: Width) -> u32 {
    match (port, width) {
        (0x42, Width::B1) => 0,
        _ => width.mask() as u32,
    }
}

impl Turn<'_> {
    /// Reads a port for the guest.
    pub fn port_read(&mut self, port: u16, width: Width) -> u32 {
        let platform = self.domain.platform.as_ref();
        platform
            .and_then(|p| p.port_read(self.hv, self.domain, self.local, port, width))
            .unwrap_or_else(|| nobody(port, width))
    }

    /// Writes a port for the guest.
    pub fn port_write(&mut self, port: u16, width: Width, value: u32) {
        // The debug port of every Xen domain: bytes go to the hypervisor's console.
        if port == 0xe9 {
            let bytes = value.to_le_bytes();
            let bytes = &bytes[..width.bytes()];
            if self.domain.privileged {
                self.hv.guest_output(bytes);
                return;
            }
            for line in bytes.iter().filter_map(|&b| self.domain.debug_port.put(b)) {
                hv_hw::guest_log!(Debug, "({}) {line}", self.domain.id);
            }
            return;
        }
        if let Some(p) = &self.domain.platform {
            p.port_write(self.hv, self.domain, self.local, port, width, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_byte_of_the_absent_timers_counter_is_zero() {
        assert_eq!(nobody(0x42, Width::B1), 0);
        assert_eq!(nobody(0x42, Width::B2), 0xffff);
        assert_eq!(
            (nobody(0x40, Width::B1), nobody(0x61, Width::B1)),
            (0xff, 0xff)
        );
    }
}
