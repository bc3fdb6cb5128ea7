//! What is common to calls.

use crate::layout::abi_header;

abi_header! {
    header "xen.h";
    structs {
        /// [`crate::hypercall::MulticallEntry`].
        MulticallEntry "struct multicall_entry" [32] {
            @0 op: u32,
            @4 result: u32,
            @8 args: [u32; 6],
        }
    }
    constants {}
}
