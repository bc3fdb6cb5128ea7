//! Values of settings, and where they stand.

use std::fmt;

/// A text that is read: the file or a word of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub usize);

impl Source {
    /// The config file.
    pub const FILE: Source = Source(0);
}

/// Names of the texts.
#[derive(Clone, Debug)]
pub struct Sources(Vec<String>);

impl Sources {
    pub(super) fn new(file: &str) -> Sources {
        Sources(vec![file.to_owned()])
    }

    pub(super) fn add(&mut self, name: String) -> Source {
        self.0.push(one_line(&name));
        Source(self.0.len() - 1)
    }

    /// An error at a place.
    pub(super) fn error(&self, pos: Pos, message: impl Into<String>) -> ConfigError {
        ConfigError {
            place: self.place(pos),
            message: one_line(&message.into()),
        }
    }

    /// A place in words.
    pub(super) fn place(&self, pos: Pos) -> String {
        let name = self.0.get(pos.source.0).map_or("", String::as_str);
        match pos.line {
            0 => name.to_owned(),
            line => format!("{name}:{line}:{}", pos.column),
        }
    }
}

/// Without line ends and other control characters, which strings may contain.
pub(super) fn one_line(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pos {
    /// In which text.
    pub source: Source,
    /// From 1; 0 is the text as a whole.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Pos {
    /// A whole text.
    pub const FILE: Pos = Pos {
        source: Source::FILE,
        line: 0,
        column: 0,
    };
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// `file:line:column`.
    pub place: String,
    /// One line.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// A value with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it begins.
    pub pos: Pos,
    /// What it is.
    pub kind: Kind,
}

/// Kinds of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As written; digits of any base.
    Number(String),
    /// Without quotes and escapes.
    Text(String),
    /// May contain lists.
    List(Vec<Value>),
}

impl Kind {
    /// The kind in words.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
        }
    }
}
