//! Debian's Xen 4.17, fetched by the package manager (which checks its signature) into the cache.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "xen-hypervisor-4.17-amd64";
const NAME: &str = "xen-4.17-amd64";

/// `$XENOLITH_CACHE`, or `~/.cache/xenolith`.
fn cache() -> Result<PathBuf, String> {
    if let Some(dir) = std::env::var_os("XENOLITH_CACHE") {
        return Ok(dir.into());
    }
    let home = std::env::var_os("HOME").ok_or("neither XENOLITH_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/xenolith"))
}

/// Path of the unpacked 32-bit Multiboot image that QEMU's `-kernel` starts.
pub(crate) fn xen() -> Result<PathBuf, String> {
    let cache = cache()?;
    let image = cache.join(NAME);
    if image.exists() {
        return Ok(image);
    }
    println!("fetching {PACKAGE} into {}", cache.display());
    std::fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    run(Command::new("apt-get")
        .args(["download", PACKAGE])
        .current_dir(&cache))?;
    let package = std::fs::read_dir(&cache)
        .map_err(|e| e.to_string())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(PACKAGE))
        })
        .ok_or("apt-get left no package")?;
    let unpacked = cache.join("xen-hypervisor");
    run(Command::new("dpkg-deb")
        .arg("-x")
        .arg(&package)
        .arg(&unpacked))?;
    let partial = cache.join("xen.partial");
    let out = File::create(&partial).map_err(|e| format!("{}: {e}", partial.display()))?;
    let packed = unpacked.join("boot").join(format!("{NAME}.gz"));
    run(Command::new("gzip").arg("-dc").arg(&packed).stdout(out))?;
    std::fs::rename(&partial, &image).map_err(|e| format!("{}: {e}", image.display()))?;
    Ok(image)
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(e) => Err(format!("{command:?}: {e}")),
    }
}
