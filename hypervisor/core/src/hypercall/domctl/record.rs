//! Saved records of one vCPU: from its registers to the record, and from a record to its registers.

use core::sync::atomic::Ordering;

use hv_hw::GuestContext;
use hv_hw::machine::{Seg, Segment, SystemState};
use x86_model::{Gpr, Gprs, xsave};
use xen_abi::Errno;
use xen_abi::hvm::save::{HwCpu, HwMsr, HwMtrr, cpu_flags};
use zerocopy::{FromBytes, IntoBytes};

use crate::domain::Domain;
use crate::hvm::cr;
use crate::hvm::msr::{Live, MsrRead, MsrWrite};
use crate::hypervisor::Hypervisor;
use crate::vcpu::{VcpuLocal, VcpuRef};

const EFER: u32 = 0xc000_0080;
const TSC_AUX: u32 = 0xc000_0103;
const PAT: u32 = 0x277;
const MTRR_CAP: u32 = 0xfe;
const MTRR_DEFAULT: u32 = 0x2ff;
const MTRR_VARIABLE: u32 = 0x200;
const MTRR_FIXED: [u32; 11] = [
    0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f,
];
const PE: u64 = 1;
const ET: u64 = 1 << 4;
const PG: u64 = 1 << 31;
/// Bits of CR0 that are defined.
const CR0_KNOWN: u64 = 0xe005_003f;
const LMA: u64 = 1 << 10;
const PRESENT: u32 = 1 << 7;
const UNUSABLE: u32 = 1 << 16;

/// Segment attributes of a record are packed: bits 7:0, then AVL, L, D/B, G.
fn pack(access: u32) -> u32 {
    if access & UNUSABLE != 0 {
        0
    } else {
        access & 0xff | access >> 4 & 0xf00
    }
}

fn unpack(packed: u32) -> u32 {
    // Very old records have the processor's own order.
    let packed = if packed & 0xf000 != 0 && packed & 0xf00 == 0 {
        packed & 0xff | packed >> 4 & 0xf00
    } else {
        packed
    };
    let access = packed & 0xff | (packed & 0xf00) << 4;
    if packed & PRESENT == 0 {
        access | UNUSABLE
    } else {
        access
    }
}

/// Calls a macro with each segment register and its fields of the record, for both directions.
macro_rules! segments {
    ($each:ident) => {
        $each! {
            Cs cs_sel cs_limit cs_base cs_arbytes,
            Ds ds_sel ds_limit ds_base ds_arbytes,
            Es es_sel es_limit es_base es_arbytes,
            Fs fs_sel fs_limit fs_base fs_arbytes,
            Gs gs_sel gs_limit gs_base gs_arbytes,
            Ss ss_sel ss_limit ss_base ss_arbytes,
            Tr tr_sel tr_limit tr_base tr_arbytes,
            Ldtr ldtr_sel ldtr_limit ldtr_base ldtr_arbytes,
        }
    };
}

