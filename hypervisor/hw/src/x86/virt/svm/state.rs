//! Between the save area and the neutral register state, and the MSRs that live in the context.

use x86_model::virt::svm::EFER_SVME;
use x86_model::virt::svm::segment::{access_from_attr, attr_from_access};
use x86_model::virt::svm::vmcb::*;

use super::vcpu::SvmVcpu;
use crate::machine::{PagingState, Seg, Segment, SystemState};

const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;
const EFER_LMA: u64 = 1 << 10;
const RFLAGS_VM: u64 = 1 << 17;
const ATTR_LONG: u16 = 1 << 9;
/// Upper halves of DR6 and DR7 must be zero, or VMRUN refuses the state.
const DR_MASK: u64 = 0xffff_ffff;

fn segment(s: &VmcbSegment) -> Segment {
    Segment {
        selector: s.selector,
        access: access_from_attr(s.attr),
        limit: s.limit,
        base: s.base,
    }
}

fn vmcb_segment(s: &Segment) -> VmcbSegment {
    VmcbSegment {
        selector: s.selector,
        attr: attr_from_access(s.access),
        limit: s.limit,
        base: s.base,
    }
}

fn table(base: u64, limit: u16) -> VmcbSegment {
    VmcbSegment {
        limit: u32::from(limit),
        base,
        ..VmcbSegment::default()
    }
}

/// What guest page walks need.
#[inline]
pub fn paging(s: &Save) -> PagingState {
    PagingState {
        cr0: s.cr0,
        cr3: s.cr3,
        cr4: s.cr4,
        efer: s.efer & !EFER_SVME,
        rflags: s.rflags,
        cpl: s.cpl,
        long: s.efer & EFER_LMA != 0 && s.cs.attr & ATTR_LONG != 0,
    }
}

/// The whole state.
pub fn read(s: &Save) -> SystemState {
    let mut segments = [Segment::default(); 8];
    for (seg, from) in [
        (Seg::Es, &s.es),
        (Seg::Cs, &s.cs),
        (Seg::Ss, &s.ss),
        (Seg::Ds, &s.ds),
        (Seg::Fs, &s.fs),
        (Seg::Gs, &s.gs),
        (Seg::Ldtr, &s.ldtr),
        (Seg::Tr, &s.tr),
    ] {
        segments[seg as usize] = segment(from);
    }
    SystemState {
        rip: s.rip,
        rflags: s.rflags,
        cr0: s.cr0,
        cr2: s.cr2,
        cr3: s.cr3,
        cr4: s.cr4,
        efer: s.efer & !EFER_SVME,
        pat: s.g_pat,
        dr6: s.dr6,
        dr7: s.dr7,
        segments,
        gdtr: (s.gdtr.base, s.gdtr.limit as u16),
        idtr: (s.idtr.base, s.idtr.limit as u16),
        star: s.star,
        lstar: s.lstar,
        cstar: s.cstar,
        sfmask: s.sfmask,
        kernel_gs_base: s.kernel_gs_base,
        sysenter: [s.sysenter_cs, s.sysenter_esp, s.sysenter_eip],
    }
}

/// Sets the whole state. All clean bits must be cleared by the caller.
pub fn write(s: &mut Save, new: &SystemState) {
    let seg = |which: Seg| vmcb_segment(&new.segments[which as usize]);
    s.es = seg(Seg::Es);
    s.cs = seg(Seg::Cs);
    s.ss = seg(Seg::Ss);
    s.ds = seg(Seg::Ds);
    s.fs = seg(Seg::Fs);
    s.gs = seg(Seg::Gs);
    s.ldtr = seg(Seg::Ldtr);
    s.tr = seg(Seg::Tr);
    s.gdtr = table(new.gdtr.0, new.gdtr.1);
    s.idtr = table(new.idtr.0, new.idtr.1);
    s.cpl = if new.cr0 & CR0_PE == 0 {
        0
    } else if new.rflags & RFLAGS_VM != 0 {
        3
    } else {
        (s.ss.attr >> 5 & 3) as u8
    };
    s.rip = new.rip;
    s.rflags = new.rflags | 2;
    s.cr0 = new.cr0 | CR0_ET;
    s.cr2 = new.cr2;
    s.cr3 = new.cr3;
    s.cr4 = new.cr4;
    s.efer = new.efer | EFER_SVME;
    s.g_pat = new.pat;
    s.dr6 = new.dr6 & DR_MASK;
    s.dr7 = new.dr7 & DR_MASK;
    s.star = new.star;
    s.lstar = new.lstar;
    s.cstar = new.cstar;
    s.sfmask = new.sfmask;
    s.kernel_gs_base = new.kernel_gs_base;
    [s.sysenter_cs, s.sysenter_esp, s.sysenter_eip] = new.sysenter;
}

impl SvmVcpu {
    /// Reads an MSR of this context. XSS has no supported bits.
    pub(super) fn read_msr(&self, index: u32) -> Option<u64> {
        let s = &self.vmcb.get().save;
        Some(match index {
            0x174 => s.sysenter_cs,
            0x175 => s.sysenter_esp,
            0x176 => s.sysenter_eip,
            0x1d9 => s.dbgctl,
            0x277 => s.g_pat,
            0xda0 => 0,
            0xc000_0080 => s.efer & !EFER_SVME,
            0xc000_0081 => s.star,
            0xc000_0082 => s.lstar,
            0xc000_0083 => s.cstar,
            0xc000_0084 => s.sfmask,
            0xc000_0100 => s.fs.base,
            0xc000_0101 => s.gs.base,
            0xc000_0102 => s.kernel_gs_base,
            0xc000_0103 => self.switched.tsc_aux(),
            _ => return None,
        })
    }

    /// Writes an MSR of this context. EFER.LMA keeps its value: it follows CR0.PG and LME, in hardware. DEBUGCTL takes
    /// effect where the CPU virtualizes the last-branch registers, and is only remembered elsewhere.
    pub(super) fn write_msr(&mut self, index: u32, value: u64) -> bool {
        let lbr_virt = self.lbr_virt;
        let vmcb = self.vmcb.get_mut();
        let (s, c) = (&mut vmcb.save, &mut vmcb.control);
        match index {
            0x174 => s.sysenter_cs = value,
            0x175 => s.sysenter_esp = value,
            0x176 => s.sysenter_eip = value,
            0x1d9 => {
                s.dbgctl = value;
                c.lbr_ctl = u64::from(lbr_virt && value != 0);
                c.clean &= !CLEAN_LBR;
            }
            0x277 => {
                s.g_pat = value;
                c.clean &= !CLEAN_NESTED;
            }
            0xda0 => return value == 0,
            0xc000_0080 => {
                s.efer = value & !EFER_LMA | s.efer & EFER_LMA | EFER_SVME;
                c.clean &= !CLEAN_CRX;
            }
            0xc000_0081 => s.star = value,
            0xc000_0082 => s.lstar = value,
            0xc000_0083 => s.cstar = value,
            0xc000_0084 => s.sfmask = value,
            0xc000_0100 => s.fs.base = value,
            0xc000_0101 => s.gs.base = value,
            0xc000_0102 => s.kernel_gs_base = value,
            0xc000_0103 => self.switched.set_tsc_aux(value),
            _ => return false,
        }
        true
    }
}
