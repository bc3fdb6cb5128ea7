//! Operations of a device model; those themselves are the same for callers of both widths.

use crate::layout::abi_header;

abi_header! {
    header "hvm/dm_op.h";
    structs {
        /// [`crate::hvm::dm_op::DmOpBuf`].
        DmOpBuf "struct xen_dm_op_buf" [8] {
            @0 h: u32,
            @4 size: u32,
        }
    }
    constants {}
}
