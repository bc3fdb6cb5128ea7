//! The shared information page (`xen.h`), 64-bit layout.

use core::mem::offset_of;

use crate::layout::abi_header;
use crate::time::VcpuTimeInfo;

abi_header! {
    header "xen.h";
    structs {
        /// The architecture's part of [`VcpuInfo`]; used by PV guests only.
        ArchVcpuInfo "struct arch_vcpu_info" [16] {
            @0 cr2: u64,
            @8 _pad: u64 as "pad",
        }
        /// A vCPU's part of the page, or of a page that it registered.
        VcpuInfo "struct vcpu_info" [64] {
            /// Set by the hypervisor, cleared by the guest.
            @0 evtchn_upcall_pending: u8,
            /// Ignored for hardware-assisted guests.
            @1 evtchn_upcall_mask: u8,
            @2 _pad0: [u8; 6],
            /// 2-level format: bit per word of [`SharedInfo::evtchn_pending`] that has news.
            @8 evtchn_pending_sel: u64,
            @16 arch: ArchVcpuInfo,
            @32 time: VcpuTimeInfo,
        }
        /// PV guests' memory-map anchors; unused by hardware-assisted guests.
        ArchSharedInfo "struct arch_shared_info" [48] {
            @0 max_pfn: u64,
            @8 pfn_to_mfn_frame_list_list: u64,
            @16 nmi_reason: u64,
            @24 p2m_cr3: u64,
            @32 p2m_vaddr: u64,
            @40 p2m_generation: u64,
        }
        /// The page's contents.
        SharedInfo "struct shared_info" [3136] {
            @0 vcpu_info: [VcpuInfo; 32],
            /// 2-level format: pending bit per port.
            @2048 evtchn_pending: [u64; 64],
            /// 2-level format: mask bit per port.
            @2560 evtchn_mask: [u64; 64],
            /// Odd while the wall clock is being written.
            @3072 wc_version: u32,
            /// Wall-clock seconds at system time 0, low half.
            @3076 wc_sec: u32,
            /// Nanoseconds.
            @3080 wc_nsec: u32,
            /// High half of the seconds.
            @3084 wc_sec_hi: u32,
            @3088 arch: ArchSharedInfo,
        }
    }
    constants {
        /// Limits.
        mod limit: u32 {
            /// vCPUs with a slot in the page; further ones must register their own.
            LEGACY_MAX_VCPUS "XEN_LEGACY_MAX_VCPUS" = 32,
        }
    }
}

/// Byte offsets for code that works on the shared pages through atomics.
pub mod offset {
    use super::*;

    /// First [`VcpuInfo`] slot in the page.
    pub const VCPU_INFO: usize = offset_of!(SharedInfo, vcpu_info);
    /// Size of a slot.
    pub const VCPU_INFO_SIZE: usize = size_of::<VcpuInfo>();
    /// Pending bits in the page.
    pub const EVTCHN_PENDING: usize = offset_of!(SharedInfo, evtchn_pending);
    /// Mask bits in the page.
    pub const EVTCHN_MASK: usize = offset_of!(SharedInfo, evtchn_mask);
    /// Wall-clock version in the page.
    pub const WC_VERSION: usize = offset_of!(SharedInfo, wc_version);
    /// Wall-clock seconds in the page.
    pub const WC_SEC: usize = offset_of!(SharedInfo, wc_sec);
    /// Wall-clock nanoseconds in the page.
    pub const WC_NSEC: usize = offset_of!(SharedInfo, wc_nsec);
    /// High half of the wall-clock seconds in the page.
    pub const WC_SEC_HI: usize = offset_of!(SharedInfo, wc_sec_hi);
    /// Upcall byte in a slot.
    pub const UPCALL_PENDING: usize = offset_of!(VcpuInfo, evtchn_upcall_pending);
    /// Selector word in a slot.
    pub const PENDING_SEL: usize = offset_of!(VcpuInfo, evtchn_pending_sel);
    /// Clock in a slot.
    pub const TIME: usize = offset_of!(VcpuInfo, time);
}
