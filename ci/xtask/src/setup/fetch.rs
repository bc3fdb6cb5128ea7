//! Fills the cache: Debian's kernels, a static busybox, the peer hypervisor. See `ci/images.toml`.
//!
//! Packages come by `apt-get download`, which checks Debian's signatures, and are only unpacked into the cache:
//! nothing of them is installed on this machine.

use super::suite::{self, Suite};
use super::{apt, modules};
use crate::{exec, ui};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use vmtest::{kernels, paths};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Images {
    kernel: Vec<Kernel>,
    file: Vec<SingleFile>,
    tree: Vec<Tree>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kernel {
    series: String,
    package: String,
    version: String,
    sha256: String,
    /// Further packages of a kernel that Debian has split, of the same version.
    #[serde(default)]
    more: Vec<String>,
    /// The package that depends on the series' newest kernel.
    meta: String,
    /// Debian release that it comes from, if not this machine's.
    suite: Option<String>,
    /// Fetched only by what asks for it.
    #[serde(default)]
    on_demand: bool,
    #[allow(dead_code, reason = "for people; every image states its licence")]
    licence: String,
}

/// One file out of a package.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SingleFile {
    name: String,
    package: String,
    path: String,
    #[allow(dead_code, reason = "for people; every image states its licence")]
    licence: String,
}

/// Several packages unpacked into one directory. Fetched only by what needs it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    name: String,
    /// Each a package, or alternatives with `|` between them.
    packages: Vec<String>,
    /// What of them goes into a RAM disk: directories (with a slash at the end) or the beginnings of paths.
    #[serde(default)]
    keep: Vec<String>,
    /// Debian release from which they come together with all that they depend on; else apt's own, without that.
    suite: Option<String>,
    #[allow(dead_code, reason = "for people; every image states its licence")]
    licence: String,
}

/// File in a tree of the cache that says of which packages it was made.
const STAMP: &str = ".packages";

fn images() -> Result<Images> {
    let path = paths::root().join("ci/images.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is malformed", path.display()))
}

/// The kernel series that `ci/images.toml` names, without those that are fetched on demand.
pub fn series() -> Result<Vec<String>> {
    let always = images()?.kernel.into_iter().filter(|k| !k.on_demand);
    Ok(always.map(|k| k.series).collect())
}

/// Every kernel that `ci/images.toml` names, fetched.
pub fn all_kernels() -> Result<Vec<kernels::Kernel>> {
    let fetched = images()?.kernel.into_iter().map(|wanted| {
        ensure_kernel(&wanted).with_context(|| format!("Debian kernel {}", wanted.series))?;
        kernels::Kernel::find(&wanted.series)
    });
    fetched.collect()
}

/// Empties the cache.
pub fn forget() -> Result<()> {
    let trees = images()?.tree.into_iter().map(|t| t.name);
    let parts = ["kernels", "busybox", "peer", "debs", "installed"].map(String::from);
    for part in trees.chain(parts) {
        let dir = paths::cache().join(part);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
    }
    Ok(())
}

/// Fetches what the cache lacks.
pub fn ensure() -> Result<()> {
    let images = images()?;
    for kernel in images.kernel.iter().filter(|k| !k.on_demand) {
        ensure_kernel(kernel).with_context(|| format!("Debian kernel {}", kernel.series))?;
    }
    for file in &images.file {
        ensure_file(file).with_context(|| format!("package {}", file.package))?;
    }
    Ok(())
}

/// The directory into which the packages of a tree are unpacked.
pub fn tree(name: &str) -> Result<PathBuf> {
    Ok(kept_tree(name)?.0)
}

/// The same, and what of it goes into a RAM disk.
pub fn kept_tree(name: &str) -> Result<(PathBuf, Vec<String>)> {
    let images = images()?;
    let wanted = images.tree.into_iter().find(|t| t.name == name);
    let wanted = wanted.with_context(|| format!("ci/images.toml has no tree {name}"))?;
    let place = paths::cache().join(name);
    let stamp = wanted.packages.join(" ");
    let _alone = alone(name)?;
    if fs::read_to_string(place.join(STAMP)).is_ok_and(|s| s == stamp) {
        return Ok((place, wanted.keep));
    }
    let part = place.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    if let Some(suite) = &wanted.suite {
        suite::fetch(suite, &wanted.packages, &part)?;
    } else {
        for package in &wanted.packages {
            let known = |p: &&str| exec::first_line("apt-cache", &["show", p]).is_some();
            let package = package.split('|').find(known).unwrap_or(package);
            let deb = download(package, None, None)?;
            unpack_into(&deb, &part)?;
        }
    }
    fs::write(part.join(STAMP), stamp)?;
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::rename(&part, &place)?;
    Ok((place, wanted.keep))
}

