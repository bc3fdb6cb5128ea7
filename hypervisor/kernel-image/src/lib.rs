//! Kernels as files: from a bzImage or ELF file to segments, PVH entry and what the kernel's notes say.
//!
//! The hypervisor reads dom0's kernel with it and the toolstack reads guests' kernels, so that both take the same files and
//! refuse the same ones. Pure, without an operating system, and bounded by sizes that are checked beforehand.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bzimage;
pub mod decompress;
pub mod elf;
mod error;
pub mod samples;

pub use error::KernelError;

/// Number of cases of a property test: a quick slice by default, a long run with `XENOLITH_CASES`.
#[cfg(test)]
fn cases(quick: u32) -> proptest::prelude::ProptestConfig {
    let wanted = std::env::var("XENOLITH_CASES").ok();
    proptest::prelude::ProptestConfig::with_cases(
        wanted.and_then(|n| n.parse().ok()).unwrap_or(quick),
    )
}
