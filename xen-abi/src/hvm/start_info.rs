//! What a PVH kernel finds at the address in EBX (`arch-x86/hvm/start_info.h`).

use crate::layout::abi_header;

abi_header! {
    header "arch-x86/hvm/start_info.h";
    structs {
        /// Start information, version 1.
        HvmStartInfo "struct hvm_start_info" [56] {
            /// [`start::MAGIC`].
            @0 magic: u32,
            /// 0: without the memory map; 1.
            @4 version: u32,
            /// [`sif`].
            @8 flags: u32,
            @12 nr_modules: u32,
            /// Array of [`HvmModlistEntry`].
            @16 modlist_paddr: u64,
            @24 cmdline_paddr: u64,
            @32 rsdp_paddr: u64,
            /// Array of [`HvmMemmapTableEntry`].
            @40 memmap_paddr: u64,
            @48 memmap_entries: u32,
            @52 _reserved: u32 as "reserved",
        }
        /// A module; the first is the initial RAM disk.
        HvmModlistEntry "struct hvm_modlist_entry" [32] {
            @0 paddr: u64,
            /// Bytes.
            @8 size: u64,
            @16 cmdline_paddr: u64,
            @24 _reserved: u64 as "reserved",
        }
        /// A range of the memory map.
        HvmMemmapTableEntry "struct hvm_memmap_table_entry" [24] {
            @0 addr: u64,
            /// Bytes.
            @8 size: u64,
            /// [`memmap_type`].
            @16 kind: u32 as "type",
            @20 _reserved: u32 as "reserved",
        }
    }
    constants {
        /// The signature.
        mod start: u32 {
            MAGIC "XEN_HVM_START_MAGIC_VALUE" = 0x336e_c578,
        }
        /// Flags (declared in `xen.h`).
        mod sif: u32 {
            PRIVILEGED "SIF_PRIVILEGED" = 1,
            INITDOMAIN "SIF_INITDOMAIN" = 2,
        }
        /// Types of memory, the same as the BIOS's.
        mod memmap_type: u32 {
            RAM "XEN_HVM_MEMMAP_TYPE_RAM" = 1,
            RESERVED "XEN_HVM_MEMMAP_TYPE_RESERVED" = 2,
            ACPI "XEN_HVM_MEMMAP_TYPE_ACPI" = 3,
            NVS "XEN_HVM_MEMMAP_TYPE_NVS" = 4,
            UNUSABLE "XEN_HVM_MEMMAP_TYPE_UNUSABLE" = 5,
            DISABLED "XEN_HVM_MEMMAP_TYPE_DISABLED" = 6,
            PMEM "XEN_HVM_MEMMAP_TYPE_PMEM" = 7,
        }
    }
}