/// The CPU record. An event that is on its way to the guest is not in it.
pub fn save_cpu(hv: &Hypervisor, local: &VcpuLocal) -> HwCpu {
    let s = local.ctx.state();
    let g = local.ctx.gprs();
    let segment = |n: Seg| s.segments[n as usize];
    let [dr0, dr1, dr2, dr3] = local.ctx.breakpoints();
    let mut r = HwCpu {
        fpu_regs: fpu(local),
        flags: cpu_flags::FPU_INITIALISED,
        dr0,
        dr1,
        dr2,
        dr3,
        rip: s.rip,
        rflags: s.rflags,
        cr0: s.cr0,
        cr2: s.cr2,
        cr3: s.cr3,
        cr4: s.cr4,
        dr6: s.dr6,
        dr7: s.dr7,
        gdtr_base: s.gdtr.0,
        gdtr_limit: s.gdtr.1.into(),
        idtr_base: s.idtr.0,
        idtr_limit: s.idtr.1.into(),
        sysenter_cs: s.sysenter[0],
        sysenter_esp: s.sysenter[1],
        sysenter_eip: s.sysenter[2],
        shadow_gs: s.kernel_gs_base,
        msr_lstar: s.lstar,
        msr_star: s.star,
        msr_cstar: s.cstar,
        msr_syscall_mask: s.sfmask,
        msr_efer: s.efer,
        msr_tsc_aux: local.ctx.context_msr(TSC_AUX).unwrap_or(0),
        tsc: hv_hw::Machine::tsc(&hv.hw).wrapping_add(local.tsc_offset),
        ..Default::default()
    };
    for (reg, slot) in [
        (Gpr::Rax, &mut r.rax),
        (Gpr::Rbx, &mut r.rbx),
        (Gpr::Rcx, &mut r.rcx),
        (Gpr::Rdx, &mut r.rdx),
        (Gpr::Rbp, &mut r.rbp),
        (Gpr::Rsi, &mut r.rsi),
        (Gpr::Rdi, &mut r.rdi),
        (Gpr::Rsp, &mut r.rsp),
        (Gpr::R8, &mut r.r8),
        (Gpr::R9, &mut r.r9),
        (Gpr::R10, &mut r.r10),
        (Gpr::R11, &mut r.r11),
        (Gpr::R12, &mut r.r12),
        (Gpr::R13, &mut r.r13),
        (Gpr::R14, &mut r.r14),
        (Gpr::R15, &mut r.r15),
    ] {
        *slot = g.get(reg);
    }
    macro_rules! put {
        ($($seg:ident $sel:ident $limit:ident $base:ident $ar:ident,)*) => { $(
            let s = segment(Seg::$seg);
            (r.$sel, r.$limit, r.$base, r.$ar) = (s.selector.into(), s.limit, s.base, pack(s.access));
        )* };
    }
    segments!(put);
    r
}

