//! Build choices: reads a `Kconfig` file and a `.config`, works out every symbol's value, and hands the result to the
//! build.
//!
//! The language is Linux's, without what a hypervisor of this size has no use for: `tristate` and modules, `imply`,
//! `visible if`, macros. Everything else that is not understood is an error with its file and line.
//!
//! No dependencies: build scripts of the hypervisor's crates use it.
#![forbid(unsafe_code)]

mod build;
mod dotconfig;
mod eval;
mod expr;
mod lex;
mod model;
mod parse;
mod parse_attr;
#[cfg(test)]
mod tests;

pub use build::{Located, build_script, gzip_stored, locate};
pub use dotconfig::{Assignment, DotConfig};
pub use eval::Config;
pub use expr::Expr;
pub use model::{Choice, Menu, Node, Symbol, Tree, Type};

use std::fmt;

/// Something wrong in a file, for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// Line from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// Several problems, one a line.
pub fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}
