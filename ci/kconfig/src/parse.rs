//! Kconfig text to [`Tree`].

use std::path::Path;

use crate::expr::Expr;
use crate::lex::tokens;
use crate::model::{Choice, If, Menu, Node, Symbol, Tree, Type};
use crate::parse_attr::Cursor;
use crate::{Problem, eval};

/// Files that may name each other this deep.
const DEPTH: usize = 8;

/// What encloses an entry.
enum Block {
    If,
    Menu(Menu, Vec<Node>),
    Choice(usize),
}

/// What the attributes that follow belong to.
enum Entry {
    None,
    Symbol(usize),
    Choice(usize),
    /// The menu just opened, or the comment just made.
    Menu,
    Comment,
}

struct Parser<'a> {
    read: &'a dyn Fn(&str) -> Result<String, String>,
    tree: Tree,
    /// Open blocks, each with its condition, and its file and line for the message if it is never closed.
    blocks: Vec<(Block, Expr, String, usize)>,
    nodes: Vec<Node>,
    entry: Entry,
}

impl Tree {
    /// Reads the file at `path`; what it sources is relative to its directory.
    pub fn load(path: &Path) -> Result<Self, Problem> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let read = |file: &str| {
            let path = dir.join(file);
            std::fs::read_to_string(&path)
                .map_err(|e| format!("cannot read {}: {e}", path.display()))
        };
        Self::parse(&name, &read)
    }

    /// Reads the file `name` through `read`.
    pub fn parse(
        name: &str,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, Problem> {
        let mut parser = Parser {
            read,
            tree: Tree::default(),
            blocks: Vec::new(),
            nodes: Vec::new(),
            entry: Entry::None,
        };
        let text = read(name).map_err(|text| problem(name, 0, text))?;
        parser.file(name, &text, 0)?;
        if let Some((_, _, file, line)) = parser.blocks.pop() {
            return Err(problem(&file, line, "this block is never closed".into()));
        }
        parser.tree.nodes = parser.nodes;
        eval::check(&parser.tree)?;
        Ok(parser.tree)
    }
}

fn problem(file: &str, line: usize, text: String) -> Problem {
    Problem {
        file: file.to_owned(),
        line,
        text,
    }
}

/// Columns of white space at the start of a line.
fn indent(line: &str) -> usize {
    let blanks = line.chars().take_while(|c| matches!(c, ' ' | '\t'));
    blanks.fold(0, |n, c| if c == '\t' { n / 8 * 8 + 8 } else { n + 1 })
}

