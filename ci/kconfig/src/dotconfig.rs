//! `.config` files and defconfigs: the lines that set symbols.

use std::fmt::Write;

use crate::eval::Config;
use crate::lex::quoted;
use crate::model::{Node, Tree, Type};
use crate::{Expr, Problem};

/// One line that sets a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Name, without `CONFIG_`.
    pub name: String,
    /// `y`, `n`, a number, or the text without its quotes.
    pub value: String,
    /// Line from 1.
    pub line: usize,
}

/// The lines of a file.
#[derive(Clone, Debug, Default)]
pub struct DotConfig {
    /// The file, for messages.
    pub file: String,
    /// What it sets, in order; no symbol twice.
    pub assignments: Vec<Assignment>,
}

impl DotConfig {
    /// Reads the text of the file called `file`. Wrong lines are problems; the others count.
    pub fn parse(file: &str, text: &str) -> (Self, Vec<Problem>) {
        let mut config = Self {
            file: file.to_owned(),
            assignments: Vec::new(),
        };
        let mut problems = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let parsed = match assignment(content.trim()) {
                Ok(None) => continue,
                Ok(Some((name, value))) => config.add(Assignment { name, value, line }),
                Err(text) => Err(text),
            };
            if let Err(text) = parsed {
                problems.push(Problem {
                    file: file.to_owned(),
                    line,
                    text,
                });
            }
        }
        (config, problems)
    }

    fn add(&mut self, new: Assignment) -> Result<(), String> {
        match self.get(&new.name) {
            Some(old) if old.value == new.value => Ok(()),
            Some(old) => Err(format!(
                "CONFIG_{}: line {} sets it to {} already",
                new.name, old.line, old.value
            )),
            None => {
                self.assignments.push(new);
                Ok(())
            }
        }
    }

    /// The line that sets `name`.
    pub fn get(&self, name: &str) -> Option<&Assignment> {
        self.assignments.iter().find(|a| a.name == name)
    }

    /// Sets or replaces one.
    pub fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.assignments.push(Assignment {
            name: name.to_owned(),
            value: value.to_owned(),
            line: 0,
        });
    }

    /// Leaves one to its default.
    pub fn unset(&mut self, name: &str) {
        self.assignments.retain(|a| a.name != name);
    }
}

/// The symbol and value of a line; `None` for a comment or an empty line.
fn assignment(line: &str) -> Result<Option<(String, String)>, String> {
    if let Some(comment) = line.strip_prefix('#') {
        let words: Vec<&str> = comment.split_whitespace().collect();
        return Ok(match words[..] {
            [name, "is", "not", "set"] => name
                .strip_prefix("CONFIG_")
                .map(|name| (name.to_owned(), "n".to_owned())),
            _ => None,
        });
    }
    if line.is_empty() {
        return Ok(None);
    }
    let Some((name, value)) = line.split_once('=') else {
        return Err(format!(
            "{line:?} is neither CONFIG_NAME=value nor a comment"
        ));
    };
    let Some(name) = name.strip_prefix("CONFIG_") else {
        return Err(format!("{name:?} does not start with CONFIG_"));
    };
    let value = match value.strip_prefix('"') {
        None => value.to_owned(),
        Some(rest) => match quoted(rest, '"')? {
            (text, "") => text,
            (_, extra) => return Err(format!("unexpected {extra:?} after the closing quote")),
        },
    };
    Ok(Some((name.to_owned(), value)))
}

/// The line that gives symbol `index` its value.
fn line(config: &Config<'_>, index: usize) -> String {
    let symbol = &config.tree.symbols[index];
    let (name, value) = (&symbol.name, config.value(index));
    match symbol.ty {
        Type::Bool if value == "n" => format!("# CONFIG_{name} is not set"),
        Type::String => {
            let text = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("CONFIG_{name}=\"{text}\"")
        }
        _ => format!("CONFIG_{name}={value}"),
    }
}

/// The whole configuration, as a `.config` file. Symbols whose dependencies are not met are left out.
pub fn full(config: &Config<'_>) -> String {
    let mut out = format!(
        "#\n# Written by cargo xtask; do not edit by hand unless you run `cargo xtask olddefconfig` afterwards.\n# {}\n#\n",
        config.tree.title
    );
    nodes(config, &config.tree.nodes, &mut out);
    out
}

fn nodes(config: &Config<'_>, list: &[Node], out: &mut String) {
    let put = |index: usize, out: &mut String| {
        if config.available(index) {
            out.push_str(&line(config, index));
            out.push('\n');
        }
    };
    for node in list {
        match node {
            Node::Symbol(index) => put(*index, out),
            Node::Choice(choice) => {
                let members = &config.tree.choices[*choice].members;
                members.iter().for_each(|m| put(*m, out));
            }
            Node::Comment(_) => {}
            Node::Menu(menu, inner) => {
                if config.is_true(&menu.depends) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\n#\n# {}\n#\n", menu.title);
                    nodes(config, inner, out);
                }
            }
        }
    }
}

/// The fewest lines that give the same configuration: a defconfig.
pub fn minimal(config: &Config<'_>) -> String {
    let tree: &Tree = config.tree;
    let mut kept = DotConfig::default();
    for (index, symbol) in tree.symbols.iter().enumerate() {
        // Of a choice, the member that is chosen says it all.
        let chosen = symbol.choice.is_none() || config.value(index) == "y";
        if config.visible(index) && chosen {
            kept.set(&symbol.name, config.value(index));
        }
    }
    for symbol in &tree.symbols {
        let mut fewer = kept.clone();
        fewer.unset(&symbol.name);
        let (without, _) = Config::new(tree, &fewer);
        if (0..tree.symbols.len()).all(|i| without.value(i) == config.value(i)) {
            kept = fewer;
        }
    }
    let lines = (0..tree.symbols.len())
        .filter(|i| kept.get(&tree.symbols[*i].name).is_some())
        .map(|i| line(config, i) + "\n");
    lines.collect()
}

/// An expression whose symbols carry their values: `HVM (=n) && AMD (=y)`.
pub fn explain(config: &Config<'_>, expr: &Expr) -> String {
    let mut names = Vec::new();
    expr.symbols(&mut |name| names.push(name.to_owned()));
    names.dedup();
    let values: Vec<String> = names
        .iter()
        .filter_map(|n| Some(format!("{n}={}", config.get(n)?)))
        .collect();
    match values.is_empty() {
        true => format!("`{expr}`"),
        false => format!("`{expr}`, and {}", values.join(", ")),
    }
}
