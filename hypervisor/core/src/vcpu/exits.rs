//! What each guest exit leads to.

use core::sync::atomic::Ordering;

use hv_hw::machine::{Event, Exit, PagingState};
use hv_hw::{GuestContext, Machine};
use x86_model::policy::xstate::xcr0_valid;
use x86_model::{Gpr, Gva};

use super::run::Turn;
use super::{Sleep, exits_io, exits_mmio, exits_msr};
use crate::domain::ShutdownReason;
use crate::guest::GuestAccess;
use crate::hvm::cr;
use crate::hvm::vlapic::Effect;
use crate::hypercall;

/// Exception vectors that handlers inject.
pub const UD: u8 = 6;
/// General protection.
pub const GP: u8 = 13;
/// Page fault.
pub const PF: u8 = 14;

/// What happens after an exit was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Enter the guest again.
    Continue,
    /// Let others run first.
    Yield,
    /// Sleep, with an absolute deadline for polls.
    Sleep(Sleep, Option<u64>),
    /// The vCPU is down until INIT-SIPI or VCPUOP_up.
    Down,
}

/// Lengths of instructions that exited before, for hardware that does not report them. Keyed by address, address space and
/// kind of exit; a guest that rewrites such an instruction in place with one of another length can only mislead itself.
#[derive(Default)]
pub struct LengthCache {
    slots: [(u64, u64, u8, u8); 16],
}

impl LengthCache {
    fn slot(rip: u64) -> usize {
        ((rip ^ rip >> 4 ^ rip >> 12) & 15) as usize
    }
}

/// Kinds of exit whose instruction length must be known.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Cpuid = 1,
    Hypercall,
    Msr,
    Hlt,
    Xsetbv,
    CacheFlush,
}

impl Kind {
    /// Bytes of the instruction without its prefixes; none of them has operands.
    const fn opcode_len(self) -> u8 {
        match self {
            Kind::Hlt => 1,
            Kind::Cpuid | Kind::Msr | Kind::CacheFlush => 2,
            Kind::Hypercall | Kind::Xsetbv => 3,
        }
    }
}

/// Number of prefix bytes that instruction bytes begin with.
fn prefixes(bytes: &[u8], long: bool) -> u8 {
    let is_prefix = |b: &u8| {
        matches!(
            b,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        ) || long && matches!(b, 0x40..=0x4f)
    };
    bytes.iter().take_while(|b| is_prefix(b)).count() as u8
}

impl Turn<'_> {
    /// Guest memory as the vCPU sees it now.
    #[inline]
    pub fn memory(&self) -> GuestAccess<'_> {
        GuestAccess::new(
            &self.domain.p2m,
            &self.local.ctx.paging(),
            self.hv.hw.phys_bits(),
        )
        .cached(&self.local.walks)
    }

    #[inline]
    fn length(&mut self, told: u8, kind: Kind) -> u8 {
        if told != 0 {
            return told;
        }
        let (rip, cr3) = (self.local.ctx.rip(), self.local.ctx.paging().cr3);
        let (r, c, k, len) = self.local.lengths.slots[LengthCache::slot(rip)];
        if r == rip && c == cr3 && k == kind as u8 {
            return len;
        }
        self.decode_length(rip, cr3, kind)
    }

    #[cold]
    fn decode_length(&mut self, rip: u64, cr3: u64, kind: Kind) -> u8 {
        let paging = self.local.ctx.paging();
        let (bytes, n) = self.code_bytes(&paging);
        let len = prefixes(&bytes[..n], paging.long) + kind.opcode_len();
        self.local.lengths.slots[LengthCache::slot(rip)] = (rip, cr3, kind as u8, len);
        len
    }

    /// The instruction bytes at RIP, and how many of them could be read.
    fn code_bytes(&self, paging: &PagingState) -> ([u8; 15], usize) {
        let mut bytes = [0u8; 15];
        let base = if paging.long {
            0
        } else {
            self.local.ctx.state().segments[1].base
        };
        let at = Gva(base.wrapping_add(self.local.ctx.rip()));
        let n = self.memory().fetch(at, &mut bytes, paging.cpl);
        (bytes, n)
    }

    /// Default operand and address size of the running code: 16, 32 or 64.
    pub fn code_bits(&self) -> u32 {
        if self.local.ctx.paging().long {
            64
        } else if self.local.ctx.state().segments[1].access & 1 << 14 != 0 {
            32
        } else {
            16
        }
    }

    /// Raises an exception in the guest.
    pub fn raise(&mut self, vector: u8, error: Option<u32>) {
        self.local.ctx.inject(Event::Exception(vector, error));
    }

    /// Raises #GP(0).
    pub fn raise_gp(&mut self) {
        self.raise(GP, Some(0));
    }

    /// Ends the domain with its vCPU's registers in the log.
    pub fn crash(&mut self, why: core::fmt::Arguments<'_>) -> Next {
        hv_hw::guest_log!(Error, "{} crashed: {why}", self.vcpu.key);
        super::dump::stopped(self.vcpu.key, &self.local.ctx, &self.memory());
        self.hv.domain_stopped(self.domain, ShutdownReason::Crash);
        Next::Down
    }
}

