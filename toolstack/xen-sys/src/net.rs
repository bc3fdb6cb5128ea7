//! Network interfaces and bridges of this machine, by the calls that every Linux has (`netdevice(7)`, `linux/sockios.h`).

#![allow(unsafe_code, reason = "hands the network's calls their structure")]

use crate::call::linux_call;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};

/// Longest name of an interface, bytes.
pub const NAME_MAX: usize = 15;

const GET_FLAGS: u32 = 0x8913;
const SET_FLAGS: u32 = 0x8914;
const SET_ADDRESS: u32 = 0x8916;
const SET_NETMASK: u32 = 0x891c;
const SET_MTU: u32 = 0x8922;
const SET_NAME: u32 = 0x8923;
const SET_HARDWARE_ADDRESS: u32 = 0x8924;
const GET_INDEX: u32 = 0x8933;
const BRIDGE_ADD: u32 = 0x89a0;
const BRIDGE_ADD_PORT: u32 = 0x89a2;
const BRIDGE_REMOVE_PORT: u32 = 0x89a3;

const UP: u16 = 1;
const NO_ARP: u16 = 0x80;
const FAMILY_INET: u16 = 2;
const FAMILY_ETHERNET: u16 = 1;

/// `struct ifreq`: a name, and a union of 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; 16],
    value: [u8; 24],
}

/// The means to make these calls.
#[derive(Debug)]
pub struct Network {
    socket: UdpSocket,
}

impl Network {
    /// Opens them.
    ///
    /// # Errors
    /// If the kernel has no network.
    pub fn open() -> io::Result<Network> {
        Ok(Network {
            socket: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        })
    }

    /// Whether there is an interface of that name.
    pub fn exists(&self, name: &str) -> bool {
        self.index(name).is_ok()
    }

    /// Brings an interface up, with ARP or without: a port of a bridge speaks for others only.
    ///
    /// # Errors
    /// The kernel's.
    pub fn up(&self, name: &str, arp: bool) -> io::Result<()> {
        let flags = u16::from_ne_bytes(first(&self.call(GET_FLAGS, name, &[])?));
        let flags = if arp { flags & !NO_ARP } else { flags | NO_ARP };
        self.call(SET_FLAGS, name, &(flags | UP).to_ne_bytes())
            .map(drop)
    }

    /// Takes an interface down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn down(&self, name: &str) -> io::Result<()> {
        let flags = u16::from_ne_bytes(first(&self.call(GET_FLAGS, name, &[])?));
        self.call(SET_FLAGS, name, &(flags & !UP).to_ne_bytes())
            .map(drop)
    }

    /// Gives an interface another name; it must be down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rename(&self, name: &str, new: &str) -> io::Result<()> {
        self.call(SET_NAME, name, &named(new)?).map(drop)
    }

    /// Sets the largest packet, bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> io::Result<()> {
        self.call(SET_MTU, name, &mtu.to_ne_bytes()).map(drop)
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_hardware_address(&self, name: &str, address: [u8; 6]) -> io::Result<()> {
        let value = [&FAMILY_ETHERNET.to_ne_bytes()[..], &address].concat();
        self.call(SET_HARDWARE_ADDRESS, name, &value).map(drop)
    }

    /// Sets the Internet address and the length of its network's prefix, bits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_address(&self, name: &str, address: Ipv4Addr, prefix: u32) -> io::Result<()> {
        let value = |a: Ipv4Addr| [&FAMILY_INET.to_ne_bytes()[..], &[0, 0], &a.octets()].concat();
        self.call(SET_ADDRESS, name, &value(address))?;
        let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
        self.call(SET_NETMASK, name, &value(Ipv4Addr::from_bits(mask)))
            .map(drop)
    }

    /// Makes a bridge.
    ///
    /// # Errors
    /// The kernel's: there is an interface of that name, or the module `bridge` is not loaded.
    pub fn add_bridge(&self, name: &str) -> io::Result<()> {
        let mut argument = named(name)?;
        // SAFETY: the call reads a name of 16 bytes, zero at the end.
        unsafe { linux_call(&self.socket, BRIDGE_ADD, &mut argument) }.map(drop)
    }

    /// Makes an interface a port of a bridge.
    ///
    /// # Errors
    /// The kernel's: it is one already (`EBUSY`), or the other is no bridge.
    pub fn add_port(&self, bridge: &str, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        self.call(BRIDGE_ADD_PORT, bridge, &index).map(drop)
    }

    /// Takes an interface out of a bridge.
    ///
    /// # Errors
    /// The kernel's: it is no port of it.
    pub fn remove_port(&self, bridge: &str, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        self.call(BRIDGE_REMOVE_PORT, bridge, &index).map(drop)
    }

    fn index(&self, name: &str) -> io::Result<[u8; 4]> {
        Ok(first(&self.call(GET_INDEX, name, &[])?))
    }

    fn call(&self, number: u32, name: &str, value: &[u8]) -> io::Result<[u8; 24]> {
        let mut request = Request {
            name: named(name)?,
            value: [0; 24],
        };
        request.value[..value.len()].copy_from_slice(value);
        // SAFETY: all calls that come here read and write a `struct ifreq`, and none has an address in its union.
        unsafe { linux_call(&self.socket, number, &mut request) }?;
        Ok(request.value)
    }
}

fn named(name: &str) -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(|b| b == 0) {
        let text = format!("{name:?} is no name of an interface (1 to {NAME_MAX} bytes)");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

fn first<const N: usize>(value: &[u8; 24]) -> [u8; N] {
    std::array::from_fn(|i| value[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there_and_others_are_not() {
        let network = Network::open().unwrap();
        assert!(network.exists("lo"));
        assert!(!network.exists("no-such-if"));
        for name in ["", "a-name-of-16-bytes", "zero\0"] {
            assert_eq!(
                network.set_mtu(name, 1500).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
