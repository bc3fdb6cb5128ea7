//! Between the control structure, which must be current here, and the neutral register state; and the MSRs that live in the
//! context.

use x86_model::regs::{cr, msr};
use x86_model::virt::vmx::control::entry;
use x86_model::virt::vmx::field::*;
use x86_model::virt::vmx::segment::{self, Role, settle};
use x86_model::virt::vmx::{CR4_GUEST_OWNED, cr0};

use super::instr::{read, write};
use super::vcpu::VmxVcpu;
use super::vmcs::real_cr4;
use crate::machine::{PagingState, Segment, SystemState};

/// Roles in the order of [`crate::machine::Seg`], which is that of the fields.
const ROLES: [Role; 8] = [
    Role::Data,
    Role::Code,
    Role::Stack,
    Role::Data,
    Role::Data,
    Role::Data,
    Role::Table,
    Role::Task,
];
const CS: u16 = 1;
const SS: u16 = 2;
const FS: u16 = 4;
const GS: u16 = 5;
const LOW_HALF: u64 = 0xffff_ffff;
/// DEBUGCTL: last-branch records, and single-step on branches. Entries refuse bits that the CPU lacks.
const DEBUGCTL: u64 = 3;
const DR7_FIXED: u64 = 0x400;

/// CR0 as the guest sees it.
pub fn guest_cr0() -> u64 {
    cr0::visible(read(GUEST_CR0), read(CR0_SHADOW))
}

/// CR4 as the guest sees it.
pub fn guest_cr4() -> u64 {
    read(GUEST_CR4) & CR4_GUEST_OWNED | read(CR4_SHADOW) & !CR4_GUEST_OWNED
}

/// Sets CR4 as the guest sees it.
pub fn set_guest_cr4(value: u64) {
    // SAFETY: guest state; VMXE stays set.
    unsafe {
        write(GUEST_CR4, real_cr4(value));
        write(CR4_SHADOW, value);
    }
}

/// Sets EFER, and whether the next entry goes to long mode, which must agree with it.
pub fn set_guest_efer(value: u64) {
    let controls = read(ENTRY_CONTROLS) & !entry::LONG_MODE;
    let long = if value & msr::EFER_LMA != 0 {
        entry::LONG_MODE
    } else {
        0
    };
    // SAFETY: guest state.
    unsafe {
        write(GUEST_EFER, value);
        write(ENTRY_CONTROLS, controls | long);
    }
}

/// Whether CS is 64-bit code in long mode.
pub fn code_is_long(efer: u64) -> bool {
    efer & msr::EFER_LMA != 0 && read(nth32(GUEST_ES_ACCESS, CS)) & segment::LONG != 0
}

/// What guest page walks need.
pub fn paging() -> PagingState {
    let efer = read(GUEST_EFER);
    let cr0 = guest_cr0();
    PagingState {
        cr0,
        cr3: read(GUEST_CR3),
        cr4: guest_cr4(),
        efer,
        rflags: read(GUEST_RFLAGS),
        // The CPU takes the privilege level from SS.
        cpl: if cr0 & cr::CR0_PE == 0 {
            0
        } else {
            (read(nth32(GUEST_ES_ACCESS, SS)) >> 5 & 3) as u8
        },
        long: code_is_long(efer),
    }
}

fn read_segment(n: u16) -> Segment {
    Segment {
        selector: read(nth16(GUEST_ES_SELECTOR, n)),
        access: read(nth32(GUEST_ES_ACCESS, n)),
        limit: read(nth32(GUEST_ES_LIMIT, n)),
        base: read(nth_nat(GUEST_ES_BASE, n)),
    }
}

fn write_segment(n: u16, s: &Segment) {
    let access = settle(ROLES[usize::from(n)], s.access, s.limit);
    // SAFETY: guest state.
    unsafe {
        write(nth16(GUEST_ES_SELECTOR, n), s.selector);
        write(nth32(GUEST_ES_ACCESS, n), access);
        write(nth32(GUEST_ES_LIMIT, n), s.limit);
        write(nth_nat(GUEST_ES_BASE, n), s.base);
    }
}

impl VmxVcpu {
    /// The whole state.
    pub(super) fn read_state(&self) -> SystemState {
        let mut segments = [Segment::default(); 8];
        for (n, segment) in (0..).zip(&mut segments) {
            *segment = read_segment(n);
        }
        let msr = |index| self.resident.msr(index).unwrap_or(0);
        SystemState {
            rip: read(GUEST_RIP),
            rflags: read(GUEST_RFLAGS),
            cr0: guest_cr0(),
            cr2: self.resident.cr2(),
            cr3: read(GUEST_CR3),
            cr4: guest_cr4(),
            efer: read(GUEST_EFER),
            pat: read(GUEST_PAT),
            dr6: self.resident.dr6(),
            dr7: read(GUEST_DR7),
            segments,
            gdtr: (read(GUEST_GDTR_BASE), read(GUEST_GDTR_LIMIT) as u16),
            idtr: (read(GUEST_IDTR_BASE), read(GUEST_IDTR_LIMIT) as u16),
            star: msr(msr::STAR),
            lstar: msr(msr::LSTAR),
            cstar: msr(msr::CSTAR),
            sfmask: msr(msr::SFMASK),
            kernel_gs_base: msr(msr::KERNEL_GS_BASE),
            sysenter: [
                read(GUEST_SYSENTER_CS).into(),
                read(GUEST_SYSENTER_ESP),
                read(GUEST_SYSENTER_EIP),
            ],
        }
    }

