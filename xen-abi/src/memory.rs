//! Memory operations (`memory.h`).

use crate::DomId;
use crate::layout::abi_header;

use zerocopy::little_endian::{U32, U64};

abi_header! {
    header "memory.h";
    structs {
        /// [`op::INCREASE_RESERVATION`], [`op::DECREASE_RESERVATION`], [`op::POPULATE_PHYSMAP`], [`op::CLAIM_PAGES`].
        MemoryReservation "struct xen_memory_reservation" [32] {
            /// Guest address of a list of frame numbers.
            @0 extent_start: u64,
            @8 nr_extents: u64,
            /// Each extent has 2^order frames.
            @16 extent_order: u32,
            /// [`memf`].
            @20 mem_flags: u32,
            @24 domid: DomId,
            @26 _pad0: [u8; 6],
        }
        /// [`op::EXCHANGE`].
        MemoryExchange "struct xen_memory_exchange" [72] {
            @0 input: MemoryReservation as "in",
            @32 output: MemoryReservation as "out",
            @64 nr_exchanged: u64,
        }
        /// Argument of the operations that only name a domain.
        MemoryDomain "struct xen_memory_domain" [2] {
            @0 domid: DomId,
        }
        /// [`op::MACHPHYS_MAPPING`].
        MachphysMapping "struct xen_machphys_mapping" [24] {
            @0 v_start: u64,
            @8 v_end: u64,
            @16 max_mfn: u64,
        }
        /// [`op::ADD_TO_PHYSMAP`].
        AddToPhysmap "struct xen_add_to_physmap" [24] {
            @0 domid: DomId,
            /// Number of frames, for [`mapspace::GMFN_RANGE`].
            @2 size: u16,
            /// [`mapspace`].
            @4 space: u32,
            /// Index in that space.
            @8 idx: u64,
            /// Where the frame shall appear.
            @16 gpfn: u64,
        }
        /// [`op::ADD_TO_PHYSMAP_BATCH`].
        AddToPhysmapBatch "struct xen_add_to_physmap_batch" [32] {
            @0 domid: DomId,
            /// [`mapspace`].
            @2 space: u16,
            /// Number of frames.
            @4 size: u16,
            /// Owner, for [`mapspace::GMFN_FOREIGN`]; else 0.
            @6 foreign_domid: DomId as "u.foreign_domid",
            /// Guest address of `size` indexes (u64).
            @8 idxs: u64,
            /// Guest address of `size` frame numbers (u64).
            @16 gpfns: u64,
            /// Out: guest address of `size` errors (i32).
            @24 errs: u64,
        }
        /// [`op::REMOVE_FROM_PHYSMAP`].
        RemoveFromPhysmap "struct xen_remove_from_physmap" [16] {
            @0 domid: DomId,
            @2 _pad0: [u8; 6],
            @8 gpfn: u64,
        }
        /// [`op::MEMORY_MAP`], [`op::MACHINE_MEMORY_MAP`].
        MemoryMap "struct xen_memory_map" [16] {
            /// In: room, out: number of entries.
            @0 nr_entries: u32,
            @4 _pad0: u32,
            /// Guest address of [`E820Entry`] values.
            @8 buffer: u64,
        }
        /// [`op::SET_MEMORY_MAP`].
        ForeignMemoryMap "struct xen_foreign_memory_map" [24] {
            @0 domid: DomId,
            @2 _pad0: [u8; 6],
            @8 map: MemoryMap,
        }
        /// One range of a memory map; unaligned.
        E820Entry "struct e820entry" [20] skip "the BIOS format, not declared in the headers" {
            @0 addr: U64,
            @8 size: U64,
            /// Same values as [`crate::hvm::start_info::memmap_type`].
            @16 kind: U32,
        }
        /// [`op::SET_POD_TARGET`], [`op::GET_POD_TARGET`].
        PodTarget "struct xen_pod_target" [40] {
            @0 target_pages: u64,
            @8 tot_pages: u64,
            @16 pod_cache_pages: u64,
            @24 pod_entries: u64,
            @32 domid: DomId,
            @34 _pad0: [u8; 6],
        }
        /// [`op::ACQUIRE_RESOURCE`].
        MemAcquireResource "struct xen_mem_acquire_resource" [32] {
            /// Owner of the resource.
            @0 domid: DomId,
            /// [`resource`].
            @2 kind: u16 as "type",
            /// By type.
            @4 id: u32,
            /// In: frames to map; out, with a null list: size.
            @8 nr_frames: u32,
            /// Must be 0.
            @12 _pad: u32 as "pad",
            /// First frame of the resource.
            @16 frame: u64,
            /// Guest address of the frame numbers to map at.
            @24 frame_list: u64,
        }
        /// One reserved range, in frames.
        ReservedDeviceMemory "struct xen_reserved_device_memory" [16] {
            @0 start_pfn: u64,
            @8 nr_pages: u64,
        }
        /// [`op::RESERVED_DEVICE_MEMORY_MAP`].
        ReservedDeviceMemoryMap "struct xen_reserved_device_memory_map" [24] {
            @0 flags: u32,
            @4 nr_entries: u32,
            /// Guest address of [`ReservedDeviceMemory`] values.
            @8 buffer: u64,
            @16 dev: crate::physdev::PhysdevPciDevice as "dev.pci",
            @20 _pad0: u32,
        }
    }
    constants {
        /// Sub-operations of `memory_op`; bits from 6 up of the command are the first extent of a restarted call.
        mod op: u32 {
            INCREASE_RESERVATION "XENMEM_increase_reservation" = 0,
            DECREASE_RESERVATION "XENMEM_decrease_reservation" = 1,
            MAXIMUM_RAM_PAGE "XENMEM_maximum_ram_page" = 2,
            CURRENT_RESERVATION "XENMEM_current_reservation" = 3,
            MAXIMUM_RESERVATION "XENMEM_maximum_reservation" = 4,
            MACHPHYS_MFN_LIST "XENMEM_machphys_mfn_list" = 5,
            POPULATE_PHYSMAP "XENMEM_populate_physmap" = 6,
            ADD_TO_PHYSMAP "XENMEM_add_to_physmap" = 7,
            MEMORY_MAP "XENMEM_memory_map" = 9,
            MACHINE_MEMORY_MAP "XENMEM_machine_memory_map" = 10,
            EXCHANGE "XENMEM_exchange" = 11,
            MACHPHYS_MAPPING "XENMEM_machphys_mapping" = 12,
            SET_MEMORY_MAP "XENMEM_set_memory_map" = 13,
            MAXIMUM_GPFN "XENMEM_maximum_gpfn" = 14,
            REMOVE_FROM_PHYSMAP "XENMEM_remove_from_physmap" = 15,
            SET_POD_TARGET "XENMEM_set_pod_target" = 16,
            GET_POD_TARGET "XENMEM_get_pod_target" = 17,
            GET_SHARING_FREED_PAGES "XENMEM_get_sharing_freed_pages" = 18,
            GET_SHARING_SHARED_PAGES "XENMEM_get_sharing_shared_pages" = 19,
            PAGING_OP "XENMEM_paging_op" = 20,
            ACCESS_OP "XENMEM_access_op" = 21,
            SHARING_OP "XENMEM_sharing_op" = 22,
            ADD_TO_PHYSMAP_BATCH "XENMEM_add_to_physmap_batch" = 23,
            CLAIM_PAGES "XENMEM_claim_pages" = 24,
            MACHPHYS_COMPAT_MFN_LIST "XENMEM_machphys_compat_mfn_list" = 25,
            GET_VNUMAINFO "XENMEM_get_vnumainfo" = 26,
            RESERVED_DEVICE_MEMORY_MAP "XENMEM_reserved_device_memory_map" = 27,
            ACQUIRE_RESOURCE "XENMEM_acquire_resource" = 28,
        }
        /// Command word.
        mod cmd: u32 {
            /// First bit of the extent count of a restarted call.
            EXTENT_SHIFT "MEMOP_EXTENT_SHIFT" = 6 => "internal to the hypervisor and its callers' registers",
        }
        /// Flags of [`MemoryReservation`]; bits 7:0 are the width of addresses, 15:8 the node plus 1.
        mod memf: u32 {
            POPULATE_ON_DEMAND "XENMEMF_populate_on_demand" = 1 << 16,
            EXACT_NODE_REQUEST "XENMEMF_exact_node_request" = 1 << 17,
            VNODE "XENMEMF_vnode" = 1 << 18,
        }
        /// What is being mapped.
        mod mapspace: u32 {
            SHARED_INFO "XENMAPSPACE_shared_info" = 0,
            GRANT_TABLE "XENMAPSPACE_grant_table" = 1,
            GMFN "XENMAPSPACE_gmfn" = 2,
            GMFN_RANGE "XENMAPSPACE_gmfn_range" = 3,
            GMFN_FOREIGN "XENMAPSPACE_gmfn_foreign" = 4,
            DEV_MMIO "XENMAPSPACE_dev_mmio" = 5,
        }
        /// Index bits of [`mapspace::GRANT_TABLE`].
        mod mapidx: u64 {
            /// Status frame instead of a shared frame.
            GRANT_TABLE_STATUS "XENMAPIDX_grant_table_status" = 0x8000_0000,
        }
        /// Types and ids of [`MemAcquireResource`].
        mod resource: u32 {
            IOREQ_SERVER "XENMEM_resource_ioreq_server" = 0,
            GRANT_TABLE "XENMEM_resource_grant_table" = 1,
            VMTRACE_BUF "XENMEM_resource_vmtrace_buf" = 2,
            GRANT_TABLE_ID_SHARED "XENMEM_resource_grant_table_id_shared" = 0,
            GRANT_TABLE_ID_STATUS "XENMEM_resource_grant_table_id_status" = 1,
            IOREQ_SERVER_FRAME_BUFIOREQ "XENMEM_resource_ioreq_server_frame_bufioreq" = 0,
        }
        /// Flags of [`ReservedDeviceMemoryMap`].
        mod rdm: u32 {
            ALL "XENMEM_RDM_ALL" = 1,
        }
    }
}
