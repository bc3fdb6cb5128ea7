//! `cargo xtask menuconfig`, `defconfig`, `olddefconfig`, `savedefconfig`: the build's choices.

mod menu;
mod screen;

use crate::ui;
use anyhow::{Context, Result, bail};
use kconfig::{Config, DotConfig, Located, Problem, Tree};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use vmtest::paths;

/// Options of `defconfig`.
#[derive(clap::Args)]
pub struct Name {
    /// Which one; `cargo xtask defconfig list` names them.
    #[arg(default_value = "default")]
    name: String,
}

/// Options of `savedefconfig`.
#[derive(clap::Args)]
pub struct Save {
    /// Keep it under this name; else it is printed.
    name: Option<String>,
}

fn located() -> Result<Located> {
    kconfig::locate(&paths::root()).context("there is no hypervisor/Kconfig")
}

fn tree(at: &Located) -> Result<Tree> {
    at.tree().map_err(|p| anyhow::anyhow!("{p}"))
}

/// The file of the configuration called `name`.
pub fn defconfig_file(name: &str) -> PathBuf {
    paths::root().join(format!("hypervisor/configs/{name}_defconfig"))
}

/// The names of all of them.
pub fn names() -> Result<Vec<String>> {
    let dir = paths::root().join("hypervisor/configs");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix("_defconfig").map(String::from));
    }
    names.sort();
    Ok(names)
}

/// No problems, or an error with a line for each.
fn no(problems: Vec<Problem>) -> Result<()> {
    match problems.len() {
        0 => Ok(()),
        1 => bail!("{}", problems[0]),
        n => bail!("{n} mistakes:\n{}", kconfig::list(&problems)),
    }
}

/// Values by the file, which must be right.
fn strict<'a>(tree: &'a Tree, file: &Path) -> Result<Config<'a>> {
    let name = file.strip_prefix(paths::root()).unwrap_or(file).display();
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let (set, mut problems) = DotConfig::parse(&name.to_string(), &text);
    let (config, more) = Config::new(tree, &set);
    problems.extend(more);
    no(problems)?;
    Ok(config)
}

/// A build's configuration.
pub struct Chosen {
    /// Its file; `None` if there is none and the defaults are built.
    pub file: Option<PathBuf>,
    /// `CONFIG_DEBUG`.
    pub debug: bool,
}

/// What a build will take: `file`, else `.config`, else the defaults. A wrong file is an error with its lines.
pub fn chosen(file: Option<&Path>) -> Result<Chosen> {
    let at = located()?;
    let tree = tree(&at)?;
    let file = match file {
        Some(file) => Some(file.to_owned()),
        None if at.dotconfig.exists() || std::env::var_os("KCONFIG_CONFIG").is_some() => {
            Some(at.dotconfig.clone())
        }
        None => None,
    };
    let debug = match &file {
        Some(file) => strict(&tree, file)?.get("DEBUG") == Some("y"),
        None => Config::new(&tree, &DotConfig::default()).0.get("DEBUG") == Some("y"),
    };
    Ok(Chosen { file, debug })
}

/// Whether the named configuration is right and has no line too many; else what it should be.
pub fn check_minimal(name: &str) -> Result<(), String> {
    let check = || {
        let at = located()?;
        let tree = tree(&at)?;
        let file = defconfig_file(name);
        let minimal = strict(&tree, &file)?.minimal();
        if fs::read_to_string(&file)? != minimal {
            bail!("{} should be:\n{minimal}", file.display());
        }
        Ok(())
    };
    check().map_err(|e: anyhow::Error| format!("{e:#}"))
}

fn write(at: &Located, config: &Config<'_>) -> Result<()> {
    fs::write(&at.dotconfig, config.full())
        .with_context(|| format!("cannot write {}", at.dotconfig.display()))?;
    ui::say(&format!("{}: written", at.dotconfig.display()));
    Ok(())
}

/// Starts from a named configuration.
pub fn defconfig(args: &Name) -> Result<()> {
    let names = names()?;
    if args.name == "list" {
        names.iter().for_each(|n| println!("{n}"));
        return Ok(());
    }
    if !names.contains(&args.name) {
        bail!(
            "no configuration {}; there are: {}",
            args.name,
            names.join(", ")
        );
    }
    let at = located()?;
    let tree = tree(&at)?;
    let config = strict(&tree, &defconfig_file(&args.name))?;
    write(&at, &config)
}

