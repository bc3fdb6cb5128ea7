//! Where things are: the source tree, the build tree, the cache of fetched things.

use std::env;
use std::path::PathBuf;

/// Root of the source tree.
pub fn root() -> PathBuf {
    // Cargo sets the variable at run time too; the built-in value serves a binary started by hand.
    let here =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut dir = PathBuf::from(here);
    while !dir.join("rust-toolchain.toml").exists() {
        if !dir.pop() {
            return PathBuf::from(".");
        }
    }
    dir
}

/// Cargo's build directory: `target` in the source tree unless `CARGO_TARGET_DIR` says otherwise.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => root().join(dir),
        _ => root().join("target"),
    }
}

/// The bootable ELF that `cargo xtask build` leaves.
pub fn image() -> PathBuf {
    target().join("image/xenolith")
}

/// Where the logs of VM runs are kept.
pub fn logs() -> PathBuf {
    target().join("vm-logs")
}

/// The cache of fetched things, outside the source tree: `XENOLITH_CACHE`, else `~/.cache/xenolith`.
pub fn cache() -> PathBuf {
    if let Some(dir) = env::var_os("XENOLITH_CACHE").filter(|d| !d.is_empty()) {
        return PathBuf::from(dir);
    }
    let base = env::var_os("XDG_CACHE_HOME")
        .filter(|d| !d.is_empty())
        .map(PathBuf::from);
    let home =
        || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
    base.unwrap_or_else(home).join("xenolith")
}
