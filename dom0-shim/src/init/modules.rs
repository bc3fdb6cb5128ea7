//! Kernel modules: which files a module needs, in which order; loading them.

use rustix::io::Errno;
use rustix::system::finit_module;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What a dom0 needs of its kernel; what is built in, or not there, is passed over.
pub const DOM0: [&str; 9] = [
    "xenfs",
    "xen-evtchn",
    "xen-gntdev",
    "xen-gntalloc",
    "xen-privcmd",
    "xen-blkback",
    "xen-netback",
    "loop",
    "bridge",
];

/// The files that a module needs, itself last, by the text of `modules.dep`. `None` if it is not there.
fn files(table: &str, module: &str) -> Option<Vec<String>> {
    let wanted = plain(module);
    let name = |file: &str| {
        let file = file.rsplit('/').next().unwrap_or(file);
        plain(file.split(".ko").next().unwrap_or(file))
    };
    table.lines().find_map(|line| {
        let (file, needs) = line.split_once(':')?;
        (name(file) == wanted).then(|| {
            let mut all: Vec<String> = needs.split_whitespace().map(str::to_owned).collect();
            // What is needed by what stands before it comes behind it.
            all.reverse();
            all.push(file.to_owned());
            all
        })
    })
}

fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Loads a module of the running kernel with all that it needs; whether there is one.
///
/// # Errors
/// Which file does not load, and why.
pub fn load(module: &str) -> Result<bool, String> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let dir = Path::new("/lib/modules").join(release);
    let table = std::fs::read_to_string(dir.join("modules.dep")).unwrap_or_default();
    let Some(files) = files(&table, module) else {
        return Ok(false);
    };
    for file in files {
        insert(&dir.join(&file)).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(true)
}

fn insert(path: &PathBuf) -> std::io::Result<()> {
    let file = File::open(path)?;
    match finit_module(&file, c"", 0) {
        // It is loaded already.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOEXEC) => Err(std::io::Error::other(
            "not a module for this kernel, or compressed",
        )),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let table = "kernel/a/xen-evtchn.ko:\nbridge.ko: stp.ko llc.ko\nkernel/net/ext4.ko: kernel/fs/jbd2.ko kernel/crc16.ko\n";
        assert_eq!(
            files(table, "xen_evtchn").unwrap(),
            ["kernel/a/xen-evtchn.ko"]
        );
        assert_eq!(
            files(table, "bridge").unwrap(),
            ["llc.ko", "stp.ko", "bridge.ko"]
        );
        assert_eq!(files(table, "ext4").unwrap().len(), 3);
        assert_eq!(files(table, "ext"), None);
    }
}
