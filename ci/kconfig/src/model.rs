//! What a Kconfig file says.

use crate::Expr;

/// Type of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the language's")]
pub enum Type {
    Bool,
    Int,
    Hex,
    String,
}

impl Type {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Hex => "hex",
            Type::String => "string",
        }
    }
}

/// An attribute with its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct If<T> {
    /// The attribute.
    pub value: T,
    /// When it counts.
    pub condition: Expr,
    /// Its line, from 1.
    pub line: usize,
}

/// A symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Name, without `CONFIG_`.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// What people are asked, if they are.
    pub prompt: Option<If<String>>,
    /// Values where nobody chose; the first whose condition holds counts.
    pub defaults: Vec<If<Expr>>,
    /// Least and greatest value; the first whose condition holds counts.
    pub ranges: Vec<If<(Expr, Expr)>>,
    /// Symbols that this one turns on.
    pub selects: Vec<If<String>>,
    /// What it needs, with that of the menus and blocks around it.
    pub depends: Expr,
    /// The help text; empty if there is none.
    pub help: String,
    /// The choice that it belongs to.
    pub choice: Option<usize>,
    /// Where it stands.
    pub file: String,
    /// Line from 1.
    pub line: usize,
}

/// A set of symbols of which one is `y`.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What people are asked.
    pub prompt: Option<If<String>>,
    /// The member that is `y` where nobody chose.
    pub defaults: Vec<If<Expr>>,
    /// What it needs.
    pub depends: Expr,
    /// The help text.
    pub help: String,
    /// Indexes of its symbols.
    pub members: Vec<usize>,
    /// Where it stands.
    pub file: String,
    /// Line from 1.
    pub line: usize,
}

/// A menu or comment.
#[derive(Clone, Debug)]
pub struct Menu {
    /// Its title.
    pub title: String,
    /// When it is shown.
    pub depends: Expr,
}

/// What a menu screen shows, in order.
#[derive(Clone, Debug)]
pub enum Node {
    /// A symbol, by index.
    Symbol(usize),
    /// A choice, by index.
    Choice(usize),
    /// A line of text.
    Comment(Menu),
    /// A sub-menu.
    Menu(Menu, Vec<Node>),
}

/// A whole Kconfig file with those that it names.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Title of the main menu.
    pub title: String,
    /// All symbols, in order of appearance.
    pub symbols: Vec<Symbol>,
    /// All choices.
    pub choices: Vec<Choice>,
    /// The main menu.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// The symbol called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.symbols.iter().position(|s| s.name == name)
    }
}
