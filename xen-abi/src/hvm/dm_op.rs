//! Operations of a device model on its guest (`hvm/dm_op.h`).

use crate::layout::abi_header;

abi_header! {
    header "hvm/dm_op.h";
    structs {
        /// A buffer of the call; the first holds an operation: its number, four bytes of zero, and the structure.
        DmOpBuf "struct xen_dm_op_buf" [16] {
            @0 h: u64,
            /// Bytes.
            @8 size: u64,
        }
        /// [`op::INJECT_MSI`].
        DmInjectMsi "struct xen_dm_op_inject_msi" [16] {
            @0 data: u32,
            @4 _pad: u32 as "pad",
            @8 addr: u64,
        }
        /// [`op::REMOTE_SHUTDOWN`].
        DmRemoteShutdown "struct xen_dm_op_remote_shutdown" [4] {
            @0 reason: u32,
        }
        /// [`op::NR_VCPUS`].
        DmNrVcpus "struct xen_dm_op_nr_vcpus" [4] {
            /// Out.
            @0 vcpus: u32,
        }
    }
    constants {
        /// Operations.
        mod op: u32 {
            CREATE_IOREQ_SERVER "XEN_DMOP_create_ioreq_server" = 1,
            GET_IOREQ_SERVER_INFO "XEN_DMOP_get_ioreq_server_info" = 2,
            MAP_IO_RANGE_TO_IOREQ_SERVER "XEN_DMOP_map_io_range_to_ioreq_server" = 3,
            UNMAP_IO_RANGE_FROM_IOREQ_SERVER "XEN_DMOP_unmap_io_range_from_ioreq_server" = 4,
            SET_IOREQ_SERVER_STATE "XEN_DMOP_set_ioreq_server_state" = 5,
            DESTROY_IOREQ_SERVER "XEN_DMOP_destroy_ioreq_server" = 6,
            TRACK_DIRTY_VRAM "XEN_DMOP_track_dirty_vram" = 7,
            SET_PCI_INTX_LEVEL "XEN_DMOP_set_pci_intx_level" = 8,
            SET_ISA_IRQ_LEVEL "XEN_DMOP_set_isa_irq_level" = 9,
            SET_PCI_LINK_ROUTE "XEN_DMOP_set_pci_link_route" = 10,
            MODIFIED_MEMORY "XEN_DMOP_modified_memory" = 11,
            SET_MEM_TYPE "XEN_DMOP_set_mem_type" = 12,
            INJECT_EVENT "XEN_DMOP_inject_event" = 13,
            INJECT_MSI "XEN_DMOP_inject_msi" = 14,
            MAP_MEM_TYPE_TO_IOREQ_SERVER "XEN_DMOP_map_mem_type_to_ioreq_server" = 15,
            REMOTE_SHUTDOWN "XEN_DMOP_remote_shutdown" = 16,
            RELOCATE_MEMORY "XEN_DMOP_relocate_memory" = 17,
            PIN_MEMORY_CACHEATTR "XEN_DMOP_pin_memory_cacheattr" = 18,
            NR_VCPUS "XEN_DMOP_nr_vcpus" = 20,
        }
    }
}