impl Parser<'_> {
    fn file(&mut self, name: &str, text: &str, depth: usize) -> Result<(), Problem> {
        let open = self.blocks.len();
        let mut lines = (1usize..).zip(text.lines()).peekable();
        while let Some((number, first)) = lines.next() {
            let at = |text| problem(name, number, text);
            let mut line = first.to_owned();
            while line.ends_with('\\') {
                line.pop();
                line.push_str(lines.next().map_or("", |(_, l)| l));
            }
            let mut cursor = Cursor::new(tokens(&line).map_err(at)?, number);
            let Ok(word) = cursor.word("a keyword") else {
                if line.trim_start().starts_with(['#']) || line.trim().is_empty() {
                    continue;
                }
                return Err(at("a line starts with a keyword".into()));
            };
            match word.as_str() {
                "help" | "---help---" => {
                    let mut help = Vec::new();
                    let mut depth = 0;
                    while let Some((_, text)) = lines.peek() {
                        if !text.trim().is_empty() {
                            if help.is_empty() {
                                depth = indent(text);
                            }
                            if indent(text) < depth || depth == 0 {
                                break;
                            }
                        }
                        if !(help.is_empty() && text.trim().is_empty()) {
                            help.push(text.trim().to_owned());
                        }
                        lines.next();
                    }
                    self.help(help.join("\n").trim_end().to_owned())
                        .map_err(at)?;
                }
                "source" => {
                    let file = cursor.text("a file").map_err(at)?;
                    cursor.end().map_err(at)?;
                    if depth == DEPTH {
                        return Err(at(format!("files are nested more than {DEPTH} deep")));
                    }
                    let text = (self.read)(&file).map_err(at)?;
                    self.entry = Entry::None;
                    self.file(&file, &text, depth + 1)?;
                    self.entry = Entry::None;
                }
                word => self.statement(word, &mut cursor, name).map_err(at)?,
            }
        }
        match self.blocks.last() {
            Some((_, _, file, line)) if self.blocks.len() > open => {
                Err(problem(file, *line, "this block is never closed".into()))
            }
            _ if self.blocks.len() < open => Err(problem(
                name,
                0,
                "it ends a block of the file that sources it".into(),
            )),
            _ => Ok(()),
        }
    }

    fn statement(&mut self, word: &str, c: &mut Cursor, file: &str) -> Result<(), String> {
        let line = c.line;
        let open = |this: &mut Self, block, condition| {
            this.blocks.push((block, condition, file.to_owned(), line));
        };
        match word {
            "config" | "menuconfig" => {
                let name = c.word("a name")?;
                c.end()?;
                self.symbol(name, file, line)
            }
            "choice" => {
                c.end()?;
                let index = self.tree.choices.len();
                self.tree.choices.push(Choice {
                    prompt: None,
                    defaults: Vec::new(),
                    depends: self.around(),
                    help: String::new(),
                    members: Vec::new(),
                    file: file.to_owned(),
                    line,
                });
                self.nodes.push(Node::Choice(index));
                open(self, Block::Choice(index), Expr::True);
                self.entry = Entry::Choice(index);
                Ok(())
            }
            "menu" => {
                let title = c.text("a title")?;
                c.end()?;
                let depends = self.around();
                let outer = std::mem::take(&mut self.nodes);
                open(
                    self,
                    Block::Menu(Menu { title, depends }, outer),
                    Expr::True,
                );
                self.entry = Entry::Menu;
                Ok(())
            }
            "if" => {
                let condition = c.expr()?;
                c.end()?;
                open(self, Block::If, condition);
                self.entry = Entry::None;
                Ok(())
            }
            "endif" | "endmenu" | "endchoice" => {
                c.end()?;
                self.entry = Entry::None;
                let last = self.blocks.pop();
                match (word, last) {
                    ("endif", Some((Block::If, ..)))
                    | ("endchoice", Some((Block::Choice(_), ..))) => Ok(()),
                    ("endmenu", Some((Block::Menu(menu, outer), ..))) => {
                        let inner = std::mem::replace(&mut self.nodes, outer);
                        self.nodes.push(Node::Menu(menu, inner));
                        Ok(())
                    }
                    (_, Some((_, _, _, line))) => {
                        Err(format!("{word} does not end the block of line {line}"))
                    }
                    (_, None) => Err(format!("{word} ends nothing")),
                }
            }
            "comment" => {
                let title = c.text("a text")?;
                c.end()?;
                let depends = self.around();
                self.nodes.push(Node::Comment(Menu { title, depends }));
                self.entry = Entry::Comment;
                Ok(())
            }
            "mainmenu" => {
                self.tree.title = c.text("a title")?;
                c.end()
            }
            _ => self.attribute(word, c),
        }
    }

    /// The condition of all open blocks.
    fn around(&self) -> Expr {
        let conditions = self
            .blocks
            .iter()
            .map(|(block, condition, ..)| match block {
                Block::If => condition.clone(),
                Block::Menu(menu, _) => menu.depends.clone(),
                // Its members know it by their index.
                Block::Choice(_) => Expr::True,
            });
        let menu = |b: &&(Block, Expr, String, usize)| matches!(b.0, Block::Menu(..));
        // A menu's own condition has those around it in it already.
        let skip = self.blocks.iter().rposition(|b| menu(&b)).unwrap_or(0);
        conditions.skip(skip).fold(Expr::True, Expr::and)
    }

    fn symbol(&mut self, name: String, file: &str, line: usize) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("{name}: a name is made of A to Z, 0 to 9 and _"));
        }
        if let Some(old) = self.tree.find(&name) {
            let old = &self.tree.symbols[old];
            return Err(format!(
                "{name} is defined at {}:{} already",
                old.file, old.line
            ));
        }
        let choice = match self.blocks.last() {
            Some((Block::Choice(index), ..)) => Some(*index),
            _ => None,
        };
        let index = self.tree.symbols.len();
        match choice {
            Some(choice) => self.tree.choices[choice].members.push(index),
            None => self.nodes.push(Node::Symbol(index)),
        }
        self.tree.symbols.push(Symbol {
            name,
            ty: Type::Bool,
            prompt: None,
            defaults: Vec::new(),
            ranges: Vec::new(),
            selects: Vec::new(),
            depends: self.around(),
            help: String::new(),
            choice,
            file: file.to_owned(),
            line,
        });
        self.entry = Entry::Symbol(index);
        Ok(())
    }

    fn help(&mut self, text: String) -> Result<(), String> {
        match self.entry {
            Entry::Symbol(i) => self.tree.symbols[i].help = text,
            Entry::Choice(i) => self.tree.choices[i].help = text,
            _ => return Err("a help text that belongs to nothing".into()),
        }
        Ok(())
    }

    fn attribute(&mut self, word: &str, c: &mut Cursor) -> Result<(), String> {
        if word == "depends" {
            if !c.take("on") {
                return Err("expected `depends on`".into());
            }
            let needs = c.expr()?;
            c.end()?;
            let place = match self.entry {
                Entry::Symbol(i) => &mut self.tree.symbols[i].depends,
                Entry::Choice(i) => &mut self.tree.choices[i].depends,
                Entry::Menu => match self.blocks.last_mut() {
                    Some((Block::Menu(menu, _), ..)) => &mut menu.depends,
                    _ => return Err("`depends on` belongs to nothing".into()),
                },
                Entry::Comment => match self.nodes.last_mut() {
                    Some(Node::Comment(comment)) => &mut comment.depends,
                    _ => return Err("`depends on` belongs to nothing".into()),
                },
                Entry::None => return Err("`depends on` belongs to nothing".into()),
            };
            *place = std::mem::replace(place, Expr::True).and(needs);
            return Ok(());
        }
        let (prompt, defaults) = match self.entry {
            Entry::Symbol(i) => {
                let s = &mut self.tree.symbols[i];
                (&mut s.prompt, &mut s.defaults)
            }
            Entry::Choice(i) => {
                let s = &mut self.tree.choices[i];
                (&mut s.prompt, &mut s.defaults)
            }
            _ => return Err(format!("unknown keyword {word}")),
        };
        let ty = match word {
            "bool" | "def_bool" => Type::Bool,
            "int" => Type::Int,
            "hex" => Type::Hex,
            "string" => Type::String,
            "prompt" => {
                let text = c.text("a prompt")?;
                *prompt = Some(c.conditional(text)?);
                return Ok(());
            }
            "default" => {
                let value = c.expr()?;
                defaults.push(c.conditional(value)?);
                return Ok(());
            }
            _ => return self.symbol_attribute(word, c),
        };
        if word == "def_bool" {
            let value = c.expr()?;
            defaults.push(c.conditional(value)?);
        } else if c.at_text() {
            let text = c.text("a prompt")?;
            *prompt = Some(c.conditional(text)?);
        } else {
            c.end()?;
        }
        match self.entry {
            Entry::Symbol(i) => self.tree.symbols[i].ty = ty,
            _ if ty != Type::Bool => return Err("a choice is bool".into()),
            _ => {}
        }
        Ok(())
    }

    fn symbol_attribute(&mut self, word: &str, c: &mut Cursor) -> Result<(), String> {
        let Entry::Symbol(i) = self.entry else {
            return Err(format!("unknown keyword {word}"));
        };
        match word {
            "select" => {
                let name = c.word("a symbol")?;
                let select: If<String> = c.conditional(name)?;
                self.tree.symbols[i].selects.push(select);
                Ok(())
            }
            "range" => {
                let ends = (c.atom()?, c.atom()?);
                let range = c.conditional(ends)?;
                self.tree.symbols[i].ranges.push(range);
                Ok(())
            }
            "tristate" | "def_tristate" => Err("there are no modules here: use bool".into()),
            _ => Err(format!("unknown keyword {word}")),
        }
    }
}
