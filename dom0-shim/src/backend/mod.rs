//! `devd`: what is to be done in this domain for disks and network interfaces of guests, without udev and shell scripts.
//!
//! The kernel's back ends do the work; somebody must say which block device a disk is, and put an interface into its bridge.
//! [`disk`] and [`vif`] do that for one device, [`glue`] for all that the store names, [`script`] for one when it is run in
//! place of the scripts that Xen's toolstack calls. All reach the machine through [`system::System`] only; [`linux`] is the
//! machine.

pub mod daemon;
pub mod device;
pub mod disk;
pub mod glue;
pub mod linux;
pub mod options;
pub mod script;
pub mod system;
pub mod vif;
