//! `vcpu_op` (24): registration of the shared areas, timers, up and down.

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use x86_model::Gfn;
use xen_abi::Errno;
use xen_abi::time::VcpuTimeInfo;
use xen_abi::vcpu::{
    VcpuRegisterRunstateMemoryArea, VcpuRegisterTimeMemoryArea, VcpuRegisterVcpuInfo,
    VcpuRunstateInfo, VcpuSetPeriodicTimer, VcpuSetSingleshotTimer, op,
};

use zerocopy::FromBytes;

use super::{Call, HcResult, ptr};
use crate::vcpu::info::{FrameAt, GuestArea, VCPU_INFO_SIZE};
use crate::vcpu::timer::MIN_PERIOD_NS;
use crate::vcpu::{NEVER, Vcpu, VcpuRef};

/// `vcpu_op(sub, vcpu, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, id, arg, ..]: [u64; 5]) -> HcResult {
    let vcpu = call.domain().vcpu(id as u32).ok_or(Errno::ENOENT)?.clone();
    match sub as u32 {
        op::INITIALISE => super::vcpu_context::initialise(call, &vcpu, arg),
        op::UP => up(call, &vcpu),
        op::DOWN => {
            call.hv().take_down(&vcpu);
            Ok(0)
        }
        op::IS_UP => Ok(u64::from(vcpu.up.load(Ordering::SeqCst))),
        op::GET_RUNSTATE_INFO => {
            let bytes = vcpu.runstate.snapshot(call.hv().hw.now_ns());
            let info = VcpuRunstateInfo::read_from_bytes(&bytes).map_err(|_| Errno::EFAULT)?;
            call.put(arg, &info)?;
            Ok(0)
        }
        op::REGISTER_RUNSTATE_MEMORY_AREA => register_runstate(call, &vcpu, arg),
        op::SET_PERIODIC_TIMER => periodic(call, &vcpu, arg),
        op::STOP_PERIODIC_TIMER => {
            vcpu.period.store(0, Ordering::Release);
            Ok(0)
        }
        op::SET_SINGLESHOT_TIMER => singleshot(call, &vcpu, arg),
        op::STOP_SINGLESHOT_TIMER => {
            own(call, &vcpu)?;
            vcpu.singleshot.store(NEVER, Ordering::Release);
            Ok(0)
        }
        op::REGISTER_VCPU_INFO => register_info(call, &vcpu, arg),
        op::SEND_NMI => {
            // Takes no argument.
            if arg != 0 {
                return Err(Errno::EINVAL);
            }
            vcpu.post
                .deliver(x86_model::apic::DeliveryMode::Nmi, 0, false);
            call.hv().prod(&vcpu);
            Ok(0)
        }
        // Only for a domain whose vCPUs are pinned for good, which is not offered.
        op::GET_PHYSID => Err(Errno::EINVAL),
        op::REGISTER_VCPU_TIME_MEMORY_AREA => register_time(call, &vcpu, arg),
        _ => Err(Errno::ENOSYS),
    }
}

fn own(call: &Call<'_, '_>, vcpu: &Vcpu) -> Result<(), Errno> {
    if vcpu.key == call.vcpu().key {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

fn up(call: &mut Call<'_, '_>, vcpu: &VcpuRef) -> HcResult {
    if !vcpu.initialised.load(Ordering::SeqCst) {
        return Err(Errno::EINVAL);
    }
    if !vcpu.up.swap(true, Ordering::SeqCst) {
        call.hv().make_runnable(vcpu);
    }
    Ok(0)
}

fn register_runstate(call: &mut Call<'_, '_>, vcpu: &Vcpu, arg: u64) -> HcResult {
    let a: VcpuRegisterRunstateMemoryArea = call.read(arg)?;
    // Translated once: the address is not mapped in every address space of the guest. As on Xen, an address that is mapped
    // nowhere is no error; the vCPU has no area then.
    let parts = call
        .memory()
        .pin(ptr(a.addr), call.size::<VcpuRunstateInfo>());
    *vcpu.areas.runstate.lock() = parts.ok().map(GuestArea::new);
    vcpu.runstate.publish(
        &vcpu.areas,
        call.hv().hw.now_ns(),
        call.domain().flags_runstate(),
    );
    Ok(0)
}

fn register_time(call: &mut Call<'_, '_>, vcpu: &Vcpu, arg: u64) -> HcResult {
    let a: VcpuRegisterTimeMemoryArea = call.read(arg)?;
    let parts = call.memory().pin(ptr(a.addr), size_of::<VcpuTimeInfo>());
    *vcpu.areas.time.lock() = parts.ok().map(GuestArea::new);
    vcpu.areas.update_clock(&call.hv().clock());
    Ok(0)
}

fn register_info(call: &mut Call<'_, '_>, vcpu: &VcpuRef, arg: u64) -> HcResult {
    let a: VcpuRegisterVcpuInfo = call.memory().read(ptr(arg))?;
    let offset = a.offset as usize;
    // Inside one page, aligned for its words.
    let alignment = vcpu.areas.info_alignment();
    if offset > 4096 - VCPU_INFO_SIZE || !offset.is_multiple_of(alignment) {
        return Err(Errno::ENXIO);
    }
    if vcpu.areas.is_registered() {
        return Err(Errno::EINVAL);
    }
    // Another vCPU's area may move only while that vCPU cannot look at it.
    if vcpu.key != call.vcpu().key && vcpu.up.load(Ordering::SeqCst) {
        return Err(Errno::EINVAL);
    }
    let frame = call
        .domain()
        .p2m
        .own_frame(Gfn(a.mfn))
        .ok_or(Errno::EINVAL)?;
    if !vcpu.areas.register_info(FrameAt { frame, offset }) {
        return Err(Errno::EINVAL);
    }
    vcpu.areas.update_clock(&call.hv().clock());
    call.hv().upcall(call.domain(), vcpu);
    Ok(0)
}

fn singleshot(call: &mut Call<'_, '_>, vcpu: &Vcpu, arg: u64) -> HcResult {
    own(call, vcpu)?;
    let a: VcpuSetSingleshotTimer = call.read(arg)?;
    // A deadline in the past fires at once, whatever the "future" flag says; times are signed, so the top half is past.
    let past = i64::try_from(a.timeout_abs_ns).is_err();
    arm(call, vcpu, if past { 0 } else { a.timeout_abs_ns });
    Ok(0)
}

/// Sets the one-shot timer of the calling vCPU.
pub fn arm(call: &mut Call<'_, '_>, vcpu: &Vcpu, deadline_ns: u64) {
    vcpu.singleshot
        .store(deadline_ns.min(NEVER - 1), Ordering::Release);
    call.turn.pcpu.check_clock();
}

fn periodic(call: &mut Call<'_, '_>, vcpu: &VcpuRef, arg: u64) -> HcResult {
    let a: VcpuSetPeriodicTimer = call.memory().read(ptr(arg))?;
    if a.period_ns < MIN_PERIOD_NS || a.period_ns > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    vcpu.next_tick.store(
        call.hv().hw.now_ns().saturating_add(a.period_ns),
        Ordering::Release,
    );
    vcpu.period.store(a.period_ns, Ordering::Release);
    call.turn.pcpu.check_clock();
    // Another vCPU arms its pCPU's timer when it looks at its deadlines again.
    call.hv().prod(vcpu);
    Ok(0)
}
