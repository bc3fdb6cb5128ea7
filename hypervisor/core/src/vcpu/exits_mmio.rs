//! Second-stage faults: emulated device pages, device memory mapped on first touch, or nothing (all-ones).

use hv_hw::machine::{Seg, Stage2Fault};
use hv_hw::mem::{FrameKind, frames};
use hv_hw::{GuestContext, Machine};
use x86_model::insn::CodeSize;
use x86_model::walk::{Access, WalkFault};
use x86_model::{Gpa, Gva, Mfn, PAGE_SIZE, Width};

use super::exits::{Next, PF, UD};
use super::run::Turn;
use crate::hvm::emulate::{self, Bus, BusFault, CpuView};
use crate::p2m::PageType;

/// The local APIC's register page, which does not move.
const LAPIC_PAGE: u64 = 0xfee0_0000;
/// First-touch mappings that are logged for a domain; the rest is only counted.
const LOGGED_FIXUPS: u64 = 16;

/// Handles a second-stage fault.
pub fn handle(turn: &mut Turn<'_>, fault: Stage2Fault) -> Next {
    let gpa = fault.gpa;
    if turn.is_emulated(gpa) {
        return turn.emulate();
    }
    match turn.domain.p2m.page_type(gpa.gfn()) {
        // Writable memory, or a read: another CPU has changed the mapping since; the instruction runs again.
        Some(_) if !fault.write => return Next::Continue,
        Some(ty) if ty.is_memory() => {
            if turn
                .domain
                .p2m
                .frame(gpa.gfn())
                .is_some_and(|(_, writable)| writable)
            {
                return Next::Continue;
            }
            if ty == PageType::Grant {
                // A write through a read-only grant: the guest's own fault (as on Xen).
                turn.raise_gp();
                return Next::Continue;
            }
        }
        Some(_) => return Next::Continue,
        None if turn.fix_up(gpa) => return Next::Continue,
        None => {}
    }
    if fault.walk {
        // No instruction can be read through such tables, so none can be completed: it would exit for ever.
        return turn.crash(format_args!(
            "page tables outside of its memory, at {:#x}",
            gpa.0
        ));
    }
    if fault.fetch {
        // Nothing to execute there: all-ones is no instruction.
        turn.raise(UD, None);
        return Next::Continue;
    }
    turn.emulate()
}

impl Turn<'_> {
    /// Whether a page is a device that this hypervisor emulates for the domain.
    fn is_emulated(&self, gpa: Gpa) -> bool {
        gpa.0 & !(PAGE_SIZE - 1) == LAPIC_PAGE
            || self.domain.platform.as_ref().is_some_and(|p| p.traps(gpa))
    }

    /// Maps a page of device memory that firmware did not list, when the control domain first touches it.
    fn fix_up(&mut self, gpa: Gpa) -> bool {
        let gfn = gpa.gfn();
        if !self.domain.privileged
            || frames::kind(Mfn(gfn.0)) != FrameKind::Absent
            || self.hv.hw.page_is_ours(Mfn(gfn.0))
            || !self.domain.p2m.in_range(gfn)
        {
            return false;
        }
        if self.domain.p2m.map_mmio(gfn, 0).is_err() {
            return false;
        }
        let n = self
            .domain
            .mmio_fixups
            .fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        if n < LOGGED_FIXUPS {
            hv_hw::guest_log!(
                Debug,
                "{}: device page {:#x} mapped on first touch",
                self.domain.id,
                gfn.0
            );
        }
        true
    }

    /// Completes the instruction at RIP, whose memory operand is a device or nothing.
    pub fn emulate(&mut self) -> Next {
        let paging = self.local.ctx.paging();
        let state = self.local.ctx.state();
        let code = match self.code_bits() {
            64 => CodeSize::Bits64,
            32 => CodeSize::Bits32,
            _ => CodeSize::Bits16,
        };
        let base = |seg: Seg| state.segments[seg as usize].base;
        let bases = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs].map(base);
        let mut bytes = [0u8; 15];
        let fetched = self.local.ctx.fetched_bytes();
        let n = if fetched.is_empty() {
            let at = if code == CodeSize::Bits64 {
                state.rip
            } else {
                bases[1].wrapping_add(state.rip) & 0xffff_ffff
            };
            self.memory().fetch(Gva(at), &mut bytes, paging.cpl)
        } else {
            let n = fetched.len().min(15);
            bytes[..n].copy_from_slice(&fetched[..n]);
            n
        };
        let mut gprs = self.local.ctx.gprs().clone();
        let mut cpu = CpuView {
            gprs: &mut gprs,
            rip: state.rip,
            rflags: state.rflags,
            bases,
            code,
        };
        let result = emulate::step(
            &bytes[..n],
            &mut cpu,
            &mut GuestBus {
                turn: self,
                cpl: paging.cpl,
            },
        );
        let (rip, rflags) = (cpu.rip, cpu.rflags);
        *self.local.ctx.gprs_mut() = gprs;
        if rflags != state.rflags {
            let mut s = self.local.ctx.state();
            s.rflags = rflags;
            self.local.ctx.set_state(&s);
        }
        if rip != state.rip {
            self.local.ctx.set_rip(rip);
        }
        match result {
            Ok(_) => {}
            Err(emulate::Error::Bus(BusFault::Page { gva, error_code })) => {
                let mut s = self.local.ctx.state();
                s.cr2 = gva;
                self.local.ctx.set_state(&s);
                self.raise(PF, Some(error_code));
            }
            Err(emulate::Error::Bus(BusFault::Protection)) => self.raise_gp(),
            Err(e) => {
                hv_hw::guest_log!(
                    Warning,
                    "{} rip {:#x}: cannot emulate {:02x?}: {e:?}",
                    self.vcpu.key,
                    state.rip,
                    &bytes[..n]
                );
                self.raise(UD, None);
            }
        }
        Next::Continue
    }

    /// Reads device memory at a guest-physical address; all-ones where nothing answers.
    fn device_read(&mut self, gpa: Gpa, width: Width) -> u64 {
        if gpa.0 & !(PAGE_SIZE - 1) == LAPIC_PAGE {
            let clocks = self.clocks();
            self.local.take_tpr();
            return self
                .local
                .lapic
                .mmio_read(gpa.page_offset() as u32, width, clocks);
        }
        let found = self
            .domain
            .platform
            .as_ref()
            .and_then(|p| p.mmio_read(self.hv, self.domain, gpa, width));
        found.unwrap_or(width.mask())
    }

    /// Writes device memory; dropped where nothing answers.
    fn device_write(&mut self, gpa: Gpa, width: Width, value: u64) {
        if gpa.0 & !(PAGE_SIZE - 1) == LAPIC_PAGE {
            let clocks = self.clocks();
            self.local.take_tpr();
            let effect =
                self.local
                    .lapic
                    .mmio_write(gpa.page_offset() as u32, width, value, clocks);
            self.local.show_tpr();
            self.lapic_effect(effect);
        } else if let Some(p) = &self.domain.platform {
            p.mmio_write(self.hv, self.domain, gpa, width, value);
        }
    }
}

