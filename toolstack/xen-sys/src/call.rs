//! `ioctl` with a structure that the driver may read and change.

#![allow(unsafe_code, reason = "the one place that calls ioctl")]

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use xen_abi::linux::{evtchn, gntdev, privcmd};

/// A call of one of Xen's drivers that is known to fit its argument.
pub trait Call {
    /// What the driver reads and may change.
    type Argument: zerocopy::IntoBytes;
    /// Number of the call.
    const NUMBER: u32;
}

/// Declares calls with the structure that belongs to each number.
macro_rules! calls {
    ($($(#[$meta:meta])* $name:ident: $number:expr, $argument:ty;)*) => {
        $(
            $(#[$meta])*
            pub enum $name {}
            impl Call for $name {
                type Argument = $argument;
                const NUMBER: u32 = $number;
            }
            // The number itself holds the size of the argument.
            const _: () = assert!(size_of::<$argument>() == (($number >> 16) & 0x3fff) as usize);
        )*
    };
}

calls! {
    /// Binds a virtual interrupt.
    BindVirq: evtchn::BIND_VIRQ, u32;
    /// Binds a port of another domain.
    BindInterdomain: evtchn::BIND_INTERDOMAIN, evtchn::BindInterdomain;
    /// Closes a port.
    Unbind: evtchn::UNBIND, u32;
    /// Sends an event.
    Notify: evtchn::NOTIFY, u32;
    /// Empties the queue of fired ports.
    Reset: evtchn::RESET, ();
    /// Prepares the mapping of a grant.
    MapGrantRef: gntdev::MAP_GRANT_REF, gntdev::MapGrantRef;
    /// Gives a grant back.
    UnmapGrantRef: gntdev::UNMAP_GRANT_REF, gntdev::UnmapGrantRef;
    /// Raises the number of mapped grants.
    SetMaxGrants: gntdev::SET_MAX_GRANTS, u32;
}

/// Adapter for `rustix`.
struct Adapter<'a, A> {
    number: u32,
    argument: &'a mut A,
}

// SAFETY: the number and the type of the argument are declared together in `calls!`, whose size check fails the build if
// they disagree; every argument is plain data that the driver may read and write as a whole. The output is the number
// that the call returned.
unsafe impl<A> Ioctl for Adapter<'_, A> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.argument).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

/// Makes a call; returns the driver's number, often 0.
///
/// # Errors
/// What the driver answers.
pub fn call<C: Call>(fd: impl AsFd, argument: &mut C::Argument) -> io::Result<u32> {
    let adapter = Adapter {
        number: C::NUMBER,
        argument,
    };
    // SAFETY: the argument lives for the call and is what the number stands for (see `calls!`). On a file that is not
    // Xen's driver the number means nothing and fails: it has the driver's letter in it.
    let value = unsafe { ioctl(fd, adapter) }?;
    Ok(value as u32)
}

/// Makes a call of Linux's own drivers, whose argument the caller vouches for.
///
/// # Safety
/// `argument` must be what the driver behind `fd` reads and writes for `number`.
///
/// # Errors
/// What the driver answers.
pub(crate) unsafe fn linux_call<A>(
    fd: impl AsFd,
    number: u32,
    argument: &mut A,
) -> io::Result<i32> {
    // SAFETY: the caller's promise; the argument lives for the call.
    Ok(unsafe { ioctl(fd, Adapter { number, argument }) }?)
}

/// Makes a hypercall; returns what the hypervisor returns.
///
/// # Safety
/// The addresses among the arguments must be memory that this hypercall may read and write for as long as it takes.
///
/// # Errors
/// The hypervisor's error, or that of the driver.
pub unsafe fn hypercall(fd: impl AsFd, mut hypercall: privcmd::Hypercall) -> io::Result<i32> {
    let adapter = Adapter {
        number: privcmd::HYPERCALL,
        argument: &mut hypercall,
    };
    // SAFETY: the structure is the one of this number; what its addresses point to is the caller's promise.
    Ok(unsafe { ioctl(fd, adapter) }?)
}