/// Handles one exit.
#[inline]
pub fn handle(turn: &mut Turn<'_>, exit: Exit) -> Next {
    match exit {
        Exit::Hypercall { len } => {
            let len = turn.length(len, Kind::Hypercall);
            hypercall::dispatch(turn, len)
        }
        Exit::Cpuid { len } => {
            let len = turn.length(len, Kind::Cpuid);
            cpuid(turn);
            turn.skip(len);
            Next::Continue
        }
        Exit::Msr { write, len } => {
            let len = turn.length(len, Kind::Msr);
            if exits_msr::handle(turn, write) {
                turn.skip(len);
            } else {
                turn.raise_gp();
            }
            Next::Continue
        }
        Exit::Io(io) => exits_io::handle(turn, io),
        Exit::Hlt { len } => {
            let len = turn.length(len, Kind::Hlt);
            turn.skip(len);
            halt(turn)
        }
        Exit::Stage2(fault) => exits_mmio::handle(turn, fault),
        Exit::Xsetbv { len } => {
            let len = turn.length(len, Kind::Xsetbv);
            xsetbv(turn, len);
            Next::Continue
        }
        Exit::CacheFlush { len } => {
            // Guest memory is coherent and write-back; nothing to flush on behalf of the guest.
            let len = turn.length(len, Kind::CacheFlush);
            turn.skip(len);
            Next::Continue
        }
        Exit::Undefined => {
            turn.raise(UD, None);
            Next::Continue
        }
        Exit::Ended(vector) => {
            turn.lapic_effect(Effect::Eoi(vector));
            Next::Continue
        }
        Exit::ApicWrite {
            register,
            value,
            destination,
        } => {
            apic_written(turn, register.into(), value, destination);
            Next::Continue
        }
        Exit::Shutdown => triple_fault(turn),
        Exit::Cr {
            reg: 4,
            write: true,
            gpr,
            len,
        } => {
            write_cr4(turn, gpr, len);
            Next::Continue
        }
        Exit::Cr {
            reg: 8,
            write: true,
            gpr,
            len,
        } => {
            write_cr8(turn, gpr, len);
            Next::Continue
        }
        Exit::Cr { reg, .. } => turn.crash(format_args!("unexpected CR{reg} exit")),
        Exit::Unsupported { code, info1, info2 } => turn.crash(format_args!(
            "exit {code:#x} (info {info1:#x}, {info2:#x}) cannot be handled"
        )),
        Exit::Interrupt | Exit::Nmi | Exit::InterruptWindow => Next::Continue,
    }
}

/// The guest wrote a register of the page that the processor keeps.
#[cold]
fn apic_written(turn: &mut Turn<'_>, register: u32, value: u32, destination: u32) {
    let clocks = turn.clocks();
    turn.local.take_tpr();
    let destination = turn.local.assist.registers.then_some(destination);
    let lapic = &mut turn.local.lapic;
    let effect = lapic.page_written(register, value, destination, clocks);
    turn.local.show_tpr();
    turn.lapic_effect(effect);
}

