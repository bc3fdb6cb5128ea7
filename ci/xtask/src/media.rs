//! Boot media of our own tests and of `run`: dom0's RAM disk, and a CD image or a file of modules.

use crate::iso as iso_cmd;
use crate::{exec, micro, setup};
use anyhow::{Context, Result, bail};
use hv_hw::bootinfo::bundle;
use std::fs;
use std::path::{Path, PathBuf};
use vm_tests::Debian;
use vmtest::acpi::Table;
use vmtest::iso::{self, Iso};
use vmtest::kernels::Kernel;
use vmtest::machine::Machine;
use vmtest::qemu::{self, Boot};
use vmtest::{initramfs, paths};

/// Debian's Xen in this emulator: TCG's MWAIT has no extensions, and Xen's idle driver takes them for granted.
const PEER_CMDLINE: &str = "cpuidle=0 mwait-idle=0";

/// What dom0's kernel runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Our hypervisor, loaded by GRUB.
    Xenolith,
    /// Our hypervisor, loaded by QEMU through its PVH entry.
    XenolithDirect,
    /// Debian's Xen, loaded by GRUB.
    Xen,
    /// Nothing: the emulated machine itself.
    Bare,
}

impl On {
    /// The console of dom0's kernel.
    pub fn console(self) -> &'static str {
        if self == Self::Bare { "ttyS0" } else { "hvc0" }
    }
}

/// One boot: what is loaded, with which command lines.
pub struct Plan<'a> {
    /// What the kernel runs on.
    pub on: On,
    /// The hypervisor.
    pub hypervisor: &'a Path,
    /// Added to its command line.
    pub cmdline: &'a str,
    /// dom0's kernel.
    pub kernel: &'a Path,
    /// dom0's RAM disk.
    pub initrd: &'a Path,
    /// Added to dom0's command line.
    pub dom0_cmdline: &'a str,
    /// Firmware tables that GRUB puts in the place of the machine's own.
    pub tables: &'a [Table],
}

impl Plan<'_> {
    /// Makes the media in `dir` and returns QEMU's arguments, without those of the console.
    pub fn args(&self, machine: &Machine, dir: &Path) -> Result<Vec<String>> {
        let line = format!("console={} {}", self.on.console(), self.dom0_cmdline);
        let mut cmdline = format!("{} {}", iso_cmd::CMDLINE, self.cmdline);
        let iso_path = dir.join("boot.iso");
        let modules = dir.join("modules.bin");
        let boot = match self.on {
            On::Bare => Boot::Direct {
                kernel: self.kernel,
                module: Some(self.initrd),
                cmdline: &line,
            },
            On::XenolithDirect => {
                let read = |path: &Path| {
                    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
                };
                let (kernel, initrd) = (read(self.kernel)?, read(self.initrd)?);
                let packed = bundle::pack(&[(&kernel, &line), (&initrd, "")]);
                write_if_changed(&modules, &packed)?;
                Boot::Direct {
                    kernel: self.hypervisor,
                    module: Some(&modules),
                    cmdline: &cmdline,
                }
            }
            On::Xenolith | On::Xen => {
                if self.on == On::Xen {
                    cmdline = format!("{} {PEER_CMDLINE} {}", iso_cmd::CMDLINE, self.cmdline);
                }
                let iso = Iso {
                    hypervisor: self.hypervisor,
                    cmdline: &cmdline,
                    kernel: Some(self.kernel),
                    dom0_cmdline: &line,
                    initrd: Some(self.initrd),
                    tables: self.tables,
                    efi_only: false,
                };
                iso::build(&iso, &iso_path)?;
                Boot::Iso(&iso_path)
            }
        };
        qemu::args(machine, &boot, dir)
    }
}

/// The machine called `name`; the peer needs an IOMMU on q35.
pub fn machine(name: &str, on: On) -> Result<Machine> {
    Machine::load(if on == On::Xen && name == "q35" {
        "peer"
    } else {
        name
    })
}

/// Directory of dom0's scripts.
pub fn scripts() -> PathBuf {
    paths::root().join("ci/vm-tests/dom0")
}

/// dom0's RAM disk for a kernel, in the build directory.
pub fn initrd(kernel: &Kernel) -> Result<PathBuf> {
    ram_disk(kernel, "", &[], &[])
}

/// The same with our programs in it, which are built for that.
pub fn initrd_with_tools(kernel: &Kernel) -> Result<PathBuf> {
    ram_disk(kernel, "-tools", &programs("/sbin")?, &[])
}

