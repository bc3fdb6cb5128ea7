//! The machine: Linux.

use super::system::{System, Target};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use xen_sys::loopdev;
use xen_sys::net::Network;

/// Address of interfaces that carry packets of others: the highest there is, so that a bridge does not take it for its own.
const PORT_ADDRESS: [u8; 6] = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff];

/// Linux.
#[derive(Debug)]
pub struct Linux {
    network: Network,
}

impl Linux {
    /// Gets ready.
    ///
    /// # Errors
    /// The kernel has no network.
    pub fn open() -> io::Result<Linux> {
        Ok(Linux {
            network: Network::open()?,
        })
    }
}

impl System for Linux {
    fn target(&mut self, path: &Path) -> io::Result<Target> {
        if let Some(number) = loopdev::block_device(path)? {
            return Ok(Target::Block(number));
        }
        let data = std::fs::metadata(path)?;
        match data.is_file() {
            true => Ok(Target::File(data.dev(), data.ino())),
            false => Err(io::Error::other("neither a file nor a block device")),
        }
    }

    fn is_program(&mut self, path: &Path) -> bool {
        path.is_absolute()
            && std::fs::metadata(path).is_ok_and(|d| d.is_file() && d.mode() & 0o111 != 0)
    }

    fn attach_loop(&mut self, file: &Path, read_only: bool) -> io::Result<u32> {
        loopdev::attach(file, read_only)
    }

    fn detach_loop(&mut self, number: u32) -> io::Result<()> {
        loopdev::detach(number)
    }

    fn interface_exists(&mut self, name: &str) -> bool {
        self.network.exists(name)
    }

    fn rename_interface(&mut self, name: &str, new: &str) -> io::Result<()> {
        self.network.rename(name, new)
    }

    fn set_mtu(&mut self, name: &str, mtu: u32) -> io::Result<()> {
        self.network.set_mtu(name, mtu)
    }

    fn bring_up(&mut self, name: &str) -> io::Result<()> {
        // Not all drivers let it be changed, and it works with another one too.
        let _ = self.network.set_hardware_address(name, PORT_ADDRESS);
        self.network.up(name, false)
    }

    fn make_bridge(&mut self, name: &str) -> io::Result<()> {
        self.network.add_bridge(name)?;
        self.network.up(name, true)
    }

    fn join_bridge(&mut self, bridge: &str, name: &str) -> io::Result<()> {
        match self.network.add_port(bridge, name) {
            // It is a port of this bridge or of another one; of another one it is taken out first.
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                let inside = Path::new("/sys/class/net")
                    .join(bridge)
                    .join("brif")
                    .join(name)
                    .exists();
                if inside { Ok(()) } else { Err(e) }
            }
            other => other,
        }
    }

    fn take_down(&mut self, bridge: Option<&str>, name: &str) {
        // The kernel removes the interface when the device goes, which may be before.
        let _ = self.network.down(name);
        if let Some(bridge) = bridge {
            let _ = self.network.remove_port(bridge, name);
        }
    }
}
