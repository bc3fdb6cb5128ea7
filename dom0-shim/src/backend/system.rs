//! What is needed of the machine.

use std::io;
use std::path::Path;
use xen_sys::loopdev::DeviceNumber;

/// What a path leads to, the same for all names of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A block device.
    Block(DeviceNumber),
    /// A regular file: device number and inode.
    File(u64, u64),
}

/// Files, block devices and network interfaces, or a stand-in for them.
pub trait System {
    /// What a path leads to.
    ///
    /// # Errors
    /// There is nothing, or something else.
    fn target(&mut self, path: &Path) -> io::Result<Target>;

    /// Whether a path is that of a program.
    fn is_program(&mut self, path: &Path) -> bool;

    /// Makes a block device of a file; its number among loop devices.
    ///
    /// # Errors
    /// The kernel's.
    fn attach_loop(&mut self, file: &Path, read_only: bool) -> io::Result<u32>;

    /// Lets a loop device's file go.
    ///
    /// # Errors
    /// The kernel's.
    fn detach_loop(&mut self, number: u32) -> io::Result<()>;

    /// Whether there is a network interface of that name.
    fn interface_exists(&mut self, name: &str) -> bool;

    /// Gives an interface another name.
    ///
    /// # Errors
    /// The kernel's.
    fn rename_interface(&mut self, name: &str, new: &str) -> io::Result<()>;

    /// Sets an interface's largest packet, bytes.
    ///
    /// # Errors
    /// The kernel's.
    fn set_mtu(&mut self, name: &str, mtu: u32) -> io::Result<()>;

    /// Brings an interface up that carries packets of others only.
    ///
    /// # Errors
    /// The kernel's.
    fn bring_up(&mut self, name: &str) -> io::Result<()>;

    /// Makes a bridge and brings it up.
    ///
    /// # Errors
    /// The kernel's.
    fn make_bridge(&mut self, name: &str) -> io::Result<()>;

    /// Makes an interface a port of a bridge.
    ///
    /// # Errors
    /// The kernel's; there is no error if it is one already.
    fn join_bridge(&mut self, bridge: &str, name: &str) -> io::Result<()>;

    /// Takes an interface down and out of its bridge, as far as it is there.
    fn take_down(&mut self, bridge: Option<&str>, name: &str);
}
