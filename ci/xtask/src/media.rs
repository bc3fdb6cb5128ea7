//! Boot media of our own tests and of `run`: dom0's RAM disk and CD image, made once per content.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use vmtest::kernels::Kernel;
use vmtest::{initramfs, paths};

/// Directory of dom0's scripts.
pub fn scripts() -> PathBuf {
    paths::root().join("ci/vm-tests/dom0")
}

/// dom0's RAM disk for a kernel, in the build directory.
pub fn initrd(kernel: &Kernel) -> Result<PathBuf> {
    let out = paths::target()
        .join("image")
        .join(format!("initrd-{}.gz", kernel.series));
    let bytes = initramfs::build(&initramfs::Contents {
        kernel,
        scripts: &scripts(),
        extra: &[],
    })?;
    write_if_changed(&out, &bytes)?;
    Ok(out)
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