/// Names under which the services' program is called.
const SERVICES: &[&str] = &["xenstored", "xenconsoled", "devd", "xen-init-dom0"];

/// What xenstore's client does, each also under the name that Xen's client for it has.
const CLIENTS: &[&str] = &[
    "read", "write", "ls", "list", "rm", "exists", "chmod", "watch", "control",
];

/// Our programs for dom0 as files below `dir`, built.
fn programs(dir: &str) -> Result<Vec<(String, u32, PathBuf)>> {
    let mut cargo = exec::cargo();
    cargo.args([
        "build",
        "--quiet",
        "--profile",
        "tools",
        "--package",
        "dom0-shim",
    ]);
    cargo.args(["--package", "xenstore-tools", "--package", "xl"]);
    let target = setup::static_target_flags(&mut cargo);
    if target.is_empty() {
        bail!(
            "programs for dom0 need Rust's static target: run `rustup target add x86_64-unknown-linux-musl`"
        );
    }
    exec::step("build the programs of dom0", cargo)?;
    let built = paths::target().join(target).join("tools");
    let programs = ["dom0-shim", "xenstore", "xl"];
    Ok(programs
        .map(|name| (format!("{dir}/{name}"), 0o755, built.join(name)))
        .to_vec())
}

/// dom0 as our toolstack's home: `dom0-shim init` is process 1, services run, and there is a guest to begin with. With
/// Debian's toolstack beside it if asked for, and the micro-guests in `/guest/micro`.
pub fn initrd_with_system(kernel: &Kernel, debian: bool, micro: bool) -> Result<PathBuf> {
    let mut extra = system_files()?;
    extra.extend(guest_files(kernel)?);
    if micro {
        extra.extend(micro_guests()?);
    }
    let tree;
    let kept = if debian {
        tree = setup::kept_tree("debian-xl")?;
        Some(initramfs::Tree {
            dir: &tree.0,
            at: "",
            keep: &tree.1,
        })
    } else {
        None
    };
    let mut suffix = String::from(if debian { "-mixed" } else { "-system" });
    if micro {
        suffix += "-micro";
    }
    ram_disk(kernel, &suffix, &extra, kept.as_slice())
}

