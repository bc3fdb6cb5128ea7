//! Memory operations.

use crate::DomId;
use crate::layout::abi_header;
use crate::physdev::PhysdevPciDevice;

use zerocopy::little_endian::U64;

abi_header! {
    header "memory.h";
    structs {
        /// [`crate::memory::MemoryReservation`].
        MemoryReservation "struct xen_memory_reservation" [20] {
            @0 extent_start: u32,
            @4 nr_extents: u32,
            @8 extent_order: u32,
            @12 mem_flags: u32,
            @16 domid: DomId,
            @18 _pad0: [u8; 2],
        }
        /// [`crate::memory::MemoryExchange`].
        MemoryExchange "struct xen_memory_exchange" [44] {
            @0 input: MemoryReservation as "in",
            @20 output: MemoryReservation as "out",
            @40 nr_exchanged: u32,
        }
        /// [`crate::memory::AddToPhysmap`].
        AddToPhysmap "struct xen_add_to_physmap" [16] {
            @0 domid: DomId,
            @2 size: u16,
            @4 space: u32,
            @8 idx: u32,
            @12 gpfn: u32,
        }
        /// [`crate::memory::AddToPhysmapBatch`].
        AddToPhysmapBatch "struct xen_add_to_physmap_batch" [20] {
            @0 domid: DomId,
            @2 space: u16,
            @4 size: u16,
            @6 foreign_domid: DomId as "u.foreign_domid",
            /// Guest address of 32-bit indexes.
            @8 idxs: u32,
            /// Guest address of 32-bit frame numbers.
            @12 gpfns: u32,
            @16 errs: u32,
        }
        /// [`crate::memory::RemoveFromPhysmap`].
        RemoveFromPhysmap "struct xen_remove_from_physmap" [8] {
            @0 domid: DomId,
            @2 _pad0: [u8; 2],
            @4 gpfn: u32,
        }
        /// [`crate::memory::MemoryMap`].
        MemoryMap "struct xen_memory_map" [8] {
            @0 nr_entries: u32,
            @4 buffer: u32,
        }
        /// [`crate::memory::ForeignMemoryMap`].
        ForeignMemoryMap "struct xen_foreign_memory_map" [12] {
            @0 domid: DomId,
            @2 _pad0: [u8; 2],
            @4 map: MemoryMap,
        }
        /// [`crate::memory::PodTarget`].
        PodTarget "struct xen_pod_target" [36] {
            @0 target_pages: U64,
            @8 tot_pages: U64,
            @16 pod_cache_pages: U64,
            @24 pod_entries: U64,
            @32 domid: DomId,
            @34 _pad0: [u8; 2],
        }
        /// [`crate::memory::MemAcquireResource`].
        MemAcquireResource "struct xen_mem_acquire_resource" [28] {
            @0 domid: DomId,
            @2 kind: u16 as "type",
            @4 id: u32,
            @8 nr_frames: u32,
            @12 _pad: u32 as "pad",
            @16 frame: U64,
            /// Guest address of 32-bit frame numbers.
            @24 frame_list: u32,
        }
        /// [`crate::memory::ReservedDeviceMemory`].
        ReservedDeviceMemory "struct xen_reserved_device_memory" [8] {
            @0 start_pfn: u32,
            @4 nr_pages: u32,
        }
        /// [`crate::memory::ReservedDeviceMemoryMap`].
        ReservedDeviceMemoryMap "struct xen_reserved_device_memory_map" [16] {
            @0 flags: u32,
            @4 nr_entries: u32,
            @8 buffer: u32,
            @12 dev: PhysdevPciDevice as "dev.pci",
        }
    }
    constants {}
}
