//! Hypercalls: direct (VMCALL or VMMCALL by CPU vendor) and through a hypercall page.
//!
//! `call` is safe although a wild pointer argument lets the hypervisor overwrite the guest: the guest owns its
//! whole machine and many tests pass wild pointers on purpose. Buffers that the hypervisor fills must be passed
//! with [`ptr`], which exposes their provenance to the compiler.

use core::arch::asm;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::{Page, cpu};

/// Hypercall numbers.
#[allow(missing_docs, reason = "the names are the ABI's")]
mod numbers {
    pub const PLATFORM_OP: u64 = 7;
    pub const MEMORY_OP: u64 = 12;
    pub const MULTICALL: u64 = 13;
    pub const SET_TIMER_OP: u64 = 15;
    pub const XEN_VERSION: u64 = 17;
    pub const CONSOLE_IO: u64 = 18;
    pub const GRANT_TABLE_OP: u64 = 20;
    pub const VM_ASSIST: u64 = 21;
    pub const VCPU_OP: u64 = 24;
    pub const SCHED_OP: u64 = 29;
    pub const EVENT_CHANNEL_OP: u64 = 32;
    pub const PHYSDEV_OP: u64 = 33;
    pub const HVM_OP: u64 = 34;
    pub const HYPFS_OP: u64 = 42;
}
pub use numbers::*;

/// The domain that asks.
pub const DOMID_SELF: u16 = 0x7ff0;

const UNKNOWN: u8 = 0;
const VMMCALL: u8 = 1;
const VMCALL: u8 = 2;

static WAY: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Chooses the instruction by the CPU vendor, as Linux does: AMD and Hygon use VMMCALL, all others VMCALL.
pub fn init() {
    let [_, b, c, d] = cpu::cpuid(0, 0);
    let amd = [
        u32::from_le_bytes(*b"Auth"),
        u32::from_le_bytes(*b"enti"),
        u32::from_le_bytes(*b"cAMD"),
    ];
    let hygon = [
        u32::from_le_bytes(*b"Hygo"),
        u32::from_le_bytes(*b"nGen"),
        u32::from_le_bytes(*b"uine"),
    ];
    let way = if [b, d, c] == amd || [b, d, c] == hygon {
        VMMCALL
    } else {
        VMCALL
    };
    WAY.store(way, Ordering::Relaxed);
}

/// Address of a buffer for a hypercall argument.
pub fn ptr<T: ?Sized>(buffer: &mut T) -> u64 {
    core::ptr::from_mut(buffer).expose_provenance() as u64
}

/// Issues hypercall `nr` directly and returns RAX.
#[inline]
pub fn call(nr: u64, a: [u64; 5]) -> i64 {
    let result: i64;
    if WAY.load(Ordering::Relaxed) == VMCALL {
        // SAFETY: see the module header; all other registers are preserved by the ABI.
        unsafe {
            asm!("vmcall", inlateout("rax") nr => result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
                 in("r10") a[3], in("r8") a[4], options(nostack))
        };
    } else {
        // SAFETY: as above.
        unsafe {
            asm!("vmmcall", inlateout("rax") nr => result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
                 in("r10") a[3], in("r8") a[4], options(nostack))
        };
    }
    result
}

/// Every register that a hypercall must leave alone, before and after it: RBX is left out because the compiler
/// keeps it, RCX, RDX, RSI, RDI and R8-R15 are here. Returns (RAX, mask of registers that changed, RFLAGS changed).
pub fn call_observed(nr: u64, a: [u64; 5]) -> (i64, u32, bool) {
    let (rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11): (u64, u64, u64, u64, u64, u64, u64, u64, u64);
    let (before, after): (u64, u64);
    macro_rules! go {
        ($insn:literal) => {
            // SAFETY: see the module header; all registers that could change are outputs.
            unsafe {
                asm!("pushfq", "pop r12", $insn, "pushfq", "pop r13",
                     inlateout("rax") nr => rax, inlateout("rcx") 0x1111u64 => rcx, inlateout("rdx") a[2] => rdx,
                     inlateout("rsi") a[1] => rsi, inlateout("rdi") a[0] => rdi, inlateout("r8") a[4] => r8,
                     inlateout("r9") 0x9999u64 => r9, inlateout("r10") a[3] => r10,
                     inlateout("r11") 0xbbbbu64 => r11, out("r12") before, out("r13") after)
            }
        };
    }
    if WAY.load(Ordering::Relaxed) == VMCALL {
        go!("vmcall")
    } else {
        go!("vmmcall")
    }
    let pairs = [
        (rcx, 0x1111),
        (rdx, a[2]),
        (rsi, a[1]),
        (rdi, a[0]),
        (r8, a[4]),
        (r9, 0x9999),
        (r10, a[3]),
        (r11, 0xbbbb),
    ];
    let changed = pairs.iter().enumerate().fold(0, |mask, (i, (now, then))| {
        mask | u32::from(now != then) << i
    });
    (rax as i64, changed, before != after)
}

