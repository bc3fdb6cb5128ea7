//! Grant tables (`grant_table.h`): `grant_table_op` and the shared entries.

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "grant_table.h";
    structs {
        /// A version 1 entry.
        GrantEntryV1 "struct grant_entry_v1" [8] {
            /// [`gtf`].
            @0 flags: u16,
            /// Domain that is given access.
            @2 domid: DomId,
            /// Frame of the granting domain.
            @4 frame: u32,
        }
        /// First part of a version 2 entry.
        GrantEntryHeader "struct grant_entry_header" [4] {
            /// [`gtf`].
            @0 flags: u16,
            /// Domain that is given access.
            @2 domid: DomId,
        }
        /// A version 2 entry, in the form of a sub-page grant (a full-page grant has zeroes for the range).
        GrantEntryV2 "union grant_entry_v2" [16] {
            @0 hdr: GrantEntryHeader,
            /// First byte that may be used.
            @4 page_off: u16 as "sub_page.page_off",
            /// Number of bytes that may be used.
            @6 length: u16 as "sub_page.length",
            /// Frame of the granting domain.
            @8 frame: u64 as "full_page.frame",
        }
        /// [`op::MAP_GRANT_REF`].
        GnttabMapGrantRef "struct gnttab_map_grant_ref" [32] {
            /// Guest-physical address where the page shall appear.
            @0 host_addr: u64,
            /// [`gntmap`].
            @8 flags: u32,
            @12 reference: u32 as "ref",
            /// Granting domain.
            @16 dom: DomId,
            /// Out: [`status`].
            @18 status: i16,
            /// Out: names the mapping.
            @20 handle: u32,
            /// Out: machine address of the page.
            @24 dev_bus_addr: u64,
        }
        /// [`op::UNMAP_GRANT_REF`].
        GnttabUnmapGrantRef "struct gnttab_unmap_grant_ref" [24] {
            @0 host_addr: u64,
            @8 dev_bus_addr: u64,
            @16 handle: u32,
            /// Out: [`status`].
            @20 status: i16,
            @22 _pad0: u16,
        }
        /// [`op::SETUP_TABLE`].
        GnttabSetupTable "struct gnttab_setup_table" [24] {
            @0 dom: DomId,
            @2 _pad0: u16,
            @4 nr_frames: u32,
            /// Out: [`status`].
            @8 status: i16,
            @10 _pad1: [u8; 6],
            /// Guest address of a list of frame numbers to fill.
            @16 frame_list: u64,
        }
        /// [`op::DUMP_TABLE`].
        GnttabDumpTable "struct gnttab_dump_table" [4] {
            @0 dom: DomId,
            /// Out: [`status`].
            @2 status: i16,
        }
        /// [`op::TRANSFER`].
        GnttabTransfer "struct gnttab_transfer" [24] {
            @0 mfn: u64,
            @8 domid: DomId,
            @10 _pad0: u16,
            @12 reference: u32 as "ref",
            /// Out: [`status`].
            @16 status: i16,
            @18 _pad1: [u8; 6],
        }
        /// One side of [`GnttabCopy`].
        GnttabCopyPtr "struct gnttab_copy_ptr" [16] {
            /// Frame number, or grant reference in the low half, by [`gntcopy`].
            @0 frame_or_ref: u64 as "u",
            @8 domid: DomId,
            /// First byte in the page.
            @10 offset: u16,
            @12 _pad0: u32,
        }
        /// [`op::COPY`].
        GnttabCopy "struct gnttab_copy" [40] {
            @0 source: GnttabCopyPtr,
            @16 dest: GnttabCopyPtr,
            /// Bytes.
            @32 len: u16,
            /// [`gntcopy`].
            @34 flags: u16,
            /// Out: [`status`].
            @36 status: i16,
            @38 _pad0: u16,
        }
        /// [`op::QUERY_SIZE`].
        GnttabQuerySize "struct gnttab_query_size" [16] {
            @0 dom: DomId,
            @2 _pad0: u16,
            /// Out: frames that the table has.
            @4 nr_frames: u32,
            /// Out: frames that it can grow to.
            @8 max_nr_frames: u32,
            /// Out: [`status`].
            @12 status: i16,
            @14 _pad1: u16,
        }
        /// [`op::UNMAP_AND_REPLACE`].
        GnttabUnmapAndReplace "struct gnttab_unmap_and_replace" [24] {
            @0 host_addr: u64,
            @8 new_addr: u64,
            @16 handle: u32,
            /// Out: [`status`].
            @20 status: i16,
            @22 _pad0: u16,
        }
        /// [`op::SET_VERSION`].
        GnttabSetVersion "struct gnttab_set_version" [4] {
            /// In and out.
            @0 version: u32,
        }
        /// [`op::GET_STATUS_FRAMES`].
        GnttabGetStatusFrames "struct gnttab_get_status_frames" [16] {
            @0 nr_frames: u32,
            @4 dom: DomId,
            /// Out: [`status`].
            @6 status: i16,
            /// Guest address of a list of frame numbers to fill.
            @8 frame_list: u64,
        }
        /// [`op::GET_VERSION`].
        GnttabGetVersion "struct gnttab_get_version" [8] {
            @0 dom: DomId,
            @2 _pad: u16 as "pad",
            /// Out.
            @4 version: u32,
        }
        /// [`op::SWAP_GRANT_REF`].
        GnttabSwapGrantRef "struct gnttab_swap_grant_ref" [12] {
            @0 ref_a: u32,
            @4 ref_b: u32,
            /// Out: [`status`].
            @8 status: i16,
            @10 _pad0: u16,
        }
        /// [`op::CACHE_FLUSH`].
        GnttabCacheFlush "struct gnttab_cache_flush" [16] {
            @0 dev_bus_addr_or_ref: u64 as "a",
            @8 offset: u16,
            @10 length: u16,
            /// [`cache`].
            @12 op: u32,
        }
    }
    constants {
        /// Sub-operations of `grant_table_op`.
        mod op: u32 {
            MAP_GRANT_REF "GNTTABOP_map_grant_ref" = 0,
            UNMAP_GRANT_REF "GNTTABOP_unmap_grant_ref" = 1,
            SETUP_TABLE "GNTTABOP_setup_table" = 2,
            DUMP_TABLE "GNTTABOP_dump_table" = 3,
            TRANSFER "GNTTABOP_transfer" = 4,
            COPY "GNTTABOP_copy" = 5,
            QUERY_SIZE "GNTTABOP_query_size" = 6,
            UNMAP_AND_REPLACE "GNTTABOP_unmap_and_replace" = 7,
            SET_VERSION "GNTTABOP_set_version" = 8,
            GET_STATUS_FRAMES "GNTTABOP_get_status_frames" = 9,
            GET_VERSION "GNTTABOP_get_version" = 10,
            SWAP_GRANT_REF "GNTTABOP_swap_grant_ref" = 11,
            CACHE_FLUSH "GNTTABOP_cache_flush" = 12,
        }
        /// Type (bits 1:0) and flags of an entry.
        mod gtf: u16 {
            INVALID "GTF_invalid" = 0,
            PERMIT_ACCESS "GTF_permit_access" = 1,
            ACCEPT_TRANSFER "GTF_accept_transfer" = 2,
            TRANSITIVE "GTF_transitive" = 3,
            TYPE_MASK "GTF_type_mask" = 3,
            READONLY "GTF_readonly" = 1 << 2,
            /// Set by the hypervisor while the page is mapped or copied from.
            READING "GTF_reading" = 1 << 3,
            /// Set by the hypervisor while the page is mapped writable or copied to.
            WRITING "GTF_writing" = 1 << 4,
            PWT "GTF_PWT" = 1 << 5,
            PCD "GTF_PCD" = 1 << 6,
            PAT "GTF_PAT" = 1 << 7,
            SUB_PAGE "GTF_sub_page" = 1 << 8,
            TRANSFER_COMMITTED "GTF_transfer_committed" = 1 << 2,
            TRANSFER_COMPLETED "GTF_transfer_completed" = 1 << 3,
        }
        /// Flags of [`GnttabMapGrantRef`].
        mod gntmap: u32 {
            DEVICE_MAP "GNTMAP_device_map" = 1 << 0,
            HOST_MAP "GNTMAP_host_map" = 1 << 1,
            READONLY "GNTMAP_readonly" = 1 << 2,
            APPLICATION_MAP "GNTMAP_application_map" = 1 << 3,
            CONTAINS_PTE "GNTMAP_contains_pte" = 1 << 4,
            GUEST_AVAIL_MASK "GNTMAP_guest_avail_mask" = 0xffff_0000,
        }
        /// Flags of [`GnttabCopy`].
        mod gntcopy: u16 {
            SOURCE_GREF "GNTCOPY_source_gref" = 1 << 0,
            DEST_GREF "GNTCOPY_dest_gref" = 1 << 1,
        }
        /// Flags of [`GnttabCacheFlush`].
        mod cache: u32 {
            CLEAN "GNTTAB_CACHE_CLEAN" = 1 << 0,
            INVAL "GNTTAB_CACHE_INVAL" = 1 << 1,
            SOURCE_GREF "GNTTAB_CACHE_SOURCE_GREF" = 1 << 31,
        }
        /// Results of single operations.
        mod status: i16 {
            OKAY "GNTST_okay" = 0,
            GENERAL_ERROR "GNTST_general_error" = -1,
            BAD_DOMAIN "GNTST_bad_domain" = -2,
            BAD_GNTREF "GNTST_bad_gntref" = -3,
            BAD_HANDLE "GNTST_bad_handle" = -4,
            BAD_VIRT_ADDR "GNTST_bad_virt_addr" = -5,
            BAD_DEV_ADDR "GNTST_bad_dev_addr" = -6,
            NO_DEVICE_SPACE "GNTST_no_device_space" = -7,
            PERMISSION_DENIED "GNTST_permission_denied" = -8,
            BAD_PAGE "GNTST_bad_page" = -9,
            BAD_COPY_ARG "GNTST_bad_copy_arg" = -10,
            ADDRESS_TOO_BIG "GNTST_address_too_big" = -11,
            EAGAIN "GNTST_eagain" = -12,
            NO_SPACE "GNTST_no_space" = -13,
        }
        /// References with a fixed use.
        mod reserved: u32 {
            ENTRIES "GNTTAB_NR_RESERVED_ENTRIES" = 8,
            CONSOLE "GNTTAB_RESERVED_CONSOLE" = 0,
            XENSTORE "GNTTAB_RESERVED_XENSTORE" = 1,
        }
    }
}
