//! Tokens to settings.

use super::lexer::{Token, tokens};
use super::value::{ConfigError, Kind, Pos, Source, Sources, Value};

/// How deep lists may nest; real ones go to two.
const DEPTH: usize = 16;

/// A line of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub name: String,
    pub pos: Pos,
    /// `+=`.
    pub append: bool,
    pub value: Value,
}

struct Parser<'a> {
    sources: &'a Sources,
    tokens: std::vec::IntoIter<(Token, Pos)>,
    /// Where the last token stood.
    last: Pos,
}

/// Reads a text.
pub(super) fn parse(
    sources: &Sources,
    source: Source,
    text: &str,
) -> Result<Vec<Setting>, ConfigError> {
    let tokens = tokens(sources, source, text)?;
    let mut parser = Parser {
        sources,
        tokens: tokens.into_iter(),
        last: Pos {
            source,
            line: 1,
            column: 1,
        },
    };
    let mut settings = Vec::new();
    while let Some((token, pos)) = parser.tokens.next() {
        match token {
            Token::End => {}
            Token::Name(name) => settings.push(parser.setting(name, pos)?),
            other => {
                let message = format!(
                    "a line begins with the name of a setting, not with {}",
                    other.describe()
                );
                return Err(sources.error(pos, message));
            }
        }
    }
    Ok(settings)
}

impl Parser<'_> {
    fn next(&mut self) -> Option<(Token, Pos)> {
        let (token, pos) = self.tokens.next()?;
        self.last = pos;
        Some((token, pos))
    }

    fn unexpected<T>(&self, found: Option<(Token, Pos)>, wanted: &str) -> Result<T, ConfigError> {
        let (what, pos) = match found {
            Some((token, pos)) => (token.describe(), pos),
            None => ("the end of the file".into(), self.last),
        };
        Err(self
            .sources
            .error(pos, format!("{wanted} expected instead of {what}")))
    }

    fn setting(&mut self, name: String, pos: Pos) -> Result<Setting, ConfigError> {
        let append = match self.next() {
            Some((Token::Assign, _)) => false,
            Some((Token::Append, _)) => true,
            other => return self.unexpected(other, &format!("'=' or '+=' after '{name}'")),
        };
        let value = match self.next() {
            Some((Token::Name(word), pos)) => {
                let message = format!("'{word}' needs quotes: {name}=\"{word}\"");
                return Err(self.sources.error(pos, message));
            }
            other => self.value(other, 0)?,
        };
        match self.next() {
            Some((Token::End, _)) | None => Ok(Setting {
                name,
                pos,
                append,
                value,
            }),
            other => self.unexpected(other, &format!("the end of the line after '{name}'")),
        }
    }

    fn value(&mut self, first: Option<(Token, Pos)>, depth: usize) -> Result<Value, ConfigError> {
        let (kind, pos) = match first {
            Some((Token::Number(number), pos)) => (Kind::Number(number), pos),
            Some((Token::Text(text), pos)) => (Kind::Text(text), pos),
            Some((Token::Open, pos)) if depth < DEPTH => (Kind::List(self.list(depth)?), pos),
            Some((Token::Open, pos)) => {
                return Err(self.sources.error(pos, "lists nest too deep"));
            }
            other => return self.unexpected(other, "a number, a string or a list"),
        };
        Ok(Value { pos, kind })
    }

    /// After the opening bracket.
    fn list(&mut self, depth: usize) -> Result<Vec<Value>, ConfigError> {
        let mut values = Vec::new();
        let mut comma = true;
        loop {
            match self.next() {
                // Lists may span lines.
                Some((Token::End, _)) if self.tokens.len() > 0 => {}
                Some((Token::Close, _)) => return Ok(values),
                Some((Token::Comma, pos)) if comma => {
                    return Err(self.sources.error(pos, "a value is missing before ','"));
                }
                Some((Token::Comma, _)) => comma = true,
                other if comma => {
                    values.push(self.value(other, depth + 1)?);
                    comma = false;
                }
                other => return self.unexpected(other, "',' or ']'"),
            }
        }
    }
}
