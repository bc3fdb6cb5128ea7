//! The menus of `menuconfig`, whatever shows them; and the plain form that reads lines.

use anyhow::Result;
use kconfig::{Config, Node, Tree, Type};
use std::io::{BufRead, Write};

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A symbol.
    Symbol(usize),
    /// A choice, whose members are a menu of their own.
    Choice(usize),
    /// The sub-menu at this place among the nodes.
    Menu(usize),
    /// Text only.
    Comment,
}

/// A row of the menu that is shown.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is shown.
    pub label: String,
    /// What it stands for.
    pub target: Target,
}

/// What choosing a row leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The rows may have changed.
    Shown,
    /// A value must be typed for this symbol.
    Ask(usize),
    /// It cannot be done, for this reason.
    Refused(String),
}

/// One step into the menus.
#[derive(Clone, Copy, Debug)]
enum Level {
    Menu(usize),
    Choice(usize),
}

/// The menus and where one is.
pub struct Menu<'a> {
    tree: &'a Tree,
    /// The values so far.
    pub config: Config<'a>,
    path: Vec<Level>,
}

impl<'a> Menu<'a> {
    /// At the main menu.
    pub fn new(tree: &'a Tree, config: Config<'a>) -> Self {
        Self {
            tree,
            config,
            path: Vec::new(),
        }
    }

    fn nodes(&self) -> &'a [Node] {
        let mut nodes = &self.tree.nodes[..];
        for level in &self.path {
            if let Level::Menu(at) = level
                && let Some(Node::Menu(_, inner)) = nodes.get(*at)
            {
                nodes = inner;
            }
        }
        nodes
    }

    /// Title of the menu that is shown.
    pub fn title(&self) -> String {
        let mut titles = vec![self.tree.title.as_str()];
        let mut nodes = &self.tree.nodes[..];
        for level in &self.path {
            match level {
                Level::Menu(at) => {
                    if let Some(Node::Menu(menu, inner)) = nodes.get(*at) {
                        titles.push(&menu.title);
                        nodes = inner;
                    }
                }
                Level::Choice(c) => titles.push(self.choice_title(*c)),
            }
        }
        titles.join(" > ")
    }

    fn choice_title(&self, choice: usize) -> &'a str {
        let prompt = self.tree.choices[choice].prompt.as_ref();
        prompt.map_or("", |p| p.value.as_str())
    }

    /// The rows that can be seen now.
    pub fn rows(&self) -> Vec<Row> {
        if let Some(Level::Choice(choice)) = self.path.last() {
            let members = self.tree.choices[*choice].members.iter();
            let offered = members.filter(|m| self.config.visible(**m));
            return offered.map(|m| self.symbol_row(*m)).collect();
        }
        let row = |(at, node): (usize, &Node)| match node {
            Node::Symbol(s) if self.config.visible(*s) => Some(self.symbol_row(*s)),
            Node::Choice(c) if self.config.choice_visible(*c) => {
                let members = self.tree.choices[*c].members.iter();
                let chosen = members.copied().find(|m| self.config.value(*m) == "y");
                let chosen = chosen.map_or("", |m| self.prompt(m));
                Some(Row {
                    label: format!("    {} ({chosen})  -->", self.choice_title(*c)),
                    target: Target::Choice(*c),
                })
            }
            Node::Menu(menu, _) if self.config.is_true(&menu.depends) => Some(Row {
                label: format!("    {}  --->", menu.title),
                target: Target::Menu(at),
            }),
            Node::Comment(comment) if self.config.is_true(&comment.depends) => Some(Row {
                label: format!("    *** {} ***", comment.title),
                target: Target::Comment,
            }),
            _ => None,
        };
        self.nodes().iter().enumerate().filter_map(row).collect()
    }

    fn prompt(&self, symbol: usize) -> &'a str {
        let prompt = self.tree.symbols[symbol].prompt.as_ref();
        prompt.map_or("", |p| p.value.as_str())
    }

    fn symbol_row(&self, index: usize) -> Row {
        let s = &self.tree.symbols[index];
        let value = self.config.value(index);
        let mark = match (s.ty, s.choice, value) {
            (Type::Bool, None, "y") => "[*]".into(),
            (Type::Bool, None, _) => "[ ]".into(),
            (Type::Bool, Some(_), "y") => "(X)".into(),
            (Type::Bool, Some(_), _) => "( )".into(),
            _ => format!("({value})"),
        };
        Row {
            label: format!("{mark} {}", self.prompt(index)),
            target: Target::Symbol(index),
        }
    }

    /// Chooses a row: opens, turns over, or asks for a value.
    pub fn choose(&mut self, row: &Row) -> Next {
        match row.target {
            Target::Menu(at) => self.path.push(Level::Menu(at)),
            Target::Choice(choice) => self.path.push(Level::Choice(choice)),
            Target::Comment => {}
            Target::Symbol(index) => {
                let s = &self.tree.symbols[index];
                if s.ty != Type::Bool {
                    return Next::Ask(index);
                }
                let on = s.choice.is_some() || self.config.value(index) == "n";
                if let Err(why) = self.set(index, if on { "y" } else { "n" }) {
                    return Next::Refused(why);
                }
                if s.choice.is_some() {
                    self.back();
                }
            }
        }
        Next::Shown
    }

    /// Gives a symbol its value, or says why not.
    pub fn set(&mut self, index: usize, value: &str) -> Result<(), String> {
        self.config = self.config.changed(index, value)?;
        Ok(())
    }

    /// To the menu above; false at the main menu.
    pub fn back(&mut self) -> bool {
        self.path.pop().is_some()
    }

    /// What is known about a row.
    pub fn help(&self, row: &Row) -> String {
        match row.target {
            Target::Symbol(index) => {
                let s = &self.tree.symbols[index];
                let range = match self.config.range(index) {
                    Some((low, high)) => format!("Range: {low} to {high}\n"),
                    None => String::new(),
                };
                let help = if s.help.is_empty() {
                    "No help."
                } else {
                    &s.help
                };
                format!(
                    "CONFIG_{} ({}), now {}\nDepends on: {}\n{range}\n{help}\n",
                    s.name,
                    s.ty.name(),
                    self.config.value(index),
                    s.depends
                )
            }
            Target::Choice(choice) => self.tree.choices[choice].help.clone() + "\n",
            Target::Menu(_) | Target::Comment => "A menu.\n".into(),
        }
    }

    /// Name of a symbol, for the question.
    pub fn name(&self, index: usize) -> String {
        format!(
            "{} (CONFIG_{})",
            self.prompt(index),
            self.tree.symbols[index].name
        )
    }
}

