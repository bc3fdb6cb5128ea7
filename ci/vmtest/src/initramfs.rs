//! dom0's initial RAM disk: a static busybox, the kernel's modules, an init script and the test scripts.

use crate::cpio::Cpio;
use crate::kernels::{self, Kernel};
use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What goes into an initial RAM disk.
pub struct Contents<'a> {
    /// Kernel whose modules are packed.
    pub kernel: &'a Kernel,
    /// Directory with `init`, `lib.sh` and one script per test (`*.sh`).
    pub scripts: &'a Path,
    /// More files: path in the RAM disk, permission bits, source.
    pub extra: &'a [(String, u32, PathBuf)],
}

/// Builds the archive and compresses it with gzip.
pub fn build(contents: &Contents<'_>) -> Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut cpio = Cpio::new();
    for dir in [
        "bin", "sbin", "proc", "sys", "dev", "tmp", "run", "root", "mnt", "etc", "xt/tests",
    ] {
        cpio.dir(dir);
    }
    // The kernel opens this one for init before anything can mount devtmpfs.
    cpio.char_device("/dev/console", 5, 1);
    cpio.file("/bin/busybox", 0o755, &read(&kernels::busybox()?)?);
    cpio.link("/bin/sh", "busybox");
    cpio.file("/etc/passwd", 0o644, b"root::0:0:root:/root:/bin/sh\n");
    cpio.file("/etc/group", 0o644, b"root:x:0:\n");
    for path in sorted(contents.scripts)? {
        let name = file_name(&path);
        let place = match name.as_str() {
            "init" => "/init".to_owned(),
            "lib.sh" => "/xt/lib.sh".to_owned(),
            _ => format!("/xt/tests/{name}"),
        };
        cpio.file(&place, 0o755, &read(&path)?);
    }
    let modules = format!("/lib/modules/{}", contents.kernel.release);
    for path in sorted(&contents.kernel.modules)? {
        cpio.file(
            &format!("{modules}/{}", file_name(&path)),
            0o644,
            &read(&path)?,
        );
    }
    for (place, mode, source) in contents.extra {
        cpio.file(place, *mode, &read(source)?);
    }
    let mut gz = GzEncoder::new(Vec::new(), Compression::new(6));
    gz.write_all(&cpio.finish())?;
    Ok(gz.finish()?)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The files of a directory by name, so that the archive is reproducible.
fn sorted(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_file())
        .collect();
    paths.sort();
    Ok(paths)
}
