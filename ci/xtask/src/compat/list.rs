//! The guests: who wrote them, how they run.

use super::table::{Ground, Key};
use crate::micro;
use anyhow::{Context, Result};
use std::fs;
use vmtest::kernels::Kernel;

/// The series of `ci/images.toml`; `newest` is that of the backports.
pub const SERIES: &[&str] = &[
    "6.1",
    "6.1-cloud",
    "6.12",
    "6.12-cloud",
    "newest",
    "newest-cloud",
];

/// How a guest is run.
pub enum What {
    /// As dom0, on a machine with this many CPUs.
    Dom0 { series: &'static str, cpus: u32 },
    /// As a guest; `line` is what `ci/vm-tests/dom0/compat.sh` reads: name, kind, vCPUs, kernel, RAM disk.
    Guest { name: String, line: String },
    /// A micro-guest, as dom0.
    Micro(String),
}

/// One line of the list.
pub struct Entry {
    /// Its row in the table.
    pub key: Key,
    /// How it is run.
    pub what: What,
    /// What is known to be missing, where.
    pub missing: Vec<(Ground, &'static str)>,
}

impl Entry {
    /// What is known to be missing for it.
    pub fn missing(&self, ground: Ground) -> Option<&'static str> {
        let on = self.missing.iter().find(|(g, _)| *g == ground);
        on.map(|(_, text)| *text)
    }
}

/// An emulator's fault and Xen's way of asking together: `docs/guide/testing.md`.
const XEN_PVH: (Ground, &str) = (
    Ground::Xen,
    "Xen intercepts reads of CR0, and QEMU then sends it those of CR2 too, which it cannot emulate",
);
const NO_DOM0: &str = "CONFIG_XEN_DOM0 in Debian's flavour for clouds";
const PV: (Ground, &str) = (Ground::Xenolith, "PV guests");

/// All of them; `kernels` are those of [`SERIES`].
pub fn all(kernels: &[Kernel]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for series in SERIES {
        let name = kernel_name(kernels, series)?;
        for cpus in [1, 4] {
            let kind = format!("dom0, {}", count(cpus, "CPU"));
            let cloud = [Ground::Xenolith, Ground::Xen].map(|ground| (ground, NO_DOM0));
            let missing = if series.ends_with("cloud") {
                &cloud[..]
            } else {
                &[]
            };
            entries.push(entry(&name, &kind, What::Dom0 { series, cpus }, missing));
        }
    }
    for series in SERIES {
        let name = kernel_name(kernels, series)?;
        let kinds = [("pvh", 1, XEN_PVH), ("pvh", 4, XEN_PVH), ("pv", 1, PV)];
        for (kind, vcpus, missing) in kinds {
            let what = guest(kind, series, vcpus, &format!("vmlinuz-{series}"));
            let shown = format!("{} guest, {}", kind.to_uppercase(), count(vcpus, "vCPU"));
            entries.push(entry(&name, &shown, what, &[missing]));
        }
    }
    let linux = kernel_name(kernels, "6.1")?;
    // The flavour for clouds is packed by lz4: the guest itself unpacks it, and xz takes minutes in an emulator.
    let packed = kernel_name(kernels, "6.1-cloud")?;
    let what = guest("grub", "6.1-cloud", 1, "grub.bin");
    let kind = format!("PVH guest, boots {packed} from its disk");
    let name = "GRUB 2.06, grub-i386-xen_pvh.bin";
    entries.push(entry(name, &kind, what, &[XEN_PVH]));
    let what = guest("shim", "6.1", 1, "vmlinuz-6.1");
    let kind = format!("PVH guest, with {linux} as PV guest in it");
    entries.push(entry("xen-shim 4.17", &kind, what, &[XEN_PVH]));
    for name in micro::guests() {
        let what = What::Micro(name.clone());
        let key = format!("micro-guest {name}");
        entries.push(entry(&key, "dom0, 2 CPUs", what, &[]));
    }
    Ok(entries)
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn entry(guest: &str, kind: &str, what: What, missing: &[(Ground, &'static str)]) -> Entry {
    Entry {
        key: Key {
            guest: guest.into(),
            kind: kind.into(),
        },
        what,
        missing: missing.to_vec(),
    }
}

fn guest(kind: &str, series: &str, vcpus: u32, kernel: &str) -> What {
    let name = format!("{kind}-{series}-{vcpus}");
    What::Guest {
        line: format!("{name} {kind} {vcpus} {kernel} initrd-{series}"),
        name,
    }
}

/// Release and compression of a kernel.
fn kernel_name(kernels: &[Kernel], series: &str) -> Result<String> {
    let kernel = kernels.iter().find(|k| k.series == series);
    let kernel = kernel.with_context(|| format!("ci/images.toml has no kernel {series}"))?;
    let image = fs::read(&kernel.image)
        .with_context(|| format!("cannot read {}", kernel.image.display()))?;
    let packed = compression(&image).unwrap_or("not known");
    Ok(format!("Linux {} ({packed})", kernel.release))
}

/// How a bzImage is compressed (Linux' `Documentation/arch/x86/boot.rst`: `setup_sects`, `payload_offset`).
fn compression(image: &[u8]) -> Option<&'static str> {
    let sectors = usize::from(*image.get(0x1f1)?);
    let offset = u32::from_le_bytes(*image.get(0x248..)?.first_chunk()?);
    let payload = image.get((sectors + 1) * 512 + usize::try_from(offset).ok()?..)?;
    let kinds: [(&[u8], &str); 4] = [
        (b"\xfd7zXZ", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x02\x21\x4c\x18", "lz4"),
        (b"\x1f\x8b", "gzip"),
    ];
    let kind = kinds.iter().find(|(magic, _)| payload.starts_with(magic));
    kind.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_are_told_apart() {
        let mut image = vec![0; 4096];
        image[0x1f1] = 1;
        image[0x248] = 16;
        image[1040..1044].copy_from_slice(&[0x02, 0x21, 0x4c, 0x18]);
        assert_eq!(compression(&image), Some("lz4"));
        image[1040] = 0;
        assert_eq!(compression(&image), None);
        assert_eq!(compression(&image[..100]), None);
    }
}