/// Memory operands of an emulated instruction.
struct GuestBus<'t, 'a> {
    turn: &'t mut Turn<'a>,
    cpl: u8,
}

fn bus_fault(fault: WalkFault, gva: u64) -> BusFault {
    match fault.error_code() {
        Some(error_code) => BusFault::Page { gva, error_code },
        None => BusFault::Protection,
    }
}

impl GuestBus<'_, '_> {
    fn translate(&self, gva: u64, access: Access) -> Result<Gpa, BusFault> {
        self.turn
            .memory()
            .translate(Gva(gva), access.at_cpl(self.cpl))
            .map_err(|f| bus_fault(f, gva))
    }

    /// Whether an access stays in one page.
    fn whole(gva: u64, width: Width) -> bool {
        gva & (PAGE_SIZE - 1) <= PAGE_SIZE - width.bytes() as u64
    }
}

impl Bus for GuestBus<'_, '_> {
    fn read(&mut self, gva: u64, width: Width) -> Result<u64, BusFault> {
        if !Self::whole(gva, width) {
            let mut value = 0;
            for i in 0..width.bytes() {
                value |= self.read(gva.wrapping_add(i as u64), Width::B1)? << (8 * i);
            }
            return Ok(value);
        }
        let gpa = self.translate(gva, Access::READ)?;
        match self.turn.domain.p2m.frame(gpa.gfn()) {
            Some((frame, _)) => {
                let mut bytes = [0u8; 8];
                frame.read(gpa.page_offset() as usize, &mut bytes[..width.bytes()]);
                Ok(u64::from_le_bytes(bytes))
            }
            None => Ok(self.turn.device_read(gpa, width)),
        }
    }

    fn write(&mut self, gva: u64, width: Width, value: u64) -> Result<(), BusFault> {
        if !Self::whole(gva, width) {
            // Both pages must take the write before the first byte goes out.
            self.translate(gva, Access::WRITE)?;
            self.translate(gva.wrapping_add(width.bytes() as u64 - 1), Access::WRITE)?;
            for i in 0..width.bytes() {
                self.write(
                    gva.wrapping_add(i as u64),
                    Width::B1,
                    value >> (8 * i) & 0xff,
                )?;
            }
            return Ok(());
        }
        let gpa = self.translate(gva, Access::WRITE)?;
        match self.turn.domain.p2m.frame(gpa.gfn()) {
            Some((frame, true)) => frame.write(
                gpa.page_offset() as usize,
                &value.to_le_bytes()[..width.bytes()],
            ),
            Some((_, false)) => {}
            None => self.turn.device_write(gpa, width, value),
        }
        Ok(())
    }

    fn port_in(&mut self, port: u16, width: Width) -> u32 {
        self.turn.port_read(port, width)
    }

    fn port_out(&mut self, port: u16, width: Width, value: u32) {
        self.turn.port_write(port, width, value);
    }
}
