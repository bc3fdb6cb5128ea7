//! `dm_op` (41): what a device model in the control domain asks of its guest. There are no emulated PCI devices, so only
//! messages, the end of the guest and its size are there.

use x86_model::apic::DeliveryMode;
use x86_model::msi::{Message, pirq_number};
use xen_abi::hvm::dm_op::{DmInjectMsi, DmNrVcpus, DmOpBuf, DmRemoteShutdown, op};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, IntoBytes};

use super::{Call, HcResult, ptr};
use crate::domain::{DomainRef, ShutdownReason};
use crate::hvm::vlapic::Ipi;
use crate::privilege::{self, Rule};

/// Buffers that a call may have.
const BUFFERS: u32 = 2;
/// Bytes before the structure of an operation.
const HEAD: u64 = 8;
/// Numbers below this are Xen's.
const OPERATIONS: u32 = 21;
/// Where messages are sent to, in bits 31:20 of their address.
const WINDOW: u64 = 0xfee0_0000;

/// `dm_op(domain, number of buffers, buffers)`.
pub fn handle(call: &mut Call<'_, '_>, [domain, count, buffers, ..]: [u64; 5]) -> HcResult {
    if count as u32 > BUFFERS {
        return Err(Errno::E2BIG);
    }
    // All are read, as on Xen, though only the first is used.
    let mut first = DmOpBuf::default();
    for n in 0..u64::from(count as u32) {
        let buffer: DmOpBuf = call.read(call.entry::<DmOpBuf>(buffers, n)?)?;
        if n == 0 {
            first = buffer;
        }
    }
    let target = remote(call, DomId(domain as u16))?;
    if first.size < HEAD {
        return Err(Errno::EFAULT);
    }
    let [number, pad]: [u32; 2] = call.memory().read(ptr(first.h))?;
    if number >= OPERATIONS {
        return Err(Errno::EOPNOTSUPP);
    }
    let argument = Argument {
        at: first.h.wrapping_add(HEAD),
        size: first.size - HEAD,
        pad,
    };
    match number {
        op::INJECT_MSI => {
            let a: DmInjectMsi = argument.read(call)?;
            if a._pad != 0 {
                return Err(Errno::EINVAL);
            }
            inject(call, &target, a.addr, a.data)
        }
        op::REMOTE_SHUTDOWN => {
            let a: DmRemoteShutdown = argument.read(call)?;
            let reason = ShutdownReason::from_number(a.reason).ok_or(Errno::EINVAL)?;
            call.hv().domain_stopped(&target, reason);
            Ok(0)
        }
        op::NR_VCPUS => {
            let _: DmNrVcpus = argument.read(call)?;
            let answer = DmNrVcpus {
                vcpus: target.vcpus().len() as u32,
            };
            call.memory().write(ptr(argument.at), &answer)?;
            Ok(0)
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// A domain that is not the caller's own, for its control domain.
fn remote(call: &Call<'_, '_>, id: DomId) -> Result<DomainRef, Errno> {
    let target = call.hv().domain(id).ok_or(Errno::ESRCH)?;
    if target.id == call.domain().id {
        return Err(Errno::EPERM);
    }
    privilege::check(Rule::Control, call.domain(), Some(&target))?;
    Ok(target)
}

/// The structure of an operation in the caller's memory.
struct Argument {
    at: u64,
    size: u64,
    /// Must be zero, which is looked at after the size.
    pad: u32,
}

impl Argument {
    fn read<T: FromBytes + IntoBytes>(&self, call: &Call<'_, '_>) -> Result<T, Errno> {
        if self.size < size_of::<T>() as u64 {
            return Err(Errno::EFAULT);
        }
        let value = call.memory().read(ptr(self.at))?;
        if self.pad != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(value)
    }
}

/// Delivers a message to the guest's local APICs, by its descriptor where the receiver has one. Where on the bus it was
/// written does not matter. Vector 0 names one of the guest's pirqs, if it has any: the message is an event.
fn inject(call: &Call<'_, '_>, target: &DomainRef, address: u64, data: u32) -> HcResult {
    if data & 0xff == 0 {
        let pirq = pirq_number(address).filter(|_| target.pirqs.is_some());
        let pirq = pirq.ok_or(Errno::EINVAL)?;
        call.hv().raise_pirq(target, pirq);
        return Ok(0);
    }
    let address = WINDOW | address & 0xf_ffff;
    let message = Message::decode(address, data).ok_or(Errno::EINVAL)?;
    let message = Message {
        // Xen looks at neither the extended destination nor the hint.
        dest: message.dest & 0xff,
        hint: false,
        ..message
    };
    let receivers = match message.mode {
        DeliveryMode::Fixed | DeliveryMode::LowestPriority => {
            call.hv()
                .deliver(target, None, &Ipi::from_message(&message))
        }
        _ => return Err(Errno::EINVAL),
    };
    if receivers == 0 && message.mode == DeliveryMode::LowestPriority {
        return Err(Errno::ESRCH);
    }
    Ok(0)
}
