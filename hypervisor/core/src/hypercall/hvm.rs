//! `hvm_op` (34): HVM parameters, the event upcall vector, memory types.

use core::sync::atomic::Ordering;

use x86_model::Gfn;
use xen_abi::hvm::op::{HvmEvtchnUpcallVector, HvmGetMemType, HvmParam, HvmXentrace, op};
use xen_abi::trace::class;
use xen_abi::{DomId, Errno};

use super::{Call, HcResult, ptr};
use crate::domain::params;
use crate::p2m::PageType;

/// `hvm_op(sub, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, ..]: [u64; 5]) -> HcResult {
    match sub as u32 {
        op::SET_PARAM => set_param(call, arg),
        op::GET_PARAM => get_param(call, arg),
        op::GET_MEM_TYPE => get_mem_type(call, arg),
        op::SET_EVTCHN_UPCALL_VECTOR => upcall_vector(call, arg),
        op::GET_TIME => {
            let now = hv_hw::Machine::now_ns(&call.hv().hw);
            call.memory().write(ptr(arg), &now)?;
            Ok(0)
        }
        op::FLUSH_TLBS => {
            if arg != 0 {
                return Err(Errno::EINVAL);
            }
            call.domain().p2m.stage2().invalidate();
            call.hv().flush_domain(call.domain());
            Ok(0)
        }
        // Shadow paging only: with nested paging there is nothing to hint, and success would make Linux call it for ever.
        op::PAGETABLE_DYING => Err(Errno::EINVAL),
        op::XENTRACE => trace(call, arg),
        op::ALTP2M => Err(Errno::EOPNOTSUPP),
        // vm_event: there is no listener.
        op::GUEST_REQUEST_VM_EVENT => {
            if arg != 0 {
                Err(Errno::EINVAL)
            } else {
                Ok(0)
            }
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// `HVMOP_xentrace`: a record for the trace buffer.
fn trace(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    /// Records of a guest have a 12-bit number.
    const MAX_EVENT: u16 = 0xfff;
    let a: HvmXentrace = call.memory().read(ptr(arg))?;
    if a.event > MAX_EVENT || usize::from(a.extra_bytes) > a.extra.len() {
        return Err(Errno::EINVAL);
    }
    if call.turn.pcpu.traces() {
        let word = |bytes: &[u8]| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(word)
        };
        let mut words = [0u32; 7];
        let used = &a.extra[..usize::from(a.extra_bytes)];
        let count = used.len().div_ceil(4);
        for (to, bytes) in words.iter_mut().zip(used.chunks(4)) {
            *to = word(bytes);
        }
        let event = class::GUEST | u32::from(a.event);
        let hv = call.hv();
        call.turn
            .pcpu
            .tracer
            .record(hv, event, true, &words[..count]);
    }
    Ok(0)
}

fn is_self(call: &Call<'_, '_>, id: DomId) -> bool {
    id == DomId::SELF || id == call.domain().id
}

fn set_param(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: HvmParam = call.memory().read(ptr(arg))?;
    if a.index as usize >= params::COUNT {
        return Err(Errno::EINVAL);
    }
    let target = call.target(a.domid)?;
    target
        .params
        .check_set(a.index, a.value, is_self(call, a.domid))?;
    match a.index {
        params::CALLBACK_IRQ => {
            target.set_callback(a.value);
            if target.id == call.domain().id {
                target.latch_layout(!call.is_long(), call.hv().wallclock());
            }
            // The upcall may have been pending before there was a way to deliver it.
            for v in target.vcpus() {
                call.hv().prod(v);
            }
        }
        params::TRIPLE_FAULT_REASON if a.value > 5 => return Err(Errno::EINVAL),
        // Where the ACPI timer's ports are; no domain has an emulated one.
        params::ACPI_IOPORTS_LOCATION => return Err(Errno::ENODEV),
        // Four modes of catching up with missed ticks.
        params::TIMER_MODE if a.value > 3 => return Err(Errno::EINVAL),
        // None of Hyper-V's interfaces is there, no alternate maps, no machine-check banks.
        params::VIRIDIAN => return Err(Errno::EINVAL),
        params::ALTP2M | params::MCA_CAP if a.value != 0 => return Err(Errno::EINVAL),
        params::ACPI_S_STATE if a.value != 0 => return Err(Errno::EINVAL),
        params::NR_IOREQ_SERVER_PAGES if !(1..=64).contains(&a.value) => {
            return Err(Errno::EINVAL);
        }
        params::X87_FIP_WIDTH if !matches!(a.value, 0 | 4 | 8) => return Err(Errno::EINVAL),
        _ => {}
    }
    target.params.set(a.index, a.value);
    Ok(0)
}

fn get_param(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let mut a: HvmParam = call.memory().read(ptr(arg))?;
    if a.index as usize >= params::COUNT {
        return Err(Errno::EINVAL);
    }
    let target = call.target(a.domid)?;
    // Older kernels say that they can be dom0 whatever they were built for. They then look for a guest's console, find none, and
    // are silent to their end.
    if call.domain().privileged && a.domid == DomId::SELF && target.params.wants_console(a.index) {
        hv_hw::warn!(
            "dom0's kernel looks for the console of a guest: it is built for guests only (no CONFIG_XEN_DOM0, as in Debian's cloud kernels); use the distribution's standard kernel"
        );
    }
    a.value = target.params.get(a.index, is_self(call, a.domid))?;
    call.memory().write(ptr(arg), &a)?;
    Ok(0)
}

fn get_mem_type(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let mut a: HvmGetMemType = call.memory().read(ptr(arg))?;
    let target = call.target(a.domid)?;
    // HVMMEM_ram_rw 0, HVMMEM_ram_ro 1, HVMMEM_mmio_dm 2.
    a.mem_type = match target.p2m.page_type(Gfn(a.pfn)) {
        Some(PageType::Ram | PageType::Shared | PageType::Foreign) => 0,
        Some(PageType::Grant) => u16::from(
            target
                .p2m
                .frame(Gfn(a.pfn))
                .is_none_or(|(_, writable)| !writable),
        ),
        Some(PageType::Mmio) | None => 2,
    };
    call.memory().write(ptr(arg), &a)?;
    Ok(0)
}

fn upcall_vector(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: HvmEvtchnUpcallVector = call.memory().read(ptr(arg))?;
    // Vectors below 16 cannot come through a local APIC.
    if a.vector < 0x10 {
        return Err(Errno::EINVAL);
    }
    let vcpu = call.domain().vcpu(a.vcpu).ok_or(Errno::ENOENT)?.clone();
    vcpu.upcall_vector.store(a.vector, Ordering::Release);
    if vcpu
        .areas
        .upcall_pending()
        .is_some_and(|p| p.load(Ordering::Acquire) != 0)
    {
        call.hv().upcall(call.domain(), &vcpu);
    }
    Ok(0)
}
