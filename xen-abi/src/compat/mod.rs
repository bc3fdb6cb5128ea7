//! Structures as 32-bit callers lay them out, and their conversion from and to the 64-bit ones.
//!
//! Only structures that differ have a twin here: those with an `unsigned long`, a frame number or a pointer, and those in which
//! a 64-bit number stands at a multiple of 4 only. `ci/abi-check` compares twins with Xen's headers compiled for i386, and
//! checks in the same way that structures without a twin are the same there; [`NOT_CALLABLE`] names the exceptions.

mod convert;
pub mod dm_op;
pub mod grant_table;
pub mod hypercall;
pub mod memory;
pub mod physdev;
pub mod sched;
pub mod shared_info;
pub mod vcpu;

pub use convert::{Layouts, Long};

use crate::layout::Header;

/// Every twin, for checking against the C headers.
pub const HEADERS: &[&Header] = &[
    &dm_op::HEADER,
    &grant_table::HEADER,
    &hypercall::HEADER,
    &memory::HEADER,
    &physdev::HEADER,
    &sched::HEADER,
    &shared_info::HEADER,
    &vcpu::HEADER,
];

/// C types that differ for 32-bit callers and have no twin, each with the reason.
pub const NOT_CALLABLE: &[(&str, &str)] = &[
    (
        "struct callback_register",
        "no call for hardware-assisted guests",
    ),
    ("struct cpu_user_regs", "part of vcpu_guest_context"),
    (
        "struct vcpu_guest_context",
        "domctl takes the 64-bit layout from callers of both widths",
    ),
    (
        "struct gnttab_get_status_frames",
        "refused to hardware-assisted guests",
    ),
    (
        "struct gnttab_transfer",
        "refused to hardware-assisted guests",
    ),
    ("struct physdev_apic", "refused to hardware-assisted guests"),
    (
        "struct physdev_pirq_eoi_gmfn",
        "refused to hardware-assisted guests",
    ),
    (
        "struct physdev_set_iobitmap",
        "refused to hardware-assisted guests",
    ),
    ("struct xen_domctl_cacheflush", "an operation of ARM"),
    ("struct xen_flask_sid_context", "xsm_op is not there"),
    (
        "struct xen_machphys_mapping",
        "refused to hardware-assisted guests",
    ),
    (
        "struct xen_platform_parameters",
        "one number, written as 4 bytes",
    ),
    ("struct xenpf_add_memtype", PLATFORM),
    ("struct xenpf_efi_runtime_call", PLATFORM),
    ("struct xenpf_firmware_info", PLATFORM),
    ("struct xenpf_getidletime", PLATFORM),
    ("struct xenpf_microcode_update", PLATFORM),
    ("struct xenpf_read_memtype", PLATFORM),
    ("struct xenpf_resource_op", PLATFORM),
    ("struct xenpf_set_processor_pminfo", PLATFORM),
    ("struct xenpf_symdata", PLATFORM),
];

const PLATFORM: &str = "platform_op is refused to 32-bit callers";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomId, grant_table as native_grant, memory as native_memory};
    use zerocopy::{FromBytes, IntoBytes};

    /// What was read from a 32-bit caller goes back unchanged.
    fn round_trip<T: Layouts>() {
        let all: [u8; 64] = core::array::from_fn(|i| i as u8 + 1);
        let bytes = &all[..size_of::<T::Compat>()];
        let compat = T::Compat::read_from_bytes(bytes).expect("the size is its own");
        let again = T::widen(&compat).narrow(&compat);
        assert_eq!(again.as_bytes(), bytes);
    }

    #[test]
    fn conversions_lose_nothing() {
        round_trip::<native_memory::MemoryReservation>();
        round_trip::<native_memory::MemoryExchange>();
        round_trip::<native_memory::AddToPhysmap>();
        round_trip::<native_memory::AddToPhysmapBatch>();
        round_trip::<native_memory::RemoveFromPhysmap>();
        round_trip::<native_memory::MemoryMap>();
        round_trip::<native_memory::ForeignMemoryMap>();
        round_trip::<native_memory::PodTarget>();
        round_trip::<native_memory::MemAcquireResource>();
        round_trip::<native_memory::ReservedDeviceMemoryMap>();
        round_trip::<native_grant::GnttabSetupTable>();
        round_trip::<native_grant::GnttabCopy>();
        round_trip::<native_grant::GnttabMapGrantRef>();
        round_trip::<crate::hypercall::MulticallEntry>();
        round_trip::<crate::hvm::dm_op::DmOpBuf>();
        round_trip::<crate::physdev::PhysdevMapPirq>();
        round_trip::<crate::sched::SchedPoll>();
        round_trip::<crate::vcpu::VcpuRunstateInfo>();
        round_trip::<crate::vcpu::VcpuSetSingleshotTimer>();
        round_trip::<crate::vcpu::VcpuRegisterRunstateMemoryArea>();
        round_trip::<Long>();
    }

    #[test]
    fn fields_keep_their_meaning() {
        let compat = memory::MemoryReservation {
            extent_start: 0xffff_f000,
            nr_extents: 3,
            extent_order: 9,
            mem_flags: 1,
            domid: DomId::SELF,
            _pad0: [0; 2],
        };
        let wide = native_memory::MemoryReservation::widen(&compat);
        assert_eq!((wide.extent_start, wide.nr_extents), (0xffff_f000, 3));
        assert_eq!((wide.extent_order, wide.mem_flags), (9, 1));
        assert_eq!(wide.domid, DomId::SELF);
        // All ones stay all ones: "no frame".
        assert_eq!(Long(u64::MAX).narrow(&0), u32::MAX);
    }
}
