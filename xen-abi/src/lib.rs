//! Xen's public ABI as Rust types: one module per public header. No allocation, no unsafe code, no policy.
//!
//! Structures are the 64-bit x86 layouts (those of 32-bit callers are in [`compat`]), `repr(C)` without implicit padding, and can be copied from and to bytes with
//! `zerocopy`. Constants stand in small modules: `event_channel::op::SEND`. Guest pointers are plain `u64` (guest linear
//! addresses).
#![no_std]
#![forbid(unsafe_code)]

pub mod domid;
pub mod errno;
pub mod layout;

pub use domid::DomId;
pub use errno::Errno;

/// Declares the modules that stand for public headers, and the list of them.
macro_rules! headers {
    ($($(#[$meta:meta])* $module:ident),* $(,)?) => {
        $($(#[$meta])* pub mod $module;)*
        /// Every header's declarations, for checking against the C headers.
        pub const HEADERS: &[&layout::Header] = &[
            $(&$module::HEADER,)*
            &domid::HEADER,
            &errno::HEADER,
            &hvm::dm_op::HEADER,
            &hvm::op::HEADER,
            &hvm::params::HEADER,
            &hvm::save::HEADER,
            &hvm::start_info::HEADER,
            &hvm::vcpu::HEADER,
            &io::xs_wire::HEADER,
        ];
    };
}

headers! {
    callback,
    console,
    cpuid,
    domctl,
    elfnote,
    event_channel,
    features,
    flask,
    grant_table,
    guest_context,
    hypercall,
    hypfs,
    memory,
    physdev,
    platform,
    sched,
    shared_info,
    sysctl,
    time,
    trace,
    vcpu,
    version,
    virq,
}

pub mod compat;
pub mod hvm;
pub mod io;
pub mod linux;

#[cfg(test)]
mod tests {
    use super::HEADERS;

    /// The fields of every structure must tile it: no gap, no overlap (a union's variants are declared as one field).
    #[test]
    fn fields_tile_structures() {
        for header in HEADERS.iter().chain(crate::compat::HEADERS) {
            for s in header.structs {
                let end = s.fields.iter().fold(0, |at, f| {
                    assert_eq!(f.offset, at, "{}::{}", s.name, f.name);
                    at + f.size
                });
                assert_eq!(end, s.size, "{}", s.name);
            }
        }
    }
}
