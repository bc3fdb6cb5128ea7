//! Files as block devices: Linux's loop driver (`/dev/loop*`, `linux/loop.h`).

#![allow(unsafe_code, reason = "hands the loop driver its structure")]

use crate::call::linux_call;
use rustix::fs::{Mode, OFlags, major, minor, open};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

const CONFIGURE: u32 = 0x4c0a;
const CLR_FD: u32 = 0x4c01;
const GET_FREE: u32 = 0x4c82;
const READ_ONLY: u32 = 1;
const DIRECT_IO: u32 = 16;
/// How often another device is tried when somebody else takes the free one first.
const TRIES: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Default)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    /// `lo_file_name`, `lo_crypt_name`, `lo_encrypt_key`, `lo_init`; the driver fills in what it needs.
    rest: [[u8; 16]; 11],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Default)]
struct Config {
    fd: u32,
    /// Bytes, or 0 for the driver's choice.
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

/// A block device's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// The number of a block device; `None` if the path is something else.
///
/// # Errors
/// If it cannot be looked at.
pub fn block_device(path: &Path) -> io::Result<Option<DeviceNumber>> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let data = std::fs::metadata(path)?;
    Ok(data.file_type().is_block_device().then(|| DeviceNumber {
        major: major(data.rdev()),
        minor: minor(data.rdev()),
    }))
}

/// Makes a block device of a file; the device is `/dev/loop` and the number that comes back. Writes pass the page cache if
/// the file system can do that, so that nothing that a guest has been told is written depends on it.
///
/// # Errors
/// If the file cannot be opened so, or the driver is not there.
pub fn attach(file: &Path, read_only: bool) -> io::Result<u32> {
    let access = if read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let backing = open(file, access | OFlags::CLOEXEC, Mode::empty())?;
    let control = device("/dev/loop-control", OFlags::RDWR)?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _ in 0..TRIES {
        // SAFETY: this call of the loop driver's control device ignores its argument.
        let number = unsafe { linux_call(&control, GET_FREE, &mut ()) }? as u32;
        let node = device(&format!("/dev/loop{number}"), OFlags::RDWR)?;
        let flags = if read_only { READ_ONLY } else { 0 };
        match configure(&node, &backing, flags | DIRECT_IO) {
            Ok(()) => return Ok(number),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => last = error,
            // The file system cannot.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                configure(&node, &backing, flags)?;
                return Ok(number);
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn configure(node: &OwnedFd, backing: &OwnedFd, flags: u32) -> io::Result<()> {
    let mut config = Config {
        fd: backing.as_raw_fd() as u32,
        ..Config::default()
    };
    config.info.flags = flags;
    // SAFETY: the structure is the one that this call of the loop driver reads; the file in it is open for the call.
    unsafe { linux_call(node, CONFIGURE, &mut config) }.map(drop)
}

/// Lets a loop device's file go: at once, or when its last user is gone.
///
/// # Errors
/// If there is no such device, or it has no file.
pub fn detach(number: u32) -> io::Result<()> {
    let node = device(&format!("/dev/loop{number}"), OFlags::RDONLY)?;
    // SAFETY: this call of the loop driver ignores its argument.
    unsafe { linux_call(&node, CLR_FD, &mut ()) }.map(drop)
}

fn device(path: &str, access: OFlags) -> io::Result<OwnedFd> {
    open(path, access | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))
}
