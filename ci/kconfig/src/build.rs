//! What a build script does: finds the configuration, and hands it to the compiler.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::dotconfig::DotConfig;
use crate::eval::Config;
use crate::model::{Tree, Type};
use crate::{Problem, list};

/// Where the choices are.
#[derive(Clone, Debug)]
pub struct Located {
    /// Root of the source tree.
    pub root: PathBuf,
    /// The Kconfig file.
    pub kconfig: PathBuf,
    /// Directory of the defconfigs and of `.config`.
    pub configs: PathBuf,
    /// The `.config` in force; it need not exist.
    pub dotconfig: PathBuf,
}

/// Finds the files of the source tree around `from`. `KCONFIG_CONFIG` names another `.config`, relative to the root of the
/// tree.
pub fn locate(from: &Path) -> Option<Located> {
    let root = from
        .ancestors()
        .find(|dir| dir.join("hypervisor/Kconfig").is_file())?;
    let configs = root.join("hypervisor/configs");
    let dotconfig = match env::var_os("KCONFIG_CONFIG").filter(|v| !v.is_empty()) {
        Some(path) => root.join(path),
        None => configs.join(".config"),
    };
    Some(Located {
        root: root.to_owned(),
        kconfig: root.join("hypervisor/Kconfig"),
        configs,
        dotconfig,
    })
}

impl Located {
    /// The symbols.
    pub fn tree(&self) -> Result<Tree, Problem> {
        Tree::load(&self.kconfig).map_err(|p| Problem {
            file: format!("hypervisor/{}", p.file),
            ..p
        })
    }

    /// The lines of `.config`, and the wrong ones; none at all if there is no such file and the default one is meant.
    pub fn settings(&self) -> (DotConfig, Vec<Problem>) {
        let name = self.dotconfig.strip_prefix(&self.root);
        let name = name.unwrap_or(&self.dotconfig).display().to_string();
        if !self.dotconfig.exists() && self.dotconfig == self.configs.join(".config") {
            return (DotConfig::default(), Vec::new());
        }
        match fs::read_to_string(&self.dotconfig) {
            Ok(text) => DotConfig::parse(&name, &text),
            Err(error) => {
                let problem = Problem {
                    file: name,
                    line: 0,
                    text: format!("cannot read it: {error}"),
                };
                (DotConfig::default(), vec![problem])
            }
        }
    }
}

/// Gives the crate that is being built its configuration: a cfg `CONFIG_NAME` for each symbol that is `y` (all of them
/// checked), `$OUT_DIR/config.rs` with the numbers and texts as constants, and `$OUT_DIR/config.gz`, the whole
/// configuration. A wrong configuration ends a build for bare metal with one line per problem; a build for the host goes on
/// without the lines that cannot be followed, and warns.
pub fn build_script() {
    if let Err(problems) = run() {
        for line in list(&problems).lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn run() -> Result<(), Vec<Problem>> {
    let whole = |text: &str| {
        vec![Problem {
            file: "build script".into(),
            line: 0,
            text: text.into(),
        }]
    };
    let dir = |name| env::var_os(name).map(PathBuf::from);
    let from = dir("CARGO_MANIFEST_DIR").ok_or_else(|| whole("Cargo sets no directory"))?;
    let out = dir("OUT_DIR").ok_or_else(|| whole("Cargo sets no OUT_DIR"))?;
    let at = locate(&from).ok_or_else(|| whole("there is no hypervisor/Kconfig"))?;
    println!("cargo::rerun-if-env-changed=KCONFIG_CONFIG");
    println!("cargo::rerun-if-changed={}", at.kconfig.display());
    // The directory, because a file that does not exist yet cannot be watched.
    println!("cargo::rerun-if-changed={}", at.configs.display());
    if at.dotconfig.exists() {
        println!("cargo::rerun-if-changed={}", at.dotconfig.display());
    }
    let tree = at.tree().map_err(|p| vec![p])?;
    let (settings, mut problems) = at.settings();
    let (config, more) = Config::new(&tree, &settings);
    problems.extend(more);
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        if !problems.is_empty() {
            return Err(problems);
        }
    } else {
        // The tools that mend the configuration are built for the host and must not fail because of it.
        for problem in &problems {
            println!("cargo::warning={problem}");
        }
    }
    cfgs(&config).iter().for_each(|line| println!("{line}"));
    let gz =
        gzip_stored(config.full().as_bytes()).ok_or_else(|| whole("it is longer than 64 KiB"))?;
    let write = |name: &str, bytes: &[u8]| {
        fs::write(out.join(name), bytes).map_err(|e| whole(&format!("cannot write {name}: {e}")))
    };
    write("config.rs", constants(&config).as_bytes())?;
    write("config.gz", &gz)
}

/// The lines that tell Cargo the cfgs.
pub(crate) fn cfgs(config: &Config<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, s) in config.tree.symbols.iter().enumerate() {
        if s.ty == Type::Bool {
            lines.push(format!("cargo::rustc-check-cfg=cfg(CONFIG_{})", s.name));
            if config.value(index) == "y" {
                lines.push(format!("cargo::rustc-cfg=CONFIG_{}", s.name));
            }
        }
    }
    lines
}

/// The numbers and texts, as Rust constants.
pub(crate) fn constants(config: &Config<'_>) -> String {
    let mut out = String::new();
    for (index, s) in config.tree.symbols.iter().enumerate() {
        let value = config.value(index);
        let (ty, value) = match s.ty {
            Type::Bool => continue,
            Type::Int => ("u32", value.to_owned()),
            Type::Hex => ("u64", value.to_owned()),
            Type::String => ("&str", format!("{value:?}")),
        };
        let about = s.prompt.as_ref().map_or("", |p| &p.value);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "/// `CONFIG_{0}`: {about}.\npub const {0}: {ty} = {value};",
            s.name
        );
    }
    out
}

/// `text` as a gzip file (RFC 1952) that stores it in one piece, uncompressed (RFC 1951, 3.2.4): any reader of gzip takes
/// it, and the text can be had without one. `None` if it is too long for one piece.
pub fn gzip_stored(text: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(text.len()).ok()?;
    // Magic, deflate, no flags, no time, no hints, system unknown; then one last block, stored.
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    out.extend(len.to_le_bytes());
    out.extend((!len).to_le_bytes());
    out.extend(text);
    let mut crc = !0u32;
    for byte in text {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 };
        }
    }
    out.extend((!crc).to_le_bytes());
    out.extend(u32::from(len).to_le_bytes());
    Some(out)
}
