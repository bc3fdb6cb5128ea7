//! Programs from another Debian release than this machine's: fetched with all their libraries by an apt that has its lists and
//! its state in the cache, and only unpacked. apt checks Debian's signatures with the keys of this machine.

use super::fetch::unpack_into;
use crate::{exec, ui};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vmtest::paths;

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt that knows one release.
pub struct Suite {
    dir: PathBuf,
}

impl Suite {
    /// Fetches the lists of a release.
    pub fn open(name: &str) -> Result<Self> {
        if !Path::new(KEYS).exists() {
            bail!("Debian's keys are missing: run `apt-get install debian-archive-keyring`");
        }
        let dir = paths::cache().join("suites").join(name);
        for part in ["lists/partial", "archives/partial", "sources.list.d"] {
            fs::create_dir_all(dir.join(part))
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        fs::write(dir.join("status"), "")?;
        fs::write(
            dir.join("sources.list"),
            format!("deb [signed-by={KEYS}] http://deb.debian.org/debian {name} main\n"),
        )?;
        fs::write(dir.join("apt.conf"), config(&dir))?;
        let suite = Self { dir };
        let update = exec::step(
            &format!("package lists of Debian {name}"),
            suite.apt("apt-get", &["update", "-q"]),
        );
        update.context("the network is needed once, to fetch them")?;
        Ok(suite)
    }

    /// One of apt's programs.
    pub fn apt(&self, program: &str, args: &[&str]) -> Command {
        let mut command = exec::command(program, args);
        command
            .env("APT_CONFIG", self.dir.join("apt.conf"))
            .env("LC_ALL", "C");
        command
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        // What is left behind is used by the next one.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Unpacks `packages` of `suite`, and what they depend on, into `to`.
pub fn fetch(suite: &str, packages: &[String], to: &Path) -> Result<()> {
    let suite = Suite::open(suite)?;
    let mut install = vec!["install", "-y", "-q", "--download-only"];
    install.extend(packages.iter().map(String::as_str));
    exec::step(
        &format!("fetch {}", packages.join(" ")),
        suite.apt("apt-get", &install),
    )?;
    let step = ui::step(&format!("unpack {}", packages.join(" ")));
    let mut count = 0;
    for entry in fs::read_dir(suite.dir.join("archives"))? {
        let deb = entry?.path();
        if deb.extension().is_some_and(|e| e == "deb") {
            unpack_into(&deb, to)?;
            count += 1;
        }
    }
    step.end("ok", &format!("{count} packages"));
    Ok(())
}

/// Nothing of this machine's state is read or changed.
fn config(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "Dir::State \"{dir}\";\nDir::State::status \"{dir}/status\";\nDir::State::lists \"{dir}/lists\";\n\
         Dir::Cache \"{dir}\";\nDir::Cache::archives \"{dir}/archives\";\n\
         Dir::Etc::sourcelist \"{dir}/sources.list\";\nDir::Etc::sourceparts \"{dir}/sources.list.d\";\n\
         APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\nAPT::Install-Recommends \"false\";\n\
         Acquire::Languages \"none\";\nAPT::Sandbox::User \"root\";\n"
    )
}
