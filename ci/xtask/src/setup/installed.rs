//! A Debian as its installer leaves it, with systemd, for a dom0; and one for a guest of it.
//!
//! Both come of one run of debootstrap by the commands of the guide (`docs/guide/first-guest.md`), which are taken out of that page and run
//! as they stand there. So this fails if the guide is wrong.

use super::fetch;
use crate::exec;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use vmtest::paths;

const GUIDE: &str = "docs/guide/first-guest.md";
/// Heading in the guide below which the commands stand.
const HEADING: &str = "## 3.";
/// What the guide calls the guest.
const NAME: &str = "web";

/// The disks, and what the boot loader loads.
pub struct Installed {
    /// Debian's kernel.
    pub kernel: PathBuf,
    /// The RAM disk that Debian made for it.
    pub initrd: PathBuf,
    dir: PathBuf,
}

impl Installed {
    /// Why it cannot be made on this machine, if so.
    pub fn cannot() -> Option<String> {
        if Self::cached().is_ok() {
            return None;
        }
        if exec::first_line("id", &["-u"]).as_deref() != Some("0") {
            return Some("debootstrap needs root".into());
        }
        let programs = ["wget", "perl", "chroot", "mkfs.ext4"];
        let missing: Vec<_> = programs.into_iter().filter(|p| !on_path(p)).collect();
        (!missing.is_empty()).then(|| format!("debootstrap needs {}", missing.join(" ")))
    }

    /// From the cache, or made: that takes minutes, needs the network and 3 GiB.
    pub fn get() -> Result<Self> {
        Self::cached().or_else(|_| {
            make().context("a Debian 12 by the guide's commands")?;
            Self::cached()
        })
    }

    fn cached() -> Result<Self> {
        let dir = paths::cache().join("installed");
        let commands = guide()?;
        let stamp = fs::read_to_string(dir.join("commands")).unwrap_or_default();
        if stamp != commands {
            bail!("{} is not made by these commands", dir.display());
        }
        Ok(Self {
            kernel: dir.join("vmlinuz"),
            initrd: dir.join("initrd"),
            dir,
        })
    }

    /// QEMU's arguments: disks with the labels `dom0`, its root, and `srv`, and a third one. Linux gives them their letters in any order. Nothing is written to them.
    pub fn disks(&self, third: &Path) -> Vec<String> {
        let files = [
            self.dir.join("dom0.img"),
            self.dir.join("srv.img"),
            third.into(),
        ];
        let disk = |file: &PathBuf| {
            let drive = format!("file={},if=ide,format=raw,snapshot=on", file.display());
            ["-drive".to_owned(), drive]
        };
        files.iter().flat_map(disk).collect()
    }
}

/// A file system in a file, with what is in `dir`.
pub fn make_disk(dir: &Path, out: &Path, label: &str, size: &str) -> Result<()> {
    let part = out.with_extension("part");
    // A file that is there keeps its size.
    let _ = fs::remove_file(&part);
    let [dir, file] = [dir, &part].map(|p| p.display().to_string());
    let args = ["-q", "-F", "-L", label, "-d", &dir, &file, size];
    exec::step(&format!("disk {label}"), exec::command("mkfs.ext4", args))?;
    fs::rename(&part, out).with_context(|| format!("cannot write {}", out.display()))
}

/// Makes the directory in the cache.
fn make() -> Result<()> {
    let dir = paths::cache().join("installed");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    let srv = dir.join("srv");
    fs::create_dir_all(&srv).with_context(|| format!("cannot create {}", srv.display()))?;
    let debootstrap = fetch::tree("debootstrap")?;
    let commands = guide()?;
    let run = |what: &str, script: &str| {
        let mut shell = exec::command("sh", ["-e", "-c", script]);
        let program = debootstrap.join("usr/sbin");
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .current_dir(&srv)
            .env(
                "PATH",
                format!("{}:{path}:/usr/sbin:/sbin", program.display()),
            )
            .env("DEBOOTSTRAP_DIR", debootstrap.join("usr/share/debootstrap"))
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        exec::step(what, shell).map(drop)
    };
    run("a Debian 12 by the guide's commands", &commands)?;
    // The same as dom0: another name, a bridge in place of the card, and patience for an emulator on a busy host, where the first
    // boot takes longer than systemd waits for a device.
    let as_dom0 = format!(
        "chroot {NAME} apt-get install -q -y bridge-utils
        echo dom0 >{NAME}/etc/hostname
        echo 'LABEL=dom0 / ext4 errors=remount-ro 0 1' >{NAME}/etc/fstab
        echo 'LABEL=srv /srv ext4 defaults 0 2' >>{NAME}/etc/fstab
        mkdir -p {NAME}/etc/systemd/system.conf.d
        printf '[Manager]\\nDefaultDeviceTimeoutSec=1h\\nDefaultTimeoutStartSec=1h\\n' >{NAME}/etc/systemd/system.conf.d/patience.conf
        rm {NAME}/etc/network/interfaces.d/*"
    );
    run("the same as dom0", &as_dom0)?;
    for (name, from) in [("vmlinuz", "web.vmlinuz"), ("initrd", "web.initrd")] {
        let copied = fs::copy(srv.join(from), dir.join(name));
        copied.with_context(|| format!("the guide's commands leave no {from}"))?;
    }
    let root = srv.join(NAME);
    make_disk(&root, &dir.join("dom0.img"), "dom0", "4G")?;
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    make_disk(&srv, &dir.join("srv.img"), "srv", "8G")?;
    fs::remove_dir_all(&srv).with_context(|| format!("cannot remove {}", srv.display()))?;
    fs::write(dir.join("commands"), commands).context("cannot write to the cache")
}

/// The first commands below the heading.
fn guide() -> Result<String> {
    let path = paths::root().join(GUIDE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {GUIDE}"))?;
    commands(&text).with_context(|| format!("{GUIDE} has no commands below `{HEADING}`"))
}

fn commands(text: &str) -> Option<String> {
    let (_, section) = text.split_once(&format!("\n{HEADING}"))?;
    let (_, block) = section.split_once("\n```sh\n")?;
    let (block, _) = block.split_once("\n```")?;
    Some(format!("{block}\n"))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/sbin"]);
    dirs.map(Path::new).any(|d| d.join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_commands_that_leave_what_is_needed() {
        let commands = guide().unwrap();
        assert!(commands.starts_with("debootstrap "), "{commands}");
        for made in ["web.img", "web.vmlinuz", "web.initrd"] {
            assert!(commands.contains(made), "{made} is not made");
        }
        assert_eq!(self::commands("\n## 4.\n```sh\nx\n```\n"), None);
    }
}
