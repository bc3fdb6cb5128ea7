//! Named machines: `ci/machines/*.toml` say what an emulated computer is made of.

use crate::paths;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;

/// How the machine's firmware starts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// SeaBIOS, which QEMU brings along.
    Bios,
    /// OVMF.
    Efi,
}

/// What runs the machine.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Emulator {
    /// QEMU without KVM.
    #[default]
    Qemu,
    /// Bochs, which emulates Intel's VT-x.
    Bochs,
}

/// One machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// One line for people: what the machine is for.
    pub about: String,
    /// What runs it.
    #[serde(default)]
    pub emulator: Emulator,
    /// QEMU's `-machine`, or Bochs' chip set.
    pub machine: String,
    /// QEMU's `-cpu`, or Bochs' CPU model.
    pub cpu: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// QEMU's `-m`; for Bochs in MiB with an M.
    pub memory: String,
    /// Firmware.
    pub firmware: Firmware,
    /// More QEMU arguments; `{disk}` stands for the path of the test disk image, `{machines}` for that of the directory
    /// with the machine files. For Bochs: further lines of its configuration.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Seconds until a boot counts as hung, on an idle host.
    pub timeout: u64,
}

impl Machine {
    /// The machine called `name`.
    pub fn load(name: &str) -> Result<Self> {
        let path = paths::root()
            .join("ci/machines")
            .join(format!("{name}.toml"));
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no machine `{name}`: {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a machine file", path.display()))
    }

    /// The names of all machines.
    pub fn names() -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in
            fs::read_dir(paths::root().join("ci/machines")).context("ci/machines is missing")?
        {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".toml").map(String::from));
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_file_parses() {
        let names = Machine::names().expect("the directory is there");
        assert!(!names.is_empty());
        for name in names {
            let machine = Machine::load(&name).expect("parses");
            assert!(machine.cpus > 0 && machine.timeout > 0, "{name}");
        }
    }
}
