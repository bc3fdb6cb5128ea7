//! Feature bits that `xen_version` reports in sub-map 0 (`features.h`).

use crate::layout::abi_header;

abi_header! {
    header "features.h";
    structs {}
    constants {
        /// Bit numbers.
        mod feature: u32 {
            WRITABLE_PAGE_TABLES "XENFEAT_writable_page_tables" = 0,
            WRITABLE_DESCRIPTOR_TABLES "XENFEAT_writable_descriptor_tables" = 1,
            AUTO_TRANSLATED_PHYSMAP "XENFEAT_auto_translated_physmap" = 2,
            SUPERVISOR_MODE_KERNEL "XENFEAT_supervisor_mode_kernel" = 3,
            PAE_PGDIR_ABOVE_4GB "XENFEAT_pae_pgdir_above_4gb" = 4,
            MMU_PT_UPDATE_PRESERVE_AD "XENFEAT_mmu_pt_update_preserve_ad" = 5,
            HIGHMEM_ASSIST "XENFEAT_highmem_assist" = 6,
            GNTTAB_MAP_AVAIL_BITS "XENFEAT_gnttab_map_avail_bits" = 7,
            HVM_CALLBACK_VECTOR "XENFEAT_hvm_callback_vector" = 8,
            HVM_SAFE_PVCLOCK "XENFEAT_hvm_safe_pvclock" = 9,
            HVM_PIRQS "XENFEAT_hvm_pirqs" = 10,
            DOM0 "XENFEAT_dom0" = 11,
            MEMORY_OP_VNODE_SUPPORTED "XENFEAT_memory_op_vnode_supported" = 13,
            ARM_SMCCC_SUPPORTED "XENFEAT_ARM_SMCCC_supported" = 14,
            LINUX_RSDP_UNRESTRICTED "XENFEAT_linux_rsdp_unrestricted" = 15,
            NOT_DIRECT_MAPPED "XENFEAT_not_direct_mapped" = 16,
            DIRECT_MAPPED "XENFEAT_direct_mapped" = 17,
            RUNSTATE_PHYS_AREA "XENFEAT_runstate_phys_area" = 18 => "newer than the reference headers (Xen 4.17)",
            VCPU_TIME_PHYS_AREA "XENFEAT_vcpu_time_phys_area" = 19 => "newer than the reference headers (Xen 4.17)",
            DM_MSIX_ALL_WRITES "XENFEAT_dm_msix_all_writes" = 20 => "newer than the reference headers (Xen 4.17)",
            /// Number of sub-maps.
            NR_SUBMAPS "XENFEAT_NR_SUBMAPS" = 1,
        }
    }
}
