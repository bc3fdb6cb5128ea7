//! Operations of and on hardware-assisted guests (`hvm/hvm_op.h`).

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "hvm/hvm_op.h";
    structs {
        /// [`op::SET_PARAM`], [`op::GET_PARAM`].
        HvmParam "struct xen_hvm_param" [16] {
            @0 domid: DomId,
            @2 _pad: u16 as "pad",
            /// [`super::params::index`].
            @4 index: u32,
            /// In or out.
            @8 value: u64,
        }
        /// [`op::PAGETABLE_DYING`].
        HvmPagetableDying "struct xen_hvm_pagetable_dying" [16] {
            @0 domid: DomId,
            @2 _pad: [u16; 3] as "pad",
            @8 gpa: u64,
        }
        /// [`op::XENTRACE`].
        HvmXentrace "struct xen_hvm_xentrace" [32] {
            @0 event: u16,
            /// Bytes of `extra` that are used.
            @2 extra_bytes: u16,
            @4 extra: [u8; 28],
        }
        /// [`op::GET_TIME`].
        HvmGetTime "struct xen_hvm_get_time" [8] {
            /// Out: nanoseconds.
            @0 now: u64,
        }
        /// [`op::GET_MEM_TYPE`].
        HvmGetMemType "struct xen_hvm_get_mem_type" [16] {
            @0 domid: DomId,
            /// Out: [`mem_type`].
            @2 mem_type: u16,
            @4 _pad: [u16; 2] as "pad",
            @8 pfn: u64,
        }
        /// [`op::SET_EVTCHN_UPCALL_VECTOR`].
        HvmEvtchnUpcallVector "struct xen_hvm_evtchn_upcall_vector" [8] {
            @0 vcpu: u32,
            @4 vector: u8,
            @5 _pad0: [u8; 3],
        }
    }
    constants {
        /// Sub-operations of `hvm_op`.
        mod op: u32 {
            SET_PARAM "HVMOP_set_param" = 0,
            GET_PARAM "HVMOP_get_param" = 1,
            FLUSH_TLBS "HVMOP_flush_tlbs" = 5,
            PAGETABLE_DYING "HVMOP_pagetable_dying" = 9,
            GET_TIME "HVMOP_get_time" = 10,
            XENTRACE "HVMOP_xentrace" = 11,
            SET_MEM_ACCESS "HVMOP_set_mem_access" = 12,
            GET_MEM_ACCESS "HVMOP_get_mem_access" = 13,
            GET_MEM_TYPE "HVMOP_get_mem_type" = 15,
            SET_EVTCHN_UPCALL_VECTOR "HVMOP_set_evtchn_upcall_vector" = 23,
            GUEST_REQUEST_VM_EVENT "HVMOP_guest_request_vm_event" = 24,
            ALTP2M "HVMOP_altp2m" = 25,
        }
        /// Values of [`HvmGetMemType::mem_type`].
        mod mem_type: u16 {
            RAM_RW "HVMMEM_ram_rw" = 0,
            RAM_RO "HVMMEM_ram_ro" = 1,
            MMIO_DM "HVMMEM_mmio_dm" = 2,
            IOREQ_SERVER "HVMMEM_ioreq_server" = 4,
        }
    }
}