    /// Sets the whole state; what was to be injected is forgotten by the caller.
    pub(super) fn write_state(&mut self, new: &SystemState) {
        for (n, segment) in (0..).zip(&new.segments) {
            write_segment(n, segment);
        }
        set_guest_efer(new.efer);
        set_guest_cr4(new.cr4);
        // SAFETY: guest state. RFLAGS has its fixed bit, DR7 no upper half, as entries demand.
        unsafe {
            write(GUEST_CR0, cr0::real(new.cr0));
            write(CR0_SHADOW, new.cr0 | cr::CR0_ET);
            write(GUEST_CR3, new.cr3);
            write(GUEST_RIP, new.rip);
            write(GUEST_RFLAGS, new.rflags | cr::RFLAGS_FIXED);
            write(GUEST_PAT, new.pat);
            write(GUEST_DR7, new.dr7 & LOW_HALF | DR7_FIXED);
            write(GUEST_GDTR_BASE, new.gdtr.0);
            write(GUEST_GDTR_LIMIT, new.gdtr.1.into());
            write(GUEST_IDTR_BASE, new.idtr.0);
            write(GUEST_IDTR_LIMIT, new.idtr.1.into());
            write(GUEST_SYSENTER_CS, new.sysenter[0] as u32);
            write(GUEST_SYSENTER_ESP, new.sysenter[1]);
            write(GUEST_SYSENTER_EIP, new.sysenter[2]);
            write(GUEST_INTERRUPTIBILITY, 0);
            write(GUEST_PENDING_DEBUG, 0);
            write(GUEST_ACTIVITY, 0);
        }
        self.resident.set_cr2(new.cr2);
        self.resident.set_dr6(new.dr6);
        for (index, value) in [
            (msr::STAR, new.star),
            (msr::LSTAR, new.lstar),
            (msr::CSTAR, new.cstar),
            (msr::SFMASK, new.sfmask),
            (msr::KERNEL_GS_BASE, new.kernel_gs_base),
        ] {
            self.resident.set_msr(index, value);
        }
    }

    /// Reads an MSR of this context. XSS has no supported bits.
    pub(super) fn read_msr(&self, index: u32) -> Option<u64> {
        Some(match index {
            msr::SYSENTER_CS => read(GUEST_SYSENTER_CS).into(),
            msr::SYSENTER_ESP => read(GUEST_SYSENTER_ESP),
            msr::SYSENTER_EIP => read(GUEST_SYSENTER_EIP),
            msr::DEBUGCTL => read(GUEST_DEBUGCTL),
            msr::PAT => read(GUEST_PAT),
            msr::XSS => 0,
            msr::EFER => read(GUEST_EFER),
            msr::FS_BASE => read(nth_nat(GUEST_ES_BASE, FS)),
            msr::GS_BASE => read(nth_nat(GUEST_ES_BASE, GS)),
            msr::TSC_AUX => self.switched.tsc_aux(),
            _ => return self.resident.msr(index),
        })
    }

    /// Writes an MSR of this context. EFER.LMA keeps its value: it follows CR0.PG and LME.
    pub(super) fn write_msr(&mut self, index: u32, value: u64) -> bool {
        // SAFETY: guest state; values that the CPU does not take end in a failed entry, which only stops this guest.
        unsafe {
            match index {
                msr::SYSENTER_CS => write(GUEST_SYSENTER_CS, value as u32),
                msr::SYSENTER_ESP => write(GUEST_SYSENTER_ESP, value),
                msr::SYSENTER_EIP => write(GUEST_SYSENTER_EIP, value),
                msr::DEBUGCTL => write(GUEST_DEBUGCTL, value & DEBUGCTL),
                msr::PAT => write(GUEST_PAT, value),
                msr::XSS => return value == 0,
                msr::EFER => {
                    let active = read(GUEST_EFER) & msr::EFER_LMA;
                    set_guest_efer(value & !msr::EFER_LMA | active);
                }
                msr::FS_BASE => write(nth_nat(GUEST_ES_BASE, FS), value),
                msr::GS_BASE => write(nth_nat(GUEST_ES_BASE, GS), value),
                msr::TSC_AUX => self.switched.set_tsc_aux(value),
                _ => return self.resident.set_msr(index, value),
            }
        }
        true
    }
}