/// Whether the processor would take these control registers.
fn check(d: &Domain, local: &VcpuLocal, r: &HwCpu, phys_bits: u8) -> Result<(), Errno> {
    let mut scratch = local.msrs.clone();
    let live = Live {
        cr0: r.cr0,
        cr4: r.cr4,
        efer: r.msr_efer,
    };
    let efer = d
        .msr_policy
        .write(EFER, r.msr_efer & !LMA, &mut scratch, &live);
    // The policy says what EFER would be; a record must say the same.
    let efer_ok = efer == MsrWrite::Context(r.msr_efer);
    let cr0_ok = r.cr0 & !CR0_KNOWN == 0 && r.cr0 & ET != 0 && r.cr0 & (PE | PG) != PG;
    let cr4_ok = cr::valid_cr4(0, r.cr4, local.cr4_allowed, r.msr_efer, r.cr3);
    let rest_ok = r.cr3 >> phys_bits == 0
        && r._pad0 == 0
        && r.flags & !cpu_flags::FPU_INITIALISED == 0
        && r.msr_tsc_aux >> 32 == 0
        && r.dr6 >> 32 == 0
        && r.dr7 >> 32 == 0;
    // Long mode needs its paging.
    let paging_ok = r.msr_efer & LMA == 0 || r.cr4 & 1 << 5 != 0;
    if efer_ok && cr0_ok && cr4_ok && rest_ok && paging_ok {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// The FXSAVE image.
pub fn fpu(local: &VcpuLocal) -> [u8; xsave::LEGACY] {
    let mut image = [0; xsave::LEGACY];
    if let Some(area) = local.ctx.extended().get(..xsave::LEGACY) {
        image.copy_from_slice(area);
    }
    image
}

/// Loads an FXSAVE image, or the initial state; the components above SSE become initial.
pub fn load_fpu(local: &mut VcpuLocal, image: Option<&[u8; xsave::LEGACY]>) {
    let mut area = [0; xsave::MIN];
    if let Some(image) = image {
        area[..xsave::LEGACY].copy_from_slice(image);
        // x87 and SSE are in it.
        area[xsave::LEGACY] = 3;
    }
    let area: &[u8] = if image.is_some() { &area } else { &[] };
    local.ctx.set_extended(area);
}

/// Takes a CPU record over and brings the vCPU up. EINVAL: values that the processor would refuse.
pub fn load_cpu(hv: &Hypervisor, d: &Domain, v: &VcpuRef, r: &HwCpu) -> Result<(), Errno> {
    hv.with_local(v, |local| {
        check(d, local, r, hv_hw::Machine::phys_bits(&hv.hw))?;
        let has_fpu = r.flags & cpu_flags::FPU_INITIALISED != 0;
        load_fpu(local, has_fpu.then_some(&r.fpu_regs));
        local.ctx.set_breakpoints([r.dr0, r.dr1, r.dr2, r.dr3]);
        local.ctx.set_state(&state(r, &local.ctx.state()));
        *local.ctx.gprs_mut() = gprs(r);
        local.ctx.set_context_msr(TSC_AUX, r.msr_tsc_aux);
        // The TSC is not taken over: every domain reads the machine's, and its clock says so.
        local.started = true;
        Ok::<(), Errno>(())
    })??;
    v.initialised.store(true, Ordering::SeqCst);
    v.up.store(true, Ordering::SeqCst);
    hv.make_runnable(v);
    Ok(())
}

fn state(r: &HwCpu, old: &SystemState) -> SystemState {
    let segment = |selector: u32, limit, base, packed| Segment {
        selector: selector as u16,
        access: unpack(packed),
        limit,
        base,
    };
    let mut s = SystemState {
        rip: r.rip,
        rflags: r.rflags | 2,
        cr0: r.cr0,
        cr2: r.cr2,
        cr3: r.cr3,
        cr4: r.cr4,
        efer: r.msr_efer,
        pat: old.pat,
        dr6: r.dr6,
        dr7: r.dr7,
        gdtr: (r.gdtr_base, r.gdtr_limit as u16),
        idtr: (r.idtr_base, r.idtr_limit as u16),
        star: r.msr_star,
        lstar: r.msr_lstar,
        cstar: r.msr_cstar,
        sfmask: r.msr_syscall_mask,
        kernel_gs_base: r.shadow_gs,
        sysenter: [r.sysenter_cs, r.sysenter_esp, r.sysenter_eip],
        ..Default::default()
    };
    macro_rules! put {
        ($($seg:ident $sel:ident $limit:ident $base:ident $ar:ident,)*) => { $(
            s.segments[Seg::$seg as usize] = segment(r.$sel, r.$limit, r.$base, r.$ar);
        )* };
    }
    segments!(put);
    s
}

fn gprs(r: &HwCpu) -> Gprs {
    let mut g = Gprs::default();
    for (reg, value) in [
        (Gpr::Rax, r.rax),
        (Gpr::Rbx, r.rbx),
        (Gpr::Rcx, r.rcx),
        (Gpr::Rdx, r.rdx),
        (Gpr::Rbp, r.rbp),
        (Gpr::Rsi, r.rsi),
        (Gpr::Rdi, r.rdi),
        (Gpr::Rsp, r.rsp),
        (Gpr::R8, r.r8),
        (Gpr::R9, r.r9),
        (Gpr::R10, r.r10),
        (Gpr::R11, r.r11),
        (Gpr::R12, r.r12),
        (Gpr::R13, r.r13),
        (Gpr::R14, r.r14),
        (Gpr::R15, r.r15),
    ] {
        g.set(reg, value);
    }
    g
}

fn fixed_value(d: &Domain, local: &VcpuLocal, index: u32) -> u64 {
    match d.msr_policy.read(index, &local.msrs) {
        MsrRead::Value(v) => v,
        _ => 0,
    }
}

/// The MTRR record.
pub fn save_mtrr(d: &Domain, local: &VcpuLocal) -> HwMtrr {
    let read = |index| fixed_value(d, local, index);
    let mut r = HwMtrr {
        msr_pat_cr: local.ctx.state().pat,
        msr_mtrr_cap: read(MTRR_CAP),
        msr_mtrr_def_type: read(MTRR_DEFAULT),
        ..Default::default()
    };
    for (i, slot) in (MTRR_VARIABLE..).zip(&mut r.msr_mtrr_var) {
        *slot = read(i);
    }
    for (index, slot) in MTRR_FIXED.into_iter().zip(&mut r.msr_mtrr_fixed) {
        *slot = read(index);
    }
    r
}

/// Takes an MTRR record over; values that the registers refuse are left out, as on Xen. EINVAL: more variable ranges than
/// there are.
pub fn load_mtrr(hv: &Hypervisor, d: &Domain, v: &VcpuRef, r: &HwMtrr) -> Result<(), Errno> {
    if r.msr_mtrr_cap & 0xff > 8 {
        return Err(Errno::EINVAL);
    }
    let ranges = (r.msr_mtrr_cap & 0xff) as usize;
    hv.with_local(v, |local| {
        let live = Live::default();
        if let MsrWrite::Context(pat) =
            d.msr_policy
                .write(PAT, r.msr_pat_cr, &mut local.msrs, &live)
        {
            local.ctx.set_context_msr(PAT, pat);
        }
        let variable = (MTRR_VARIABLE..).zip(r.msr_mtrr_var).take(2 * ranges);
        let fixed = MTRR_FIXED.into_iter().zip(r.msr_mtrr_fixed);
        let default = [(MTRR_DEFAULT, r.msr_mtrr_def_type)];
        for (index, value) in variable.chain(fixed).chain(default) {
            let _ = d.msr_policy.write(index, value, &mut local.msrs, &live);
        }
    })
}

/// MSRs that go into a record of their own if they are not 0: SPEC_CTRL, MISC_FEATURES_ENABLES, BNDCFGS, XSS,
/// VIRT_SPEC_CTRL, and the address masks of AMD's breakpoints.
pub const SENT_MSRS: [u32; 9] = [
    0x48,
    0x140,
    0xd90,
    0xda0,
    0xc001_011f,
    0xc001_1027,
    0xc001_1019,
    0xc001_101a,
    0xc001_101b,
];
/// Bytes of the record before its elements.
const MSRS_BEFORE: usize = 8;

/// Gives the record of MSRs in pieces; none if all are 0.
pub fn save_msrs(
    d: &Domain,
    local: &VcpuLocal,
    out: &mut dyn FnMut(&[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let value = |index| match d.msr_policy.read(index, &local.msrs) {
        MsrRead::Value(v) => v,
        MsrRead::Context => local.ctx.context_msr(index).unwrap_or(0),
        _ => 0,
    };
    let used = || SENT_MSRS.into_iter().filter(|&index| value(index) != 0);
    let count = used().count() as u64;
    if count == 0 {
        return Ok(());
    }
    out(count.as_bytes())?;
    for index in used() {
        let msr = HwMsr {
            index,
            _rsvd: 0,
            val: value(index),
        };
        out(msr.as_bytes())?;
    }
    Ok(())
}

/// Takes a record of MSRs over. EOPNOTSUPP: its length is not what its count says. ENXIO: a register that is not sent, or a
/// value that the domain may not write.
pub fn load_msrs(d: &Domain, local: &mut VcpuLocal, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.len() < MSRS_BEFORE + size_of::<HwMsr>() {
        return Err(Errno::EINVAL);
    }
    let (count, _) = u32::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
    let msrs = &bytes[MSRS_BEFORE..];
    if msrs.len() as u64 != u64::from(count) * size_of::<HwMsr>() as u64 {
        return Err(Errno::EOPNOTSUPP);
    }
    let each = || {
        msrs.chunks_exact(size_of::<HwMsr>())
            .filter_map(|b| HwMsr::read_from_bytes(b).ok())
    };
    if each().any(|m| m._rsvd != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    for m in each() {
        let live = Live::default();
        if !SENT_MSRS.contains(&m.index) {
            return Err(Errno::ENXIO);
        }
        let written = match d.msr_policy.write(m.index, m.val, &mut local.msrs, &live) {
            MsrWrite::Done => true,
            MsrWrite::Context(v) => local.ctx.set_context_msr(m.index, v),
            _ => false,
        };
        if !written {
            return Err(Errno::ENXIO);
        }
    }
    Ok(())
}