/// Waits until nobody else, here or in another run, makes this part of the cache: two that unpack into one directory leave half
/// of it. Held while the file lives.
fn alone(part: &str) -> Result<fs::File> {
    let dir = paths::cache();
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{part}.lock"));
    let file =
        fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

fn ensure_kernel(wanted: &Kernel) -> Result<()> {
    let dir = kernels::dir(&wanted.series);
    let _alone = alone(&wanted.series)?;
    // Changes when the entry or the list of modules changes; written last, so half a job counts as none.
    let first = std::slice::from_ref(&wanted.package);
    let packages = [first, &wanted.more].concat();
    let stamp = format!(
        "{} {} {}\n{}\n",
        packages.join(" "),
        wanted.version,
        wanted.sha256,
        modules::WANTED.join(" ")
    );
    if fs::read_to_string(dir.join("made-from")).is_ok_and(|s| s == stamp) {
        return Ok(());
    }
    let from = wanted.suite.as_deref().map(Suite::open).transpose()?;
    let from = from.as_ref();
    let (deb, more) = match download(&wanted.package, Some(&wanted.version), from) {
        Ok(deb) => {
            let digest = sha256(&deb)?;
            if digest != wanted.sha256 {
                fs::remove_file(&deb)?;
                bail!(
                    "{} has digest {digest}, ci/images.toml says {}",
                    deb.display(),
                    wanted.sha256
                );
            }
            (deb, wanted.more.clone())
        }
        Err(gone) => {
            let (package, more) = newest(wanted, from).with_context(|| format!("{gone:#}"))?;
            ui::say(&format!(
                "Debian no longer serves {} {}: taking {package}",
                wanted.package, wanted.version
            ));
            (download(&package, None, from)?, more)
        }
    };
    let more: Vec<PathBuf> = more
        .iter()
        .map(|package| download(package, None, from))
        .collect::<Result<_>>()?;
    let step = ui::step(&format!("unpack kernel {}", wanted.series));
    let unpacked = unpack(&deb)?;
    for deb in &more {
        unpack_into(deb, &unpacked)?;
    }
    // Another run may be reading from the same cache: each part is made beside the old one and put in its place.
    let new = dir.join("new");
    if new.exists() {
        fs::remove_dir_all(&new)?;
    }
    fs::create_dir_all(new.join("modules"))?;
    let tree = only_entry(&unpacked.join("lib/modules"))
        .or_else(|_| only_entry(&unpacked.join("usr/lib/modules")))?;
    let release = tree
        .file_name()
        .context("no release")?
        .to_string_lossy()
        .into_owned();
    let image = unpacked.join(format!("boot/vmlinuz-{release}"));
    // Debian 13's newer ones lie beside their modules.
    let image = if image.exists() {
        image
    } else {
        tree.join("vmlinuz")
    };
    fs::copy(&image, new.join("vmlinuz"))
        .with_context(|| format!("no {} in the package", image.display()))?;
    // The flavour for clouds has no drivers of real machines; the kernels that every test needs must have all.
    let count = modules::collect(&tree, &new.join("modules"), wanted.on_demand)?;
    fs::write(new.join("release"), format!("{release}\n"))?;
    fs::write(
        new.join("sha256"),
        format!("{}  {}\n", sha256(&deb)?, deb.display()),
    )?;
    let old = dir.join("modules");
    if old.exists() {
        fs::rename(&old, new.join("old"))?;
    }
    for part in ["modules", "vmlinuz", "release", "sha256"] {
        fs::rename(new.join(part), dir.join(part))?;
    }
    fs::write(dir.join("made-from"), stamp)?;
    fs::remove_dir_all(&new)?;
    fs::remove_dir_all(&unpacked)?;
    step.end("ok", &format!("{release}, {count} modules"));
    Ok(())
}

fn ensure_file(wanted: &SingleFile) -> Result<()> {
    let dir = paths::cache().join(&wanted.name);
    let base = if wanted.name == "peer" {
        "xen.gz"
    } else {
        &wanted.name
    };
    let place = dir.join(base);
    if place.exists() {
        return Ok(());
    }
    let _alone = alone(&wanted.name)?;
    if place.exists() {
        return Ok(());
    }
    let deb = download(&wanted.package, None, None)?;
    let unpacked = unpack(&deb)?;
    fs::create_dir_all(&dir)?;
    let source = [&wanted.path, &format!("usr/{}", wanted.path)]
        .map(|p| unpacked.join(p))
        .into_iter()
        .find(|p| p.exists());
    let source = source.with_context(|| format!("{} is not in {}", wanted.path, deb.display()))?;
    let part = dir.join("part");
    fs::copy(&source, &part)?;
    fs::write(
        dir.join("sha256"),
        format!("{}  {}\n", sha256(&deb)?, deb.display()),
    )?;
    fs::rename(&part, &place)?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// `apt-get download` into the cache, of this machine's release or another; the path of the package.
fn download(package: &str, version: Option<&str>, from: Option<&Suite>) -> Result<PathBuf> {
    let dir = paths::cache().join("debs").join(package);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    if let Ok(deb) = only_entry(&dir) {
        return Ok(deb);
    }
    let spec = version.map_or(package.to_owned(), |v| format!("{package}={v}"));
    let get = || {
        // apt's own download user may not enter a home directory; as root apt then says so and goes on.
        let args = ["download", "-q", &spec];
        let mut command = match from {
            Some(suite) => suite.apt("apt-get", &args),
            None => exec::command("apt-get", args),
        };
        command.current_dir(&dir).env("LC_ALL", "C");
        let step = ui::step(&format!("fetch {spec}"));
        let output = exec::collect(command, |line| step.detail(line))?;
        step.end(if output.ok { "ok" } else { "no" }, "");
        Ok::<_, anyhow::Error>(output)
    };
    let mut output = get()?;
    if !output.ok && from.is_none() {
        if version.is_some_and(|v| v.contains("~bpo12")) {
            apt::ensure_backports()?;
        }
        if apt::update().is_ok() {
            output = get()?;
        }
    }
    if !output.ok {
        let reason = output
            .lines
            .iter()
            .find(|l| l.starts_with("E:"))
            .cloned()
            .unwrap_or_default();
        bail!(
            "`apt-get download {spec}` failed: {reason} (no network, or `apt-get update` is due)"
        );
    }
    only_entry(&dir)
}

/// The newest kernel package of a series that apt knows, and its further parts.
fn newest(wanted: &Kernel, from: Option<&Suite>) -> Result<(String, Vec<String>)> {
    let text = |args: &[&str]| {
        let output = match from {
            Some(suite) => exec::collect(suite.apt("apt-cache", args), |_| {}),
            None => exec::collect(exec::command("apt-cache", args), |_| {}),
        };
        output.map(|o| o.lines).unwrap_or_default()
    };
    let table = text(&["madison", &wanted.meta]);
    // Of another release there is one version.
    let prefix = match from {
        Some(_) => String::new(),
        None => {
            let number = wanted.series.split('-').next().unwrap_or_default();
            format!("{number}.")
        }
    };
    let version = table
        .iter()
        .filter_map(|l| l.split('|').nth(1))
        .map(str::trim)
        .find(|v| v.starts_with(&prefix));
    let version = version.with_context(|| {
        format!(
            "Debian {} has no kernel {} in apt's lists; is the network there?",
            wanted.suite.clone().unwrap_or_else(apt::codename),
            wanted.series
        )
    })?;
    let record = text(&["show", &format!("{}={version}", wanted.meta)]);
    let depends = record
        .iter()
        .find_map(|l| l.strip_prefix("Depends: "))
        .unwrap_or_default();
    let package = depends
        .split([',', ' '])
        .find(|w| w.starts_with("linux-image-"))
        .with_context(|| format!("{} {version} names no kernel package", wanted.meta))?;
    // A split kernel's packages have the release in common: linux-binary-RELEASE, linux-modules-RELEASE.
    let release = |name: &str| name.splitn(3, '-').nth(2).unwrap_or_default().to_owned();
    let (old, new) = (release(&wanted.package), release(package));
    let part = |name: &String| name.replace(&old, &new);
    let more = wanted.more.iter().map(part).collect();
    Ok((part(&wanted.package), more))
}

fn unpack(deb: &Path) -> Result<PathBuf> {
    let dir = deb
        .parent()
        .context("a package lies in a directory")?
        .with_extension("unpacked");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    unpack_into(deb, &dir)?;
    Ok(dir)
}

pub(super) fn unpack_into(deb: &Path, dir: &Path) -> Result<()> {
    let mut command = exec::command("dpkg-deb", ["-x"]);
    command.arg(deb).arg(dir);
    let output = exec::collect(command, |_| {})?;
    if !output.ok {
        bail!(
            "cannot unpack {}: {}; remove it and try again",
            deb.display(),
            output.tail()
        );
    }
    Ok(())
}

fn only_entry(dir: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(dir)
        .with_context(|| format!("cannot list {}", dir.display()))?
        .next();
    Ok(entry
        .with_context(|| format!("{} is empty", dir.display()))??
        .path())
}

fn sha256(file: &Path) -> Result<String> {
    let name = file.display().to_string();
    // sha256sum starts the line with a backslash when the name needed escapes; our names may hold `%3a` only.
    let line = exec::first_line("sha256sum", &[&name])
        .with_context(|| format!("sha256sum {name} failed"))?;
    Ok(line
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}
