//! Config files: text to [`DomainConfig`], pure, with the place of everything that is wrong.

pub mod cpuid;
pub mod disk;
pub mod domain;
mod keys;
mod lexer;
mod parser;
pub mod pins;
mod reader;
mod schema;
#[cfg(test)]
mod tests;
pub mod value;
pub mod vif;

pub use domain::DomainConfig;
pub use value::{ConfigError, Pos, Source};

use parser::Setting;
use value::Sources;

/// A config, and what is odd about it without being wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What is to be built.
    pub config: DomainConfig,
    /// One line each.
    pub warnings: Vec<String>,
}

/// Reads a config file and `key=value` words of the command line, which count like further lines of the file.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(name: &str, text: &str, overrides: &[String]) -> Result<Parsed, ConfigError> {
    let mut sources = Sources::new(name);
    let settings = settings(&mut sources, text, overrides)?;
    schema::domain(&sources, settings)
}

/// The settings alone, in order.
fn settings(
    sources: &mut Sources,
    text: &str,
    overrides: &[String],
) -> Result<Vec<Setting>, ConfigError> {
    let mut settings = parser::parse(sources, Source::FILE, text)?;
    for (index, word) in overrides.iter().enumerate() {
        let source = sources.add(format!("command line, '{word}'"));
        debug_assert_eq!(source.0, index + 1);
        settings.extend(parser::parse(sources, source, word)?);
    }
    Ok(settings)
}
