//! `XEN_SYSCTL_tbuf_op`: the trace buffers.

use xen_abi::Errno;
use xen_abi::sysctl::{TbufOp, tbufop};

use super::{Op, Result};
use crate::hypercall::bitmap;

/// One of its operations.
pub fn control(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: TbufOp = o.get()?;
    let hv = o.call.hv();
    match a.cmd {
        tbufop::GET_INFO => {
            let info = hv.trace_info();
            a.evt_mask = info.events;
            a.buffer_mfn = info.first;
            a.size = info.bytes;
        }
        tbufop::SET_CPU_MASK => {
            let cpus = bitmap::read(o.call, &a.cpu_mask)?;
            hv.trace_cpus(cpus);
        }
        tbufop::SET_EVT_MASK => hv.trace_events(a.evt_mask),
        tbufop::SET_SIZE => hv.trace_size(a.size)?,
        tbufop::ENABLE => hv.trace_on(true)?,
        tbufop::DISABLE => hv.trace_on(false)?,
        _ => return Err(Errno::EINVAL),
    }
    o.put(&a)
}
