//! Initial RAM disks of dom0 and of guests: a static busybox, kernel modules, an init script and the test scripts.

use crate::cpio::Cpio;
use crate::kernels::{self, Kernel};
use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What goes into an initial RAM disk.
pub struct Contents<'a> {
    /// Kernel whose modules are packed.
    pub kernel: &'a Kernel,
    /// Which of its modules, with what they depend on; all that are in the cache if empty.
    pub modules: &'a [&'a str],
    /// Directory with `init`, `lib.sh` and one script per test (`*.sh`).
    pub scripts: &'a Path,
    /// More files: path in the RAM disk, permission bits, source.
    pub extra: &'a [(String, u32, PathBuf)],
    /// Symbolic links: path in the RAM disk, what it leads to. `/init` is one; without it, it is the script.
    pub links: &'a [(&'a str, &'a str)],
    /// Directories whose files go in as they lie there, symbolic links too.
    pub trees: &'a [Tree<'a>],
}

/// An unpacked package, or several in one place.
pub struct Tree<'a> {
    /// Where it lies.
    pub dir: &'a Path,
    /// Where it goes in the RAM disk: empty, or a directory with a slash at the end.
    pub at: &'a str,
    /// The paths below it, without a slash in front, that are wanted: whole directories (with a slash at the end) or
    /// the beginnings of file names.
    pub keep: &'a [String],
}

/// Builds the archive and compresses it with gzip.
pub fn build(contents: &Contents<'_>) -> Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut cpio = Cpio::new();
    for dir in [
        "bin", "sbin", "proc", "sys", "dev", "tmp", "run", "root", "mnt", "etc", "var", "var/lib",
        "var/log", "xt/tests",
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
            "init" => "/xt/init".to_owned(),
            "lib.sh" => "/xt/lib.sh".to_owned(),
            _ => format!("/xt/tests/{name}"),
        };
        cpio.file(&place, 0o755, &read(&path)?);
    }
    let modules = format!("/lib/modules/{}", contents.kernel.release);
    let table = fs::read_to_string(contents.kernel.modules.join("modules.dep"))
        .context("the cached kernel has no modules.dep: run `cargo xtask setup --refresh`")?;
    let wanted = with_needs(&table, contents.modules)?;
    for path in sorted(&contents.kernel.modules)? {
        let name = file_name(&path);
        if contents.modules.is_empty() || name == "modules.dep" || wanted.contains(&name) {
            cpio.file(&format!("{modules}/{name}"), 0o644, &read(&path)?);
        }
    }
    for (place, mode, source) in contents.extra {
        cpio.file(place, *mode, &read(source)?);
    }
    for (place, target) in contents.links {
        cpio.link(place, target);
    }
    if contents.links.iter().all(|(place, _)| *place != "/init") {
        cpio.link("/init", "xt/init");
    }
    for tree in contents.trees {
        add_tree(&mut cpio, tree, "")?;
    }
    let mut gz = GzEncoder::new(Vec::new(), Compression::new(6));
    gz.write_all(&cpio.finish())?;
    Ok(gz.finish()?)
}

/// The file names of these modules and of those that `modules.dep` says they need.
fn with_needs(table: &str, modules: &[&str]) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    for module in modules {
        let file = format!("{}.ko", module.replace('-', "_"));
        let line = table
            .lines()
            .find_map(|l| l.strip_prefix(&format!("{file}:")));
        let needs = line.with_context(|| format!("the cached kernel has no module {module}"))?;
        files.extend(needs.split_whitespace().map(String::from));
        files.insert(file);
    }
    Ok(files)
}

/// Adds what is wanted of the directory `at` (with a slash at its end, or empty) of a tree.
fn add_tree(cpio: &mut Cpio, tree: &Tree<'_>, at: &str) -> Result<()> {
    let dir = tree.dir.join(at);
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok().map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    for name in names {
        let (place, path) = (format!("{at}{name}"), dir.join(&name));
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            let below = format!("{place}/");
            let leads = |k: &String| k.starts_with(&below) || below.starts_with(k.as_str());
            if tree.keep.iter().any(leads) {
                add_tree(cpio, tree, &below)?;
            }
        } else if tree.keep.iter().any(|k| place.starts_with(k.as_str())) {
            if kind.is_symlink() {
                let leads_to = fs::read_link(&path)?;
                cpio.link(&format!("{}{place}", tree.at), &leads_to.to_string_lossy());
            } else {
                let bytes = fs::read(&path);
                let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
                let mode = kind.permissions().mode() & 0o7777;
                cpio.file(&format!("{}{place}", tree.at), mode, &bytes);
            }
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_with_what_they_need() {
        let table = "a.ko: \next4.ko: jbd2.ko crc16.ko\nxen_blkfront.ko:\n";
        let files = with_needs(table, &["ext4", "xen-blkfront"]).expect("all there");
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        assert_eq!(files, ["crc16.ko", "ext4.ko", "jbd2.ko", "xen_blkfront.ko"]);
        assert!(with_needs(table, &["nfs"]).is_err());
    }

    #[test]
    fn trees_are_taken_in_part_and_links_stay_links() {
        let dir = std::env::temp_dir().join(format!("xenolith-tree-{}", std::process::id()));
        for file in [
            "usr/bin/tool",
            "usr/bin/toolbox",
            "usr/bin/other",
            "etc/a/b/c",
            "doc/x",
        ] {
            let path = dir.join(file);
            fs::create_dir_all(path.parent().expect("below dir")).expect("created");
            fs::write(path, file).expect("written");
        }
        std::os::unix::fs::symlink("tool", dir.join("usr/bin/toollink")).expect("linked");
        let keep = ["usr/bin/tool", "etc/a/"].map(String::from);
        let tree = Tree {
            dir: &dir,
            at: "inner/",
            keep: &keep,
        };
        let mut cpio = Cpio::new();
        add_tree(&mut cpio, &tree, "").expect("readable");
        let text = String::from_utf8_lossy(&cpio.finish()).into_owned();
        fs::remove_dir_all(&dir).expect("ours");
        for name in [
            "inner/usr/bin/tool\0",
            "inner/usr/bin/toolbox\0",
            "inner/usr/bin/toollink\0",
            "inner/etc/a/b/c\0",
        ] {
            assert!(text.contains(name), "{name} is missing");
        }
        assert!(!text.contains("other") && !text.contains("doc"));
    }
}
