//! What a dump of a domain needs: which frames it has, and its vCPUs' registers.

use super::Xen;
use crate::hypercalls::{Call, Slot};
use std::io;
use xen_abi::domctl::{GetPageFrameInfo3, HvmContextPartial, op, pfinfo};
use xen_abi::hvm::save::{HwCpu, code};
use xen_abi::{DomId, hypercall::nr, memory};
use zerocopy::IntoBytes;

/// Frames that are asked about at a time; more is refused.
const BATCH: u64 = 1024;

impl Xen {
    /// The registers of a vCPU that is on.
    ///
    /// # Errors
    /// The hypervisor's: `ENODATA` if it is off.
    pub fn cpu_record(&self, domid: DomId, vcpu: u32) -> io::Result<HwCpu> {
        let mut record = HwCpu::default();
        let mut own = HvmContextPartial {
            kind: code::CPU.into(),
            instance: vcpu,
            bufsz: size_of::<HwCpu>() as u64,
            buffer: 0,
        };
        let slot = Slot {
            field: 16,
            bytes: record.as_mut_bytes(),
        };
        self.do_domctl(op::GETHVMCONTEXT_PARTIAL, domid, &mut own, &mut [slot])?;
        Ok(record)
    }

    /// The frames of a domain that have memory behind them, in order, up to `end` at most: a guest may have some anywhere.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn present_frames(&self, domid: DomId, end: u64) -> io::Result<Vec<u64>> {
        let last = self.last_frame(domid)?.min(end.saturating_sub(1));
        let mut present = Vec::new();
        let mut first = 0;
        while first <= last {
            let count = BATCH.min(last - first + 1);
            let mut kinds: Vec<u64> = (first..first + count).collect();
            let mut own = GetPageFrameInfo3 {
                num: count,
                array: 0,
            };
            let slot = Slot {
                field: 8,
                bytes: kinds.as_mut_bytes(),
            };
            self.do_domctl(op::GETPAGEFRAMEINFO3, domid, &mut own, &mut [slot])?;
            let kind = |k: u64| k as u32 & pfinfo::XTAB;
            let there = |k: u64| ![pfinfo::XTAB, pfinfo::BROKEN].contains(&kind(k));
            let numbered = (first..).zip(kinds);
            present.extend(numbered.filter(|(_, k)| there(*k)).map(|(n, _)| n));
            first += count;
        }
        Ok(present)
    }

    fn last_frame(&self, domid: DomId) -> io::Result<u64> {
        let mut own = memory::MemoryDomain { domid };
        self.calls.call(&mut Call {
            number: nr::MEMORY_OP,
            operation: Some(memory::op::MAXIMUM_GPFN),
            argument: own.as_mut_bytes(),
            rest: &[],
            slots: &mut [],
        })
    }
}
