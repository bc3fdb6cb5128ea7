//! A vCPU's registers in PV's layout (`XEN_DOMCTL_{get,set}vcpucontext`), of which an HVM domain has a part.

use core::sync::atomic::Ordering;

use hv_hw::GuestContext;
use hv_hw::machine::Seg;
use x86_model::{Gpr, Gprs};
use xen_abi::Errno;
use xen_abi::domctl::VcpuContext;
use xen_abi::guest_context::{VcpuGuestContext, vgcf};

use super::super::ptr;
use super::{Done, Op, Result, record};
use crate::domain::DomainRef;
use crate::hypervisor::Hypervisor;
use crate::vcpu::{Vcpu, VcpuLocal};

/// `vm_assist` bits of HVM domains: updates of the run state are flagged.
const VM_ASSIST: u64 = 1 << 5;

/// General registers, with their fields.
macro_rules! gprs {
    ($each:ident) => {
        $each! {
            Rax rax, Rbx rbx, Rcx rcx, Rdx rdx, Rbp rbp, Rsi rsi, Rdi rdi, Rsp rsp,
            R8 r8, R9 r9, R10 r10, R11 r11, R12 r12, R13 r13, R14 r14, R15 r15,
        }
    };
}

fn context(v: &Vcpu, local: &VcpuLocal) -> VcpuGuestContext {
    let s = local.ctx.state();
    let g = local.ctx.gprs();
    let selector = |n: Seg| s.segments[n as usize].selector;
    let base = |n: Seg| s.segments[n as usize].base;
    let online = if v.up.load(Ordering::SeqCst) {
        vgcf::ONLINE
    } else {
        0
    };
    let cs = selector(Seg::Cs);
    // Which base is the kernel's depends on who runs.
    let (kernel, user) = if cs & 3 == 0 {
        (base(Seg::Gs), s.kernel_gs_base)
    } else {
        (s.kernel_gs_base, base(Seg::Gs))
    };
    let [dr0, dr1, dr2, dr3] = local.ctx.breakpoints();
    let mut c = VcpuGuestContext {
        fpu_ctxt: record::fpu(local),
        flags: vgcf::I387_VALID | online,
        rip: s.rip,
        rflags: s.rflags,
        cs,
        ss: selector(Seg::Ss),
        ds: selector(Seg::Ds),
        es: selector(Seg::Es),
        fs: selector(Seg::Fs),
        gs: selector(Seg::Gs),
        ctrlreg: [s.cr0, 0, s.cr2, s.cr3, s.cr4, 0, 0, 0],
        debugreg: [dr0, dr1, dr2, dr3, 0, 0, s.dr6, s.dr7],
        fs_base: base(Seg::Fs),
        gs_base_kernel: kernel,
        gs_base_user: user,
        ..VcpuGuestContext::default()
    };
    macro_rules! put {
        ($($gpr:ident $field:ident,)*) => { $( c.$field = g.get(Gpr::$gpr); )* };
    }
    gprs!(put);
    c
}

/// `getvcpucontext`. EINVAL: no such vCPU, or one of the caller's domain, which cannot be held. ENODATA: it has no registers
/// yet.
pub fn get(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: VcpuContext = o.get()?;
    let v = d.vcpu(a.vcpu).ok_or(Errno::EINVAL)?;
    o.not_self(d)?;
    if !v.initialised.load(Ordering::SeqCst) {
        return Err(Errno::ENODATA);
    }
    let hv = o.call.hv();
    hv.hold(d);
    let c = hv.with_local(v, |local| context(v, local));
    hv.let_go(d);
    o.call.memory().write(ptr(a.ctxt), &c?)?;
    Ok(Done::Answer)
}

/// `setvcpucontext`: general and debug registers, floating-point state, and whether the vCPU is up. Control and segment
/// registers stay, as on Xen. A null context resets the vCPU.
pub fn set(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: VcpuContext = o.get()?;
    o.not_self(d)?;
    let v = d.vcpu(a.vcpu).ok_or(Errno::EINVAL)?;
    let hv = o.call.hv();
    if a.ctxt == 0 {
        v.initialised.store(false, Ordering::SeqCst);
        hv.take_down(v);
        return Ok(Done::Quiet);
    }
    let c: VcpuGuestContext = o.call.memory().read(ptr(a.ctxt))?;
    hv.hold(d);
    let done = hv.with_local(v, |local| load(local, &c));
    let done = done.and_then(|()| accept(hv, d, v, &c));
    hv.let_go(d);
    done.map(|()| Done::Quiet)
}

fn load(local: &mut VcpuLocal, c: &VcpuGuestContext) {
    let has_fpu = c.flags & vgcf::I387_VALID != 0;
    record::load_fpu(local, has_fpu.then_some(&c.fpu_ctxt));
    let mut g = Gprs::default();
    macro_rules! take {
        ($($gpr:ident $field:ident,)*) => { $( g.set(Gpr::$gpr, c.$field); )* };
    }
    gprs!(take);
    *local.ctx.gprs_mut() = g;
    let mut s = local.ctx.state();
    (s.rip, s.rflags) = (c.rip, c.rflags | 2);
    local.ctx.set_state(&s);
}

/// The rest, which Xen does after the registers even if this fails.
fn accept(
    hv: &Hypervisor,
    d: &DomainRef,
    v: &Vcpu,
    c: &VcpuGuestContext,
) -> core::result::Result<(), Errno> {
    let first = v.key.vcpu == 0;
    if first && c.vm_assist & !VM_ASSIST != 0 {
        return Err(Errno::EINVAL);
    }
    let [dr0, dr1, dr2, dr3, .., dr6, dr7] = c.debugreg;
    hv.with_local(v, |local| {
        local.ctx.set_breakpoints([dr0, dr1, dr2, dr3]);
        let mut s = local.ctx.state();
        // The upper halves are reserved.
        (s.dr6, s.dr7) = (dr6 & 0xffff_ffff, dr7 & 0xffff_ffff);
        local.ctx.set_state(&s);
    })?;
    if first {
        d.vm_assist.store(c.vm_assist as u32, Ordering::SeqCst);
    }
    if c.flags & vgcf::ONLINE == 0 {
        hv.take_down(v);
    } else {
        v.up.store(true, Ordering::SeqCst);
        hv.make_runnable(v);
    }
    Ok(())
}
