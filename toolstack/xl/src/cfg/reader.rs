//! Settings by name, each read once by what knows its type; what nobody reads is unknown.

use super::keys;
use super::parser::Setting;
use super::value::{ConfigError, Kind, Pos, Sources, Value};
use std::collections::BTreeMap;

/// What this module returns.
pub(super) type Result<T> = std::result::Result<T, ConfigError>;

/// The settings of a config after all assignments.
pub(super) struct Reader<'a> {
    pub sources: &'a Sources,
    values: BTreeMap<String, (Pos, Value)>,
    pub warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Carries out the assignments in order: the last one counts, `+=` appends.
    pub fn new(sources: &'a Sources, settings: Vec<Setting>) -> Result<Reader<'a>> {
        let mut values: BTreeMap<String, (Pos, Value)> = BTreeMap::new();
        for setting in settings {
            let old = values.get_mut(&setting.name).filter(|_| setting.append);
            let Some((_, old)) = old else {
                values.insert(setting.name, (setting.pos, setting.value));
                continue;
            };
            match (&mut old.kind, setting.value.kind) {
                (Kind::Text(a), Kind::Text(b)) => a.push_str(&b),
                (Kind::List(a), Kind::List(b)) => a.extend(b),
                (a, b) => {
                    let message = format!(
                        "'{}' is {}, to which {} cannot be appended",
                        setting.name,
                        a.name(),
                        b.name()
                    );
                    return Err(sources.error(setting.pos, message));
                }
            }
        }
        Ok(Reader {
            sources,
            values,
            warnings: Vec::new(),
        })
    }

    /// An error at a place.
    pub fn error<T>(&self, pos: Pos, message: impl Into<String>) -> Result<T> {
        Err(self.sources.error(pos, message))
    }

    /// Notes something odd.
    pub fn warn(&mut self, pos: Pos, message: impl AsRef<str>) {
        self.warnings.push(super::value::one_line(&format!(
            "{}: {}",
            self.sources.place(pos),
            message.as_ref()
        )));
    }

    /// A value, whatever it is.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        debug_assert!(keys::is_known(name), "{name} is not in the list of keys");
        self.values.remove(name).map(|(_, value)| value)
    }

    /// A string with its place; an empty one counts as none.
    pub fn text_at(&mut self, name: &str) -> Result<Option<(String, Pos)>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value { pos, kind }) => match kind {
                Kind::Text(text) | Kind::Number(text) => {
                    Ok(Some((text, pos)).filter(|(t, _)| !t.is_empty()))
                }
                Kind::List(_) => self.error(pos, format!("'{name}' must be a string, not a list")),
            },
        }
    }

    /// A string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        Ok(self.text_at(name)?.map(|(text, _)| text))
    }

    /// A number in a range, with its place; decimal, `0x` or octal after a 0, in quotes or not.
    pub fn number_at(&mut self, name: &str, range: (u64, u64)) -> Result<Option<(u64, Pos)>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let pos = value.pos;
        let text = match value.kind {
            Kind::Number(text) | Kind::Text(text) => text,
            Kind::List(_) => {
                return self.error(pos, format!("'{name}' must be a number, not a list"));
            }
        };
        match number(&text) {
            Some(n) if (range.0..=range.1).contains(&n) => Ok(Some((n, pos))),
            Some(n) => {
                let message = format!("{name}={n} is out of range: {} to {}", range.0, range.1);
                self.error(pos, message)
            }
            None => self.error(pos, format!("'{name}' must be a number, not '{text}'")),
        }
    }

    /// A number.
    pub fn number(&mut self, name: &str, range: (u64, u64)) -> Result<Option<u64>> {
        Ok(self.number_at(name, range)?.map(|(n, _)| n))
    }

    /// A 32-bit number.
    pub fn small(&mut self, name: &str, range: (u32, u32)) -> Result<Option<u32>> {
        let range = (range.0.into(), range.1.into());
        // In the range, which is one of 32-bit numbers.
        Ok(self.number(name, range)?.map(|n| n as u32))
    }

    /// Yes or no, as a number.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        Ok(self.number(name, (0, u64::MAX))?.map(|n| n != 0))
    }

    /// Whether it is a list.
    pub fn is_list(&self, name: &str) -> bool {
        let value = self.values.get(name).map(|(_, value)| &value.kind);
        matches!(value, Some(Kind::List(_)))
    }

    /// Whether it is one string.
    pub fn is_text(&self, name: &str) -> bool {
        let value = self.values.get(name).map(|(_, value)| &value.kind);
        matches!(value, Some(Kind::Text(_)))
    }

    /// A list of strings; a single string is a list of one.
    pub fn texts(&mut self, name: &str) -> Result<Vec<(String, Pos)>> {
        let Some(value) = self.take(name) else {
            return Ok(Vec::new());
        };
        let items = match value.kind {
            Kind::List(items) => items,
            _ => vec![value],
        };
        let mut out = Vec::new();
        for item in items {
            match item.kind {
                Kind::Text(text) | Kind::Number(text) => out.push((text, item.pos)),
                Kind::List(_) => {
                    return self.error(item.pos, format!("'{name}' is a list of strings"));
                }
            }
        }
        Ok(out)
    }

    /// What was not read: warned of, with the most similar name.
    pub fn finish(mut self) -> Vec<String> {
        let rest = std::mem::take(&mut self.values);
        for (name, (pos, _)) in rest {
            let message = match keys::reason(&name) {
                Some(reason) => format!("'{name}' has no effect: {reason}"),
                None => match keys::similar(&name) {
                    Some(other) => format!("unknown setting '{name}'; did you mean '{other}'?"),
                    None => format!("unknown setting '{name}'"),
                },
            };
            self.warn(pos, message);
        }
        self.warnings
    }
}

/// As C's `strtoul` with base 0.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0') {
        Some("") => Some(0),
        Some(octal) if octal.bytes().all(|b| b.is_ascii_digit()) => {
            u64::from_str_radix(octal, 8).ok()
        }
        _ if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}
