//! `VCPUOP_initialise` for HVM/PVH: the register state that a vCPU starts from (`hvm/hvm_vcpu.h`).

use core::sync::atomic::Ordering;

use hv_hw::GuestContext;
use hv_hw::machine::{Seg, Segment, SystemState};
use x86_model::{Gpr, Gprs};
use xen_abi::Errno;
use xen_abi::hvm::vcpu::{VcpuHvmContext, VcpuHvmX86_32, VcpuHvmX86_64, mode};
use zerocopy::FromBytes;

use super::{Call, HcResult, ptr};
use crate::hvm::msr::{Live, MsrState, MsrWrite};
use crate::vcpu::VcpuRef;

const EFER: u32 = 0xc000_0080;
const LMA: u64 = 1 << 10;
const PG: u64 = 1 << 31;
const PE: u64 = 1;

/// Sets the start state of a vCPU that is down and was not initialised before.
pub fn initialise(call: &mut Call<'_, '_>, vcpu: &VcpuRef, arg: u64) -> HcResult {
    let ctx: VcpuHvmContext = call.memory().read(ptr(arg))?;
    if vcpu.initialised.load(Ordering::SeqCst) {
        return Err(Errno::EEXIST);
    }
    let (state, gprs) = match ctx.mode {
        mode::MODE_32B => state32(
            &VcpuHvmX86_32::read_from_prefix(&ctx.cpu_regs)
                .map_err(|_| Errno::EFAULT)?
                .0,
        )?,
        mode::MODE_64B => state64(
            &VcpuHvmX86_64::read_from_prefix(&ctx.cpu_regs)
                .map_err(|_| Errno::EFAULT)?
                .0,
        )?,
        _ => return Err(Errno::EINVAL),
    };
    let mut scratch = MsrState::default();
    let efer_ok = matches!(
        call.domain()
            .msr_policy
            .write(EFER, state.efer & !LMA, &mut scratch, &Live::default()),
        MsrWrite::Context(_)
    );
    // Registers that the processor would refuse would end the domain at its first entry.
    if !efer_ok || state.cr4 & !call.turn.local.cr4_allowed != 0 || state.cr0 >> 32 != 0 {
        return Err(Errno::EINVAL);
    }
    if vcpu.initialised.swap(true, Ordering::SeqCst) {
        return Err(Errno::EEXIST);
    }
    // Down and never initialised: nobody runs it, so its local half is free. The caller's own is not, and it is up.
    let Some(mut local) = vcpu.local.try_lock() else {
        return Err(Errno::EBUSY);
    };
    local.ctx.set_state(&state);
    *local.ctx.gprs_mut() = gprs;
    local.started = true;
    Ok(0)
}

fn base_state() -> SystemState {
    let mut s = SystemState {
        pat: 0x0007_0406_0007_0406,
        dr6: 0xffff_0ff0,
        dr7: 0x400,
        ..Default::default()
    };
    for seg in [Seg::Fs, Seg::Gs, Seg::Ldtr] {
        s.segments[seg as usize] = Segment {
            access: 1 << 16,
            ..Default::default()
        };
    }
    s
}

/// The public structure packs access rights without the gap: bits 7:0, then AVL, L, D/B, G at 8 to 11.
fn access(ar: u16) -> u32 {
    u32::from(ar & 0xff) | u32::from(ar & 0xf00) << 4
}

fn state32(r: &VcpuHvmX86_32) -> Result<(SystemState, Gprs), Errno> {
    let (cr0, efer) = (u64::from(r.cr0), r.efer);
    // Paging without protection cannot be entered; long mode needs a consistent set.
    if cr0 & PG != 0 && cr0 & PE == 0 || efer & LMA != 0 {
        return Err(Errno::EINVAL);
    }
    let segment = |base: u32, limit: u32, ar: u16| -> Result<Segment, Errno> {
        // Present, code or data, not a system segment.
        if ar & 0x90 != 0x90 {
            return Err(Errno::EINVAL);
        }
        Ok(Segment {
            selector: 0,
            access: access(ar) | 1,
            limit,
            base: u64::from(base),
        })
    };
    let mut s = base_state();
    s.segments[Seg::Cs as usize] = segment(r.cs_base, r.cs_limit, r.cs_ar)?;
    s.segments[Seg::Ds as usize] = segment(r.ds_base, r.ds_limit, r.ds_ar)?;
    s.segments[Seg::Ss as usize] = segment(r.ss_base, r.ss_limit, r.ss_ar)?;
    s.segments[Seg::Es as usize] = segment(r.es_base, r.es_limit, r.es_ar)?;
    s.segments[Seg::Tr as usize] = Segment {
        selector: 0,
        access: access(r.tr_ar) | 0x8b,
        limit: r.tr_limit,
        base: u64::from(r.tr_base),
    };
    s.rip = u64::from(r.eip);
    s.rflags = u64::from(r.eflags) | 2;
    s.cr0 = cr0 | 0x10;
    s.cr3 = u64::from(r.cr3);
    s.cr4 = u64::from(r.cr4);
    s.efer = efer;
    let mut g = Gprs::default();
    let regs = [
        (Gpr::Rax, r.eax),
        (Gpr::Rcx, r.ecx),
        (Gpr::Rdx, r.edx),
        (Gpr::Rbx, r.ebx),
        (Gpr::Rsp, r.esp),
        (Gpr::Rbp, r.ebp),
        (Gpr::Rsi, r.esi),
        (Gpr::Rdi, r.edi),
    ];
    for (reg, v) in regs {
        g.set32(reg, v);
    }
    Ok((s, g))
}

fn state64(r: &VcpuHvmX86_64) -> Result<(SystemState, Gprs), Errno> {
    // 64-bit start needs all of PG, PE, PAE, LME, LMA.
    if r.cr0 & (PG | PE) != PG | PE
        || r.cr4 & 1 << 5 == 0
        || r.efer & (LMA | 1 << 8) != LMA | 1 << 8
    {
        return Err(Errno::EINVAL);
    }
    let mut s = base_state();
    s.segments[Seg::Cs as usize] = Segment {
        selector: 0,
        access: 0xa09b,
        limit: u32::MAX,
        base: 0,
    };
    for seg in [Seg::Ds, Seg::Ss, Seg::Es] {
        s.segments[seg as usize] = Segment {
            selector: 0,
            access: 0xc093,
            limit: u32::MAX,
            base: 0,
        };
    }
    s.segments[Seg::Tr as usize] = Segment {
        selector: 0,
        access: 0x8b,
        limit: 0x67,
        base: 0,
    };
    s.rip = r.rip;
    s.rflags = r.rflags | 2;
    s.cr0 = r.cr0 | 0x10;
    s.cr3 = r.cr3;
    s.cr4 = r.cr4;
    s.efer = r.efer;
    let mut g = Gprs::default();
    let regs = [
        (Gpr::Rax, r.rax),
        (Gpr::Rcx, r.rcx),
        (Gpr::Rdx, r.rdx),
        (Gpr::Rbx, r.rbx),
        (Gpr::Rsp, r.rsp),
        (Gpr::Rbp, r.rbp),
        (Gpr::Rsi, r.rsi),
        (Gpr::Rdi, r.rdi),
    ];
    for (reg, v) in regs {
        g.set(reg, v);
    }
    Ok((s, g))
}
