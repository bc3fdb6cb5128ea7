//! Hypercalls as data: an argument, and memory that the argument points to. What makes them is behind a trait, so that
//! programs are tested against [`crate::fake`]. Calls are made in this crate only: how much the hypervisor writes depends
//! on counts in the argument, and those must fit the memory.

#![allow(unsafe_code, reason = "hands the hypervisor the address of a buffer")]

use crate::call::hypercall;
use crate::locked::Locked;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::OwnedFd;
use xen_abi::Errno;
use xen_abi::linux::privcmd::Hypercall;

/// Memory that an argument points to.
#[derive(Debug)]
pub struct Slot<'a> {
    /// Where in the argument the address stands, in bytes from its start.
    pub(crate) field: usize,
    /// What is there before, and after the call.
    pub(crate) bytes: &'a mut [u8],
}

/// An argument behind the structure's address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    /// A number.
    Number(u64),
    /// The address of a part of the structure, in bytes from its start.
    Within(usize),
}

/// A hypercall that takes a structure, as all do that the toolstack makes.
#[derive(Debug)]
pub struct Call<'a, 's> {
    /// Its number, one of [`xen_abi::hypercall::nr`].
    pub(crate) number: u32,
    /// The sub-operation, where it comes as the first argument.
    pub(crate) operation: Option<u32>,
    /// The structure; as the hypervisor left it afterwards, also after an error.
    pub(crate) argument: &'a mut [u8],
    /// Arguments behind its address; at most three.
    pub(crate) rest: &'a [Rest],
    /// The memory that it points to.
    pub(crate) slots: &'a mut [Slot<'s>],
}

/// What takes hypercalls.
pub trait Hypercalls {
    /// Makes one; returns its value.
    ///
    /// # Errors
    /// The hypervisor's, or the kernel's.
    fn call(&self, call: &mut Call<'_, '_>) -> io::Result<u64>;
}

/// The kernel's device for hypercalls: `/dev/xen/privcmd`.
#[derive(Debug)]
pub struct Privcmd {
    fd: OwnedFd,
    /// Memory that the kernel never moves, since Linux 4.18.
    memory: Option<OwnedFd>,
}

/// How often a call is made again that found memory moved from under it.
const ATTEMPTS: u32 = 3;

impl Privcmd {
    /// Opens the devices.
    ///
    /// # Errors
    /// Those of `open`; without Xen there is no such device.
    pub fn open() -> io::Result<Privcmd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Privcmd {
            fd: open("/dev/xen/privcmd", flags, Mode::empty())?,
            memory: open("/dev/xen/hypercall", flags, Mode::empty()).ok(),
        })
    }
}

impl Hypercalls for Privcmd {
    fn call(&self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let mut end = call.argument.len();
        let mut places = Vec::new();
        for slot in call.slots.iter() {
            let start = end.next_multiple_of(8);
            end = start + slot.bytes.len();
            places.push(start..end);
        }
        let mut memory = Locked::new(end, self.memory.as_ref())?;
        let base = memory.address();
        for (slot, place) in call.slots.iter().zip(&places) {
            let address = base + place.start as u64;
            call.argument[slot.field..slot.field + 8].copy_from_slice(&address.to_ne_bytes());
        }
        for attempt in 1.. {
            let bytes = memory.bytes();
            bytes[..call.argument.len()].copy_from_slice(call.argument);
            for (slot, place) in call.slots.iter().zip(&places) {
                bytes[place.clone()].copy_from_slice(slot.bytes);
            }
            // Some operations without an argument insist on there being none.
            let first = if call.argument.is_empty() { 0 } else { base };
            let (mut arg, next) = match call.operation {
                Some(operation) => ([operation.into(), first, 0, 0, 0], 2),
                None => ([first, 0, 0, 0, 0], 1),
            };
            for (to, rest) in arg[next..].iter_mut().zip(call.rest) {
                *to = match *rest {
                    Rest::Number(n) => n,
                    Rest::Within(at) => base + at as u64,
                };
            }
            let op = call.number.into();
            // SAFETY: the addresses among the arguments are of `memory`, which nobody else uses until the call
            // returns; the addresses inside the structure, put there above, point into `memory` as well. Only this crate
            // makes a `Call`: its argument has the type that `xen-abi` declares for the operation, and the counts in it
            // are those of the slots.
            let result = unsafe { hypercall(&self.fd, Hypercall { op, arg }) };
            let moved = matches!(&result, Err(e) if e.raw_os_error() == Some(Errno::EFAULT as i32));
            if moved && attempt < ATTEMPTS {
                continue;
            }
            let bytes = memory.bytes();
            call.argument.copy_from_slice(&bytes[..call.argument.len()]);
            for (slot, place) in call.slots.iter_mut().zip(&places) {
                slot.bytes.copy_from_slice(&bytes[place.clone()]);
            }
            return result.map(|value| value as u32 as u64);
        }
        unreachable!("the last attempt returns")
    }
}
