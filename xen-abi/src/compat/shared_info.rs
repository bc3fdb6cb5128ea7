//! The shared information page in its 32-bit layout.

use core::mem::offset_of;

use crate::layout::abi_header;
use crate::time::VcpuTimeInfo;

abi_header! {
    header "xen.h";
    structs {
        /// [`crate::shared_info::ArchVcpuInfo`].
        ArchVcpuInfo "struct arch_vcpu_info" [24] {
            @0 cr2: u32,
            @4 _pad: [u32; 5] as "pad",
        }
        /// [`crate::shared_info::VcpuInfo`].
        VcpuInfo "struct vcpu_info" [64] {
            @0 evtchn_upcall_pending: u8,
            @1 evtchn_upcall_mask: u8,
            @2 _pad0: [u8; 2],
            @4 evtchn_pending_sel: u32,
            @8 arch: ArchVcpuInfo,
            @32 time: VcpuTimeInfo,
        }
        /// [`crate::shared_info::ArchSharedInfo`].
        ArchSharedInfo "struct arch_shared_info" [28] {
            @0 max_pfn: u32,
            @4 pfn_to_mfn_frame_list_list: u32,
            @8 nmi_reason: u32,
            @12 p2m_cr3: u32,
            @16 p2m_vaddr: u32,
            @20 p2m_generation: u32,
            /// High half of the wall-clock seconds.
            @24 wc_sec_hi: u32,
        }
        /// [`crate::shared_info::SharedInfo`].
        SharedInfo "struct shared_info" [2344] {
            @0 vcpu_info: [VcpuInfo; 32],
            @2048 evtchn_pending: [u32; 32],
            @2176 evtchn_mask: [u32; 32],
            @2304 wc_version: u32,
            @2308 wc_sec: u32,
            @2312 wc_nsec: u32,
            @2316 arch: ArchSharedInfo,
        }
    }
    constants {}
}

/// Byte offsets, as [`crate::shared_info::offset`].
pub mod offset {
    use super::*;

    /// Mask bits in the page. The pending bits are where they are in the 64-bit layout.
    pub const EVTCHN_MASK: usize = offset_of!(SharedInfo, evtchn_mask);
    /// Wall-clock version in the page.
    pub const WC_VERSION: usize = offset_of!(SharedInfo, wc_version);
    /// Wall-clock seconds in the page.
    pub const WC_SEC: usize = offset_of!(SharedInfo, wc_sec);
    /// Wall-clock nanoseconds in the page.
    pub const WC_NSEC: usize = offset_of!(SharedInfo, wc_nsec);
    /// High half of the wall-clock seconds in the page.
    pub const WC_SEC_HI: usize =
        offset_of!(SharedInfo, arch) + offset_of!(ArchSharedInfo, wc_sec_hi);
    /// Selector word in a slot.
    pub const PENDING_SEL: usize = offset_of!(VcpuInfo, evtchn_pending_sel);

    const _: () = {
        use crate::shared_info::offset as wide;
        assert!(offset_of!(SharedInfo, evtchn_pending) == wide::EVTCHN_PENDING);
        assert!(offset_of!(VcpuInfo, evtchn_upcall_pending) == wide::UPCALL_PENDING);
        assert!(offset_of!(VcpuInfo, time) == wide::TIME);
        assert!(size_of::<VcpuInfo>() == wide::VCPU_INFO_SIZE);
    };
}
