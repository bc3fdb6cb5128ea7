//! The state in which a PVH kernel's first CPU starts (Xen's `docs/misc/pvh.pandoc`): 32-bit protected mode without
//! paging, flat segments, EBX at the start info.

use hv_hw::machine::{Seg, Segment, SystemState};
use x86_model::{Gpr, Gprs};

use super::Dom0Plan;

const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;
/// 32-bit code, execute and read, accessed, 4 KiB units.
const CODE: u32 = 0xc09b;
/// Data, read and write, accessed, 4 KiB units.
const DATA: u32 = 0xc093;
/// Present, 32-bit TSS, busy.
const TSS: u32 = 0x8b;
/// Present, LDT.
const LDT: u32 = 0x82;
/// Value after reset.
const PAT: u64 = 0x0007_0406_0007_0406;

impl Dom0Plan<'_> {
    /// Registers of vCPU 0 at its first instruction.
    pub fn entry_state(&self) -> (SystemState, Gprs) {
        let flat = |access| Segment {
            selector: 0,
            access,
            limit: u32::MAX,
            base: 0,
        };
        let small = |access, limit| Segment {
            selector: 0,
            access,
            limit,
            base: 0,
        };
        let mut segments = [flat(DATA); 8];
        segments[Seg::Cs as usize] = flat(CODE);
        segments[Seg::Ldtr as usize] = small(LDT, 0);
        segments[Seg::Tr as usize] = small(TSS, 0x67);
        let state = SystemState {
            rip: self.entry,
            rflags: 2,
            cr0: CR0_PE | CR0_ET,
            pat: PAT,
            dr6: 0xffff_0ff0,
            dr7: 0x400,
            segments,
            ..SystemState::default()
        };
        let mut gprs = Gprs::default();
        gprs.0[Gpr::Rbx as usize] = self.placement.block.start;
        (state, gprs)
    }
}
