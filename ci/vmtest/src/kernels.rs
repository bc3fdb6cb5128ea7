//! Fetched kernels as they lie in the cache: an image and the few modules that dom0 needs.
//!
//! `cargo xtask setup` fills `<cache>/kernels/<series>/`; this module only reads it.

use crate::paths;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// One kernel with its modules.
pub struct Kernel {
    /// Series, for example `6.1`.
    pub series: String,
    /// The release that `uname -r` prints.
    pub release: String,
    /// The bzImage.
    pub image: PathBuf,
    /// Directory with the uncompressed modules and `modules.dep`.
    pub modules: PathBuf,
}

/// Directory of a series in the cache.
pub fn dir(series: &str) -> PathBuf {
    paths::cache().join("kernels").join(series)
}

impl Kernel {
    /// The kernel of `series` from the cache.
    pub fn find(series: &str) -> Result<Self> {
        let dir = dir(series);
        let release = fs::read_to_string(dir.join("release")).with_context(|| {
            format!(
                "no Debian kernel {series} in {}: run `cargo xtask setup`",
                dir.display()
            )
        })?;
        let kernel = Self {
            series: series.to_owned(),
            release: release.trim().to_owned(),
            image: dir.join("vmlinuz"),
            modules: dir.join("modules"),
        };
        if !kernel.image.exists() {
            bail!(
                "{} is missing: run `cargo xtask setup --refresh`",
                kernel.image.display()
            );
        }
        Ok(kernel)
    }
}

/// Xen as Debian ships it, unpacked in the cache; the peer that results are compared with.
pub fn peer_xen() -> Result<PathBuf> {
    let xen = paths::cache().join("peer/xen.gz");
    present(&xen)
}

/// The static busybox in the cache.
pub fn busybox() -> Result<PathBuf> {
    present(&paths::cache().join("busybox/busybox"))
}

fn present(path: &Path) -> Result<PathBuf> {
    if !path.exists() {
        bail!("{} is missing: run `cargo xtask setup`", path.display());
    }
    Ok(path.to_owned())
}
