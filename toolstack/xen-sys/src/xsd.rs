//! What a control domain's kernel offers to its xenstored (`/proc/xen/xsd_*`).

use crate::page::SharedPage;
use std::fs::OpenOptions;
use std::io;

/// The kernel's end of its own event channel to xenstored.
///
/// # Errors
/// No such file: this is not a control domain, or xenfs is not mounted on `/proc/xen`.
pub fn port() -> io::Result<u32> {
    let text = std::fs::read_to_string("/proc/xen/xsd_port")?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other("/proc/xen/xsd_port holds no number"))
}

/// The kernel's ring page.
///
/// # Errors
/// As [`port`].
pub fn page() -> io::Result<SharedPage> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/xen/xsd_kva")?;
    SharedPage::map(&file, 0)
}