/// A disk with the label `xenolith` that holds this source tree, as far as one needs it to install our programs, and these as if they
/// were built there.
pub fn tree_disk() -> Result<PathBuf> {
    let dir = paths::target().join("image/tree");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    let built = format!("{}/tools", setup::STATIC);
    for part in [
        "docs/units",
        "docs/guide",
        "ci/vm-tests/dom0",
        &format!("target/{built}"),
    ] {
        let to = dir.join(part);
        fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        if part.starts_with("target") {
            for (name, _, from) in programs("")? {
                copy(&from, &to.join(name.trim_start_matches('/')))?;
            }
            continue;
        }
        let from = paths::root().join(part);
        for entry in
            fs::read_dir(&from).with_context(|| format!("cannot list {}", from.display()))?
        {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                copy(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
    }
    let out = dir.with_extension("img");
    setup::make_disk(&dir, &out, "xenolith", "64M")?;
    Ok(out)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::copy(from, to).map(drop);
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// dom0 with more files, for guests of all kinds: on Xenolith our services and both toolstacks, on Xen Debian's toolstack with our
/// programs in `/ours`.
pub fn initrd_with_guests(
    kernel: &Kernel,
    on: On,
    files: Vec<(String, u32, PathBuf)>,
) -> Result<PathBuf> {
    if on == On::Xen {
        let files = [files, programs("/ours")?].concat();
        return debian_disk(kernel, "-guests-xen", files);
    }
    debian_disk(kernel, "-guests", [files, system_files()?].concat())
}

/// Our programs, and the files by which our init starts the services.
fn system_files() -> Result<Vec<(String, u32, PathBuf)>> {
    let mut extra = programs("/sbin")?;
    let system = paths::root().join("ci/vm-tests/system");
    for (place, file) in [
        ("/etc/dom0-init.conf", "dom0-init.conf"),
        ("/etc/profile", "profile"),
        ("/etc/xen/sample.cfg", "sample.cfg"),
    ] {
        extra.push((place.into(), 0o644, system.join(file)));
    }
    Ok(extra)
}

/// The micro-guests as files for dom0's RAM disk.
fn micro_guests() -> Result<Vec<(String, u32, PathBuf)>> {
    let built = micro::build_guests()?;
    let place = |name: String| (format!("/guest/micro/{name}"), 0o644, built.join(name));
    Ok(micro::guests().into_iter().map(place).collect())
}

/// The same with Debian's unmodified toolstack in it, and a guest.
pub fn initrd_with_debian(kernel: &Kernel, release: Debian) -> Result<PathBuf> {
    match release {
        Debian::Twelve => debian_disk(kernel, "-debian", guest_files(kernel)?),
        Debian::Thirteen => {
            let (dir, keep) = setup::kept_tree("debian-xl-4.20")?;
            let tree = initramfs::Tree {
                dir: &dir,
                at: "debian-13/",
                keep: &keep,
            };
            ram_disk(kernel, "-debian-13", &guest_files(kernel)?, &[tree])
        }
    }
}

/// The same with our programs beside it, in `/ours`.
pub fn initrd_with_both(kernel: &Kernel) -> Result<PathBuf> {
    let files = [guest_files(kernel)?, programs("/ours")?].concat();
    debian_disk(kernel, "-both", files)
}

fn debian_disk(
    kernel: &Kernel,
    suffix: &str,
    files: Vec<(String, u32, PathBuf)>,
) -> Result<PathBuf> {
    let (dir, keep) = setup::kept_tree("debian-xl")?;
    let tree = initramfs::Tree {
        dir: &dir,
        at: "",
        keep: &keep,
    };
    ram_disk(kernel, suffix, &files, &[tree])
}

/// Modules of a guest's RAM disk: the front ends, and a file system.
const GUEST_MODULES: &[&str] = &["xen-blkfront", "xen-netfront", "ext4", "crc32c_generic"];

/// A Linux guest as files for dom0's RAM disk: `/guest/vmlinuz` and `/guest/initrd.gz`, whose init
/// (`ci/vm-tests/guest/init`) prints what it finds and gives a shell.
pub fn guest_files(kernel: &Kernel) -> Result<Vec<(String, u32, PathBuf)>> {
    let disk = guest_initrd(kernel)?;
    Ok(vec![
        ("/guest/vmlinuz".into(), 0o644, kernel.image.clone()),
        ("/guest/initrd.gz".into(), 0o644, disk),
    ])
}

/// The RAM disk of a guest with this kernel, in the build directory.
pub fn guest_initrd(kernel: &Kernel) -> Result<PathBuf> {
    let out = paths::target()
        .join("image")
        .join(format!("guest-{}.gz", kernel.series));
    // What a kernel has built in lies in no file.
    let there = |m: &&&str| {
        let file = format!("{}.ko", m.replace('-', "_"));
        kernel.modules.join(file).exists()
    };
    let modules: Vec<&str> = GUEST_MODULES.iter().filter(there).copied().collect();
    let contents = initramfs::Contents {
        kernel,
        modules: &modules,
        scripts: &paths::root().join("ci/vm-tests/guest"),
        extra: &[],
        links: &[],
        trees: &[],
    };
    write_if_changed(&out, &initramfs::build(&contents)?)?;
    Ok(out)
}

fn ram_disk(
    kernel: &Kernel,
    suffix: &str,
    extra: &[(String, u32, PathBuf)],
    trees: &[initramfs::Tree<'_>],
) -> Result<PathBuf> {
    let name = format!("initrd-{}{suffix}.gz", kernel.series);
    let out = paths::target().join("image").join(name);
    let has = |name: &str| extra.iter().any(|(place, ..)| place == name);
    let mut links = Vec::new();
    let services: Vec<String> = SERVICES.iter().map(|s| format!("/sbin/{s}")).collect();
    if has("/sbin/dom0-shim") {
        links.extend(services.iter().map(|s| (s.as_str(), "dom0-shim")));
    }
    // With Debian's toolstack these names are its own clients'.
    let clients: Vec<String> = CLIENTS
        .iter()
        .map(|c| format!("/sbin/xenstore-{c}"))
        .collect();
    if has("/sbin/xenstore") && trees.is_empty() {
        links.extend(clients.iter().map(|c| (c.as_str(), "xenstore")));
    }
    if has("/etc/dom0-init.conf") {
        links.push(("/init", "sbin/dom0-shim"));
    }
    let contents = initramfs::Contents {
        kernel,
        modules: &[],
        scripts: &scripts(),
        extra,
        links: &links,
        trees,
    };
    write_if_changed(&out, &initramfs::build(&contents)?)?;
    Ok(out)
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    // Complete from the first moment: another test may boot from it.
    let part = path.with_extension(format!("part-{:?}", std::thread::current().id()));
    fs::write(&part, bytes)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
