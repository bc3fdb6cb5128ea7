//! Grant tables.

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "grant_table.h";
    structs {
        /// [`crate::grant_table::GnttabSetupTable`].
        GnttabSetupTable "struct gnttab_setup_table" [16] {
            @0 dom: DomId,
            @2 _pad0: u16,
            @4 nr_frames: u32,
            @8 status: i16,
            @10 _pad1: u16,
            /// Guest address of a list of 32-bit frame numbers to fill.
            @12 frame_list: u32,
        }
        /// [`crate::grant_table::GnttabCopyPtr`].
        GnttabCopyPtr "struct gnttab_copy_ptr" [8] {
            @0 frame_or_ref: u32 as "u",
            @4 domid: DomId,
            @6 offset: u16,
        }
        /// [`crate::grant_table::GnttabCopy`].
        GnttabCopy "struct gnttab_copy" [24] {
            @0 source: GnttabCopyPtr,
            @8 dest: GnttabCopyPtr,
            @16 len: u16,
            @18 flags: u16,
            @20 status: i16,
            @22 _pad0: u16,
        }
    }
    constants {}
}