/// The current values, with what could not be followed said and dropped.
fn current<'a>(at: &Located, tree: &'a Tree) -> Config<'a> {
    let (set, mut problems) = at.settings();
    let (config, more) = Config::new(tree, &set);
    problems.extend(more);
    for problem in problems {
        ui::say(&format!("{problem}; dropped"));
    }
    Config::new(tree, &config.settings()).0
}

/// Brings `.config` up to date.
pub fn old() -> Result<()> {
    let at = located()?;
    let tree = tree(&at)?;
    write(&at, &current(&at, &tree))
}

/// Prints or keeps the fewest lines.
pub fn save(args: &Save) -> Result<()> {
    let at = located()?;
    let tree = tree(&at)?;
    let (set, mut problems) = at.settings();
    let (config, more) = Config::new(&tree, &set);
    problems.extend(more);
    no(problems)?;
    match &args.name {
        None => print!("{}", config.minimal()),
        Some(name) => {
            let file = defconfig_file(name);
            fs::write(&file, config.minimal())
                .with_context(|| format!("cannot write {}", file.display()))?;
            ui::say(&format!("{}: written", file.display()));
        }
    }
    Ok(())
}

/// Lets the person at the terminal choose; false if nothing was kept.
pub fn menu() -> Result<bool> {
    let at = located()?;
    let tree = tree(&at)?;
    let mut menu = menu::Menu::new(&tree, current(&at, &tree));
    let kept = if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        screen::run(&mut menu)?
    } else {
        menu::by_lines(&mut menu, std::io::stdin().lock(), std::io::stdout())?
    };
    if kept {
        write(&at, &menu.config)?;
    } else {
        ui::say("nothing was changed");
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Tree {
        tree(&located().expect("the file is there")).expect("the file is right")
    }

    fn page() -> String {
        let path = paths::root().join("docs/guide/build-configuration.md");
        fs::read_to_string(path).expect("the page is there")
    }

    #[test]
    fn every_symbol_is_explained_and_is_on_the_page() {
        let page = page();
        let rows: Vec<&str> = page.lines().filter(|l| l.starts_with("| `")).collect();
        for s in ours().symbols {
            assert!(
                s.prompt.is_none() || s.help.len() > 40 || s.choice.is_some(),
                "{}",
                s.name
            );
            let cell = format!("`{}`", s.name);
            assert!(rows.iter().any(|r| r.contains(&cell)), "{}", s.name);
        }
    }

    #[test]
    fn every_symbol_is_obeyed_by_the_code() {
        // PV keeps a place; of a choice, one member is what is left if it is none of the others.
        const LEFT: &[&str] = &["PV", "X2APIC_MIXED", "SCHED_CREDIT2_DEFAULT"];
        let code: Vec<String> = crate::source::files()
            .expect("readable")
            .into_iter()
            .filter(|f| f.path.starts_with("hypervisor/") && f.path.contains("/src/"))
            .map(|f| f.code())
            .collect();
        let has = |name: &str| {
            let ends = |text: &str, at: usize| {
                let next = text[at..].chars().next();
                !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            code.iter().any(|text| {
                [format!("CONFIG_{name}"), format!("config::{name}")]
                    .iter()
                    .any(|word| {
                        text.match_indices(word.as_str())
                            .any(|(at, w)| ends(text, at + w.len()))
                    })
            })
        };
        for s in ours().symbols {
            assert_eq!(has(&s.name), !LEFT.contains(&s.name.as_str()), "{}", s.name);
        }
    }

    #[test]
    fn every_named_configuration_is_right_minimal_and_on_the_page() {
        let page = page();
        for name in names().expect("the directory is there") {
            check_minimal(&name).expect("right");
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn what_is_not_built_yet_cannot_be_turned_on() {
        let tree = ours();
        let (set, _) = DotConfig::parse(".config", "CONFIG_PV=y\n");
        let (config, problems) = Config::new(&tree, &set);
        assert_eq!(config.get("PV"), Some("n"));
        assert_eq!(
            kconfig::list(&problems),
            ".config:1: CONFIG_PV=y, but it depends on `n`"
        );
        let pv = tree.find("PV").expect("it keeps the place");
        assert!(
            tree.symbols[pv]
                .prompt
                .as_ref()
                .is_some_and(|p| p.value.contains("nothing is built yet"))
        );
    }
}
