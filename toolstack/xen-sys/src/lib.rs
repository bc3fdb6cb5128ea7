//! What programs of a control domain need of Linux and Xen, as safe handles.
//!
//! The only crate above the hypervisor with unsafe code, and that only in [`page`] (memory shared with others), `call`
//! (`ioctl`), `locked` (memory for hypercalls), [`hypercalls`] and [`domctl`] (their addresses), [`foreign`], [`loopdev`] and [`net`]
//! (structures of Linux's own drivers).
#![deny(unsafe_code)]

pub mod bits;
mod call;
pub mod domctl;
pub mod evtchn;
mod failed;
pub mod fake;
pub mod foreign;
pub mod gntdev;
pub mod hypercalls;
mod locked;
pub mod loopdev;
pub mod net;
pub mod page;
mod sparse;
pub mod xen;
pub mod xenstore;
pub mod xsd;

pub use failed::{Failed, errno_of};