fn triple_fault(turn: &mut Turn<'_>) -> Next {
    let reason = turn
        .domain
        .params
        .get(crate::domain::params::TRIPLE_FAULT_REASON, false)
        .unwrap_or(1);
    hv_hw::guest_log!(Error, "{} triple fault", turn.vcpu.key);
    super::dump::stopped(turn.vcpu.key, &turn.local.ctx, &turn.memory());
    let reason = ShutdownReason::from_number(reason as u32).unwrap_or(ShutdownReason::Reboot);
    turn.hv.domain_stopped(turn.domain, reason);
    Next::Down
}

fn halt(turn: &mut Turn<'_>) -> Next {
    if turn.local.ctx.interrupts_enabled() {
        return Next::Sleep(Sleep::Halted, None);
    }
    // HLT with interrupts off takes the vCPU down; without any left up the domain has powered off.
    turn.vcpu.up.store(false, Ordering::SeqCst);
    if turn
        .domain
        .vcpus()
        .iter()
        .all(|v| !v.up.load(Ordering::SeqCst))
    {
        turn.hv
            .domain_stopped(turn.domain, ShutdownReason::PowerOff);
    }
    Next::Down
}

#[inline]
fn cpuid(turn: &mut Turn<'_>) {
    let (leaf, sub) = {
        let g = turn.local.ctx.gprs();
        (g.get32(Gpr::Rax), g.get32(Gpr::Rcx))
    };
    let [a, b, c, d] = turn.cpuid_leaf(leaf, sub);
    let g = turn.local.ctx.gprs_mut();
    g.set32(Gpr::Rax, a);
    g.set32(Gpr::Rbx, b);
    g.set32(Gpr::Rcx, c);
    g.set32(Gpr::Rdx, d);
}

/// The value that MOV gives to control register `reg`, and the length of the instruction. `len` is 0 if hardware tells neither
/// length nor register. `None` if it was rewritten or unmapped by another vCPU since it was executed: then what is there now
/// is executed.
fn moved_to_cr(turn: &Turn<'_>, reg: u8, gpr: u8, len: u8) -> Option<(u64, u8)> {
    let paging = turn.local.ctx.paging();
    let (register, len) = if len != 0 {
        (usize::from(gpr & 15), len)
    } else {
        let (bytes, n) = turn.code_bytes(&paging);
        cr::decode(&bytes[..n], paging.long, reg)?
    };
    let value = turn.local.ctx.gprs().0[register];
    let value = if paging.long {
        value
    } else {
        value & 0xffff_ffff
    };
    Some((value, len))
}

/// MOV to CR4.
#[cold]
fn write_cr4(turn: &mut Turn<'_>, gpr: u8, len: u8) {
    let Some((value, len)) = moved_to_cr(turn, 4, gpr, len) else {
        return;
    };
    let paging = turn.local.ctx.paging();
    let allowed = turn.local.cr4_allowed;
    if cr::valid_cr4(paging.cr4, value, allowed, paging.efer, paging.cr3) {
        turn.local.ctx.set_cr4(value);
        turn.skip(len);
    } else {
        turn.raise_gp();
    }
}

/// MOV to CR8, which is watched while an interrupt waits for a lower task priority.
#[cold]
fn write_cr8(turn: &mut Turn<'_>, gpr: u8, len: u8) {
    let Some((value, len)) = moved_to_cr(turn, 8, gpr, len) else {
        return;
    };
    if value > 15 {
        turn.raise_gp();
        return;
    }
    turn.local.lapic.set_tpr((value as u8) << 4);
    turn.local.show_tpr();
    turn.skip(len);
}

fn xsetbv(turn: &mut Turn<'_>, len: u8) {
    let g = turn.local.ctx.gprs();
    let value = u64::from(g.get32(Gpr::Rdx)) << 32 | u64::from(g.get32(Gpr::Rax));
    let index = g.get32(Gpr::Rcx);
    // The value is loaded into the processor: it must be one that the processor takes.
    let ok = index == 0
        && turn.local.ctx.paging().cpl == 0
        && xcr0_valid(value, turn.local.xcr0_allowed);
    if ok {
        turn.local.ctx.set_xcr0(value);
        turn.skip(len);
    } else {
        turn.raise_gp();
    }
}
