//! What programs of a control domain need of Linux and Xen, as safe handles.
//!
//! The only crate above the hypervisor with unsafe code, and that only in [`page`] (memory shared with others), `call`
//! (`ioctl`) and [`domctl`] (buffers for hypercalls).
#![deny(unsafe_code)]

mod call;
pub mod domctl;
pub mod evtchn;
pub mod gntdev;
pub mod page;
pub mod xenstore;
pub mod xsd;