/// The plain form: rows with numbers, one command a line. True if the choices are to be kept.
pub fn by_lines(menu: &mut Menu<'_>, input: impl BufRead, mut out: impl Write) -> Result<bool> {
    let mut asked = None;
    let mut lines = input.lines();
    show(menu, &mut out)?;
    loop {
        write!(out, "> ")?;
        out.flush()?;
        let Some(line) = lines.next() else {
            writeln!(out, "\nThe input ended without `s`: nothing is kept.")?;
            return Ok(false);
        };
        let line = line?;
        if let Some(index) = asked.take() {
            if let Err(why) = menu.set(index, line.trim()) {
                writeln!(out, "{why}")?;
            }
            show(menu, &mut out)?;
            continue;
        }
        let rows = menu.rows();
        let row = |text: &str| {
            text.parse::<usize>()
                .ok()
                .and_then(|n| rows.get(n.checked_sub(1)?))
        };
        match line.trim() {
            "s" => return Ok(true),
            "q" => return Ok(false),
            "b" => {
                menu.back();
                show(menu, &mut out)?;
            }
            "" => show(menu, &mut out)?,
            text => match (text.strip_prefix('?').map(row), row(text)) {
                (Some(Some(row)), _) => writeln!(out, "{}", menu.help(row))?,
                (None, Some(row)) => match menu.choose(row) {
                    Next::Shown => show(menu, &mut out)?,
                    Next::Ask(index) => {
                        writeln!(out, "{}: new value?", menu.name(index))?;
                        asked = Some(index);
                    }
                    Next::Refused(why) => writeln!(out, "{why}")?,
                },
                _ => writeln!(
                    out,
                    "a number chooses, ?number explains, b goes back, s keeps and ends, q ends"
                )?,
            },
        }
    }
}

fn show(menu: &Menu<'_>, out: &mut impl Write) -> Result<()> {
    writeln!(out, "\n{}", menu.title())?;
    for (number, row) in (1..).zip(menu.rows()) {
        writeln!(out, "{number:3}  {}", row.label)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kconfig::DotConfig;

    const SAMPLE: &str = "mainmenu \"M\"\nmenu \"Sub\"\nconfig A\n\tbool \"a\"\n\thelp\n\t  About a.\nconfig B\n\tbool \"b\"\n\tdepends on A\nconfig N\n\tint \"n\"\n\trange 1 9\n\tdefault 3\nendmenu\nchoice\n\tprompt \"c\"\nconfig X\n\tbool \"x\"\nconfig Y\n\tbool \"y\"\nendchoice\n";

    /// What the session prints, and the lines that lead to its end; `None` if nothing is kept.
    fn session(commands: &str) -> (String, Option<String>) {
        let tree = Tree::parse("Kconfig", &|_| Ok(SAMPLE.into())).expect("right");
        let config = Config::new(&tree, &DotConfig::default()).0;
        let mut menu = Menu::new(&tree, config);
        let mut out = Vec::new();
        let kept = by_lines(&mut menu, commands.as_bytes(), &mut out).expect("runs");
        let text = String::from_utf8(out).expect("text");
        (text, kept.then(|| menu.config.minimal()))
    }

    #[test]
    fn a_session_by_lines() {
        let (text, kept) = session("1\n1\n2\n3\n7\nb\n2\n2\ns\n");
        assert_eq!(
            kept.as_deref(),
            Some("CONFIG_A=y\nCONFIG_B=y\nCONFIG_N=7\nCONFIG_Y=y\n")
        );
        assert!(text.contains("M > Sub") && text.contains("M > c"), "{text}");
        assert!(text.contains("  2      c (y)  -->"), "{text}");
    }

    #[test]
    fn what_depends_on_a_symbol_goes_with_it() {
        let (text, kept) = session("1\n1\n2\n1\ns\n");
        assert_eq!(kept.as_deref(), Some(""));
        assert!(text.ends_with("1  [ ] a\n  2  (3) n\n> "), "{text}");
    }

    #[test]
    fn wrong_values_help_and_the_end_of_the_input() {
        let (text, kept) = session("1\n?1\n2\n12\nhuh\n");
        assert_eq!(kept, None);
        assert!(text.contains("About a."), "{text}");
        assert!(text.contains("CONFIG_N=12 is outside of 1 to 9"), "{text}");
        assert!(text.contains("a number chooses"), "{text}");
        assert_eq!(session("1\n1\nq\n").1, None);
    }
}
