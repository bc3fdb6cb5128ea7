//! Picks the kernel modules that dom0 needs, with what they depend on, out of Debian's three thousand.
//!
//! The package holds no `modules.dep`; each module names its dependencies in its `.modinfo` section.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the RAM disks of dom0 and of guests can load.
pub const WANTED: &[&str] = &[
    "xenfs",
    "xen-evtchn",
    "xen-privcmd",
    "xen-gntdev",
    "xen-gntalloc",
    "xen-blkback",
    "xen-netback",
    "xen-pciback",
    "xen-blkfront",
    "xen-netfront",
    "ahci",
    "ata_piix",
    "ata_generic",
    "sd_mod",
    "sr_mod",
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_scsi",
    "virtio_console",
    "nvme",
    "e1000",
    "e1000e",
    "xhci_pci",
    "uhci_hcd",
    "ehci_pci",
    "usb-storage",
    "ext4",
    "crc32c_generic",
    "loop",
    "bridge",
    "msr",
    "cpuid",
];

/// Copies the wanted modules and their dependencies from the tree of a kernel release to `out`, uncompressed, with a
/// `modules.dep`. Returns how many there are. With `some`, wanted ones may be missing.
pub fn collect(tree: &Path, out: &Path, some: bool) -> Result<usize> {
    let mut index = BTreeMap::new();
    list(tree, &mut index)?;
    let built_in = fs::read_to_string(tree.join("modules.builtin")).unwrap_or_default();
    let built_in: BTreeSet<String> = built_in
        .lines()
        .filter_map(|l| name_of(Path::new(l)))
        .collect();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let wanted: Vec<String> = WANTED.iter().map(|m| m.replace('-', "_")).collect();
    let mut todo = wanted.clone();
    while let Some(name) = todo.pop() {
        if found.contains_key(&name) || built_in.contains(&name) {
            continue;
        }
        let Some(path) = index.get(&name) else {
            if some && wanted.contains(&name) {
                continue;
            }
            bail!("the kernel package has no module {name}")
        };
        let bytes = read(path)?;
        let needs = dependencies(&bytes);
        fs::write(out.join(format!("{name}.ko")), bytes)?;
        todo.extend(needs.iter().cloned());
        found.insert(name, needs);
    }
    let mut dep = String::new();
    for name in found.keys() {
        let mut order = Vec::new();
        closure(name, &found, &mut order);
        let files: Vec<String> = order
            .iter()
            .rev()
            .skip(1)
            .map(|n| format!("{n}.ko"))
            .collect();
        dep += &format!("{name}.ko: {}\n", files.join(" "));
    }
    fs::write(out.join("modules.dep"), dep)?;
    Ok(found.len())
}

/// Appends `name` behind everything it needs.
fn closure(name: &str, all: &BTreeMap<String, Vec<String>>, order: &mut Vec<String>) {
    if order.iter().any(|n| n == name) {
        return;
    }
    // Built-in ones are not in the map.
    if let Some(needs) = all.get(name) {
        needs.iter().for_each(|n| closure(n, all, order));
        order.push(name.to_owned());
    }
}

fn list(dir: &Path, index: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, index)?;
        } else if let Some(name) = name_of(&path) {
            index.insert(name, path);
        }
    }
    Ok(())
}

/// A module's name as the kernel writes it, if the file is a module.
fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (stem, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| stem.replace('-', "_"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let out = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !out.status.success() {
        bail!("{program} cannot unpack {}", path.display());
    }
    Ok(out.stdout)
}

/// The `depends=` string of the `.modinfo` section, whose strings are separated by zero bytes.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|w| w == key) else {
        return Vec::new();
    };
    let value = &module[at + key.len()..];
    let value = &value[..value.iter().position(|&b| b == 0).unwrap_or(value.len())];
    let text = String::from_utf8_lossy(value);
    text.split(',')
        .filter(|n| !n.is_empty())
        .map(|n| n.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(
            name_of(Path::new("a/xen-evtchn.ko.xz")).as_deref(),
            Some("xen_evtchn")
        );
        assert_eq!(
            name_of(Path::new("kernel/fs/ext4/ext4.ko")).as_deref(),
            Some("ext4")
        );
        assert_eq!(name_of(Path::new("modules.order")), None);
    }

    #[test]
    fn depends_string() {
        assert_eq!(
            dependencies(b"\0license=GPL\0depends=libata,scsi-mod\0x"),
            ["libata", "scsi_mod"]
        );
        assert!(dependencies(b"\0depends=\0name=x").is_empty());
        assert!(dependencies(b"").is_empty());
    }

    #[test]
    fn order_puts_needs_first() {
        let all = [
            ("a", vec!["b", "c"]),
            ("b", vec!["c"]),
            ("c", vec!["builtin"]),
        ];
        let all = all
            .into_iter()
            .map(|(n, d)| (n.to_owned(), d.into_iter().map(String::from).collect()))
            .collect();
        let mut order = Vec::new();
        closure("a", &all, &mut order);
        assert_eq!(order, ["c", "b", "a"]);
    }
}
