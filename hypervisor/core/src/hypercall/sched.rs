//! `sched_op` (29) and `set_timer_op` (15).

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use xen_abi::Errno;
use xen_abi::sched::{
    SchedPinOverride, SchedPoll, SchedRemoteShutdown, SchedShutdown, SchedWatchdog, op,
};

use super::{Call, HcResult, ptr};
use crate::domain::ShutdownReason;
use crate::evtchn::{POLL_NONE, POLL_SEVERAL};
use crate::vcpu::Sleep;
use crate::vcpu::exits::Next;

/// Most ports that one poll may list.
const MAX_POLL: u32 = 128;

/// `sched_op(sub, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, ..]: [u64; 5]) -> HcResult {
    match sub as u32 {
        op::YIELD => {
            call.next = Next::Yield;
            Ok(0)
        }
        op::BLOCK => {
            // An HVM vCPU's own upcall mask is its interrupt flag: blocking opens it, as on Xen.
            call.next = Next::Sleep(Sleep::Halted, None);
            Ok(0)
        }
        op::SHUTDOWN => shutdown(call, arg),
        op::POLL => poll(call, arg),
        op::REMOTE_SHUTDOWN => remote_shutdown(call, arg),
        op::SHUTDOWN_CODE => {
            let a: SchedShutdown = call.memory().read(ptr(arg))?;
            let reason = ShutdownReason::from_number(a.reason).ok_or(Errno::EINVAL)?;
            call.domain().announce_shutdown(reason);
            Ok(0)
        }
        op::WATCHDOG => {
            let a: SchedWatchdog = call.memory().read(ptr(arg))?;
            let result = call
                .hv()
                .set_watchdog(&call.domain().watchdogs, a.id, a.timeout);
            call.turn.pcpu.check_clock();
            result
        }
        op::PIN_OVERRIDE => pin_override(call, arg),
        _ => Err(Errno::ENOSYS),
    }
}

fn shutdown(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: SchedShutdown = call.memory().read(ptr(arg))?;
    let reason = ShutdownReason::from_number(a.reason);
    if reason.is_none() && !call.domain().privileged {
        return Err(Errno::EINVAL);
    }
    // For dom0 an unknown reason means a reboot (as on Xen).
    call.hv()
        .domain_stopped(call.domain(), reason.unwrap_or(ShutdownReason::Reboot));
    // The vCPU stays as it is: after a resume it goes on behind the call.
    call.next = Next::Yield;
    Ok(0)
}

fn remote_shutdown(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: SchedRemoteShutdown = call.memory().read(ptr(arg))?;
    call.privileged()?;
    let target = call.hv().domain(a.domain_id).ok_or(Errno::ESRCH)?;
    if target.id == call.domain().id {
        return Err(Errno::EINVAL);
    }
    let reason = ShutdownReason::from_number(a.reason).ok_or(Errno::EINVAL)?;
    call.hv().domain_stopped(&target, reason);
    Ok(0)
}

/// `SCHEDOP_pin_override`: firmware calls that work on one CPU only. A negative number ends it.
fn pin_override(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    call.privileged()?;
    let a: SchedPinOverride = call.memory().read(ptr(arg))?;
    let hard = match u32::try_from(a.pcpu) {
        Err(_) => None,
        Ok(cpu) if call.hv().hw.is_online(CpuId(cpu)) => Some(CpuId(cpu)),
        Ok(_) => return Err(Errno::EINVAL),
    };
    call.hv().pin_override(call.vcpu(), hard)?;
    Ok(0)
}

fn poll(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: SchedPoll = call.read(arg)?;
    if a.nr_ports > MAX_POLL {
        return Err(Errno::EINVAL);
    }
    let mut ports = [0u32; MAX_POLL as usize];
    for i in 0..a.nr_ports {
        ports[i as usize] = call.memory().read_at(ptr(a.ports), u64::from(i))?;
    }
    let ports = &ports[..a.nr_ports as usize];
    if ports.contains(&0) {
        return Err(Errno::EINVAL);
    }
    let vcpu = call.vcpu();
    // Announce first, look second: a port raised in between finds the poller.
    let wait_for = match ports {
        [one] => *one,
        _ => POLL_SEVERAL,
    };
    call.domain().evtchn.set_polling(vcpu.key.vcpu, wait_for);
    match call.domain().evtchn.any_pending(ports) {
        Ok(false) => {
            let timeout = (a.timeout != 0).then_some(a.timeout);
            call.next = Next::Sleep(Sleep::Polling, timeout);
            Ok(0)
        }
        Ok(true) => {
            call.domain().evtchn.set_polling(vcpu.key.vcpu, POLL_NONE);
            Ok(0)
        }
        Err(e) => {
            call.domain().evtchn.set_polling(vcpu.key.vcpu, POLL_NONE);
            Err(e)
        }
    }
}

/// How far ahead a `set_timer_op` deadline may be: about 13 days. Beyond, it is taken for a guest's wrapped arithmetic.
const FAR_NS: u64 = 1 << 50;
/// What a wrapped deadline is replaced by, from now.
const SOON_NS: u64 = 100_000_000;

/// `set_timer_op(deadline)`: the one-shot timer of the calling vCPU; 0 stops it. A deadline that is negative or very far
/// away becomes one in 100 ms, as on Xen.
pub fn set_timer(call: &mut Call<'_, '_>, [deadline, upper, ..]: [u64; 5]) -> HcResult {
    // 32-bit callers have it in two registers.
    let deadline = if call.is_long() {
        deadline
    } else {
        upper << 32 | deadline
    };
    let vcpu = call.vcpu();
    let now = call.hv().hw.now_ns();
    match deadline {
        0 => vcpu.singleshot.store(crate::vcpu::NEVER, Ordering::Release),
        far if far > now.saturating_add(FAR_NS) => {
            super::vcpu::arm(call, vcpu, now.saturating_add(SOON_NS));
        }
        deadline => super::vcpu::arm(call, vcpu, deadline),
    }
    Ok(0)
}
