//! `cargo xtask lint`: the rules of the source tree, one file each.

mod crate_matrix;
mod dep_reasons;
mod file_length;
mod hw_words;
mod pure_core;
mod safety_comments;
mod unsafe_crates;
mod vendor_words;
mod words;

use crate::source::{self, Source};
use anyhow::Result;

/// A rule: takes all files, returns one line per finding.
type Lint = fn(&[Source]) -> Vec<String>;

const LINTS: &[(&str, Lint)] = &[
    ("crate-matrix", crate_matrix::check),
    ("dep-reasons", dep_reasons::check),
    ("file-length", file_length::check),
    ("hw-words", hw_words::check),
    ("pure-core", pure_core::check),
    ("safety-comments", safety_comments::check),
    ("unsafe-crates", unsafe_crates::check),
    ("vendor-words", vendor_words::check),
    ("words", words::check),
];

/// Runs every rule; `each` gets its name and findings.
pub fn report(each: &mut dyn FnMut(&str, Vec<String>)) -> Result<()> {
    let files = source::files()?;
    for (name, lint) in LINTS {
        each(name, lint(&files));
    }
    Ok(())
}

/// Prints the findings; true if there are none.
pub fn run() -> Result<bool> {
    let mut total = 0;
    report(&mut |name, findings| {
        total += findings.len();
        findings.iter().for_each(|f| println!("{name}: {f}"));
    })?;
    println!("{} rules, {total} findings", LINTS.len());
    Ok(total == 0)
}

/// The Rust files below one of `dirs`.
fn rust_below<'a>(files: &'a [Source], dirs: &'a [&str]) -> impl Iterator<Item = &'a Source> {
    files
        .iter()
        .filter(|f| f.extension() == "rs" && dirs.iter().any(|d| f.path.starts_with(d)))
}

/// The words of a line of code, identifiers split at `_` and at the humps of camel case, in lower case.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut last_lower = false;
    for c in line.chars().chain([' ']) {
        let boundary = !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && last_lower);
        if boundary && !word.is_empty() {
            words.push(std::mem::take(&mut word).to_ascii_lowercase());
        }
        if c.is_ascii_alphanumeric() {
            word.push(c);
        }
        last_lower = c.is_ascii_lowercase();
    }
    words
}

/// One finding per line of `file`'s code that `bad` objects to.
fn by_line(file: &Source, bad: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let code = file.code();
    let lines = code.lines().enumerate();
    lines
        .filter_map(|(i, l)| bad(l).map(|why| format!("{}:{}: {why}", file.path, i + 1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file for the tests of the rules.
    pub fn file(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn identifiers_split_into_words() {
        assert_eq!(
            words_of("let x: SvmBackend = svm_init(VMCB);"),
            ["let", "x", "svm", "backend", "svm", "init", "vmcb"]
        );
    }
}
