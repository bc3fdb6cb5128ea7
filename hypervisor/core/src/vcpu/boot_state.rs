//! The architectural states a vCPU starts from: PVH entry, and what INIT and SIPI leave.

use hv_hw::GuestContext;
use hv_hw::machine::{Seg, Segment, SystemState};
use x86_model::{Gpa, Gpr, Gprs};

use super::VcpuLocal;

const PAT_RESET: u64 = 0x0007_0406_0007_0406;

fn flat(selector: u16, access: u32) -> Segment {
    Segment {
        selector,
        access,
        limit: 0xffff_ffff,
        base: 0,
    }
}

/// Flat 32-bit protected mode without paging, EBX at the start info (`docs/misc/pvh.pandoc` in Xen's tree).
pub fn pvh_entry(local: &mut VcpuLocal, entry: u32, start_info: Gpa) {
    let mut s = SystemState {
        rip: u64::from(entry),
        rflags: 2,
        cr0: 0x11,
        pat: PAT_RESET,
        ..Default::default()
    };
    s.dr6 = 0xffff_0ff0;
    s.dr7 = 0x400;
    for seg in [Seg::Es, Seg::Ss, Seg::Ds] {
        s.segments[seg as usize] = flat(0, 0xc093);
    }
    s.segments[Seg::Cs as usize] = flat(0, 0xc09b);
    s.segments[Seg::Fs as usize] = Segment {
        access: 1 << 16,
        ..Default::default()
    };
    s.segments[Seg::Gs as usize] = Segment {
        access: 1 << 16,
        ..Default::default()
    };
    s.segments[Seg::Tr as usize] = Segment {
        selector: 0,
        access: 0x8b,
        limit: 0x67,
        base: 0,
    };
    s.segments[Seg::Ldtr as usize] = Segment {
        selector: 0,
        access: 1 << 16,
        limit: 0,
        base: 0,
    };
    local.ctx.set_state(&s);
    let mut gprs = Gprs::default();
    gprs.set(Gpr::Rbx, start_info.0);
    *local.ctx.gprs_mut() = gprs;
}

/// State after SIPI with `vector`: real mode at `vector << 12`.
pub fn sipi(local: &mut VcpuLocal, vector: u8) {
    let mut s = SystemState {
        rip: 0,
        rflags: 2,
        cr0: 0x10,
        pat: PAT_RESET,
        ..Default::default()
    };
    s.dr6 = 0xffff_0ff0;
    s.dr7 = 0x400;
    let real = |access| Segment {
        selector: 0,
        access,
        limit: 0xffff,
        base: 0,
    };
    for seg in [Seg::Es, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs] {
        s.segments[seg as usize] = real(0x93);
    }
    s.segments[Seg::Cs as usize] = Segment {
        selector: u16::from(vector) << 8,
        base: u64::from(vector) << 12,
        ..real(0x9b)
    };
    s.segments[Seg::Ldtr as usize] = real(0x82);
    s.segments[Seg::Tr as usize] = real(0x8b);
    s.gdtr = (0, 0xffff);
    s.idtr = (0, 0xffff);
    local.ctx.set_state(&s);
    let mut gprs = Gprs::default();
    // Family, model, stepping: what the processor reports in EDX after reset.
    gprs.set(Gpr::Rdx, 0x600);
    *local.ctx.gprs_mut() = gprs;
    local.ctx.set_xcr0(1);
}