/// True if hypercalls use VMMCALL.
pub fn uses_vmmcall() -> bool {
    WAY.load(Ordering::Relaxed) == VMMCALL
}

/// Issues hypercall `nr` through a hypercall page that the hypervisor has filled.
pub fn call_page(page: &Page, nr: u64, a: [u64; 5]) -> i64 {
    let entry = page.address() + 32 * nr;
    let result: i64;
    // SAFETY: the page holds the hypervisor's stubs, which return with `ret`; see the module header.
    unsafe {
        asm!("call {entry}", entry = in(reg) entry, out("rax") result, in("rdi") a[0], in("rsi") a[1],
             in("rdx") a[2], in("r10") a[3], in("r8") a[4])
    };
    result
}

/// A hypercall result in normal form: a number, or `-NAME` for an error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ret(pub i64);

impl fmt::Display for Ret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            -1 => "EPERM",
            -2 => "ENOENT",
            -3 => "ESRCH",
            -5 => "EIO",
            -6 => "ENXIO",
            -7 => "E2BIG",
            -11 => "EAGAIN",
            -12 => "ENOMEM",
            -13 => "EACCES",
            -14 => "EFAULT",
            -16 => "EBUSY",
            -17 => "EEXIST",
            -18 => "EXDEV",
            -19 => "ENODEV",
            -22 => "EINVAL",
            -28 => "ENOSPC",
            -33 => "EDOM",
            -34 => "ERANGE",
            -38 => "ENOSYS",
            -61 => "ENODATA",
            -62 => "ETIME",
            -75 => "EOVERFLOW",
            -85 => "ERESTART",
            -90 => "EMSGSIZE",
            -95 => "EOPNOTSUPP",
            -105 => "ENOBUFS",
            other => return write!(f, "{other}"),
        };
        write!(f, "-{name}")
    }
}

/// A call `(sub, pointer)`, the commonest form.
pub fn op<T>(nr: u64, sub: u64, arg: &mut T) -> Ret {
    Ret(call(nr, [sub, ptr(arg), 0, 0, 0]))
}

/// event_channel_op.
pub fn evtchn_op<T>(sub: u64, arg: &mut T) -> Ret {
    op(EVENT_CHANNEL_OP, sub, arg)
}

/// memory_op.
pub fn memory_op<T>(sub: u64, arg: &mut T) -> Ret {
    op(MEMORY_OP, sub, arg)
}

/// hvm_op.
pub fn hvm_op<T>(sub: u64, arg: &mut T) -> Ret {
    op(HVM_OP, sub, arg)
}

/// sched_op.
pub fn sched_op<T>(sub: u64, arg: &mut T) -> Ret {
    op(SCHED_OP, sub, arg)
}

/// vcpu_op.
pub fn vcpu_op<T>(sub: u64, vcpu: u64, arg: &mut T) -> Ret {
    Ret(call(VCPU_OP, [sub, vcpu, ptr(arg), 0, 0]))
}

/// grant_table_op on an array.
pub fn grant_op<T>(sub: u64, args: &mut [T]) -> Ret {
    let count = args.len() as u64;
    Ret(call(
        GRANT_TABLE_OP,
        [
            sub,
            args.as_mut_ptr().expose_provenance() as u64,
            count,
            0,
            0,
        ],
    ))
}

/// SCHEDOP_shutdown: reason 0 powers off, 1 reboots, 3 crashes.
pub fn shutdown(reason: u32) {
    let mut arg = reason;
    let _ = sched_op(2, &mut arg);
}

/// HVMOP_set_param on the own domain.
pub fn set_param(index: u32, value: u64) -> Ret {
    hvm_op(
        0,
        &mut Param {
            domid: DOMID_SELF,
            pad: 0,
            index,
            value,
        },
    )
}

/// HVMOP_get_param on the own domain.
pub fn get_param(index: u32) -> Result<u64, Ret> {
    let mut arg = Param {
        domid: DOMID_SELF,
        pad: 0,
        index,
        value: 0,
    };
    match hvm_op(1, &mut arg) {
        Ret(0) => Ok(arg.value),
        other => Err(other),
    }
}

#[repr(C)]
struct Param {
    domid: u16,
    pad: u16,
    index: u32,
    value: u64,
}
