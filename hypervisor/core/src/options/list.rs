//! Comma lists, applied item by item: what is understood takes effect, the rest is named.

use alloc::format;
use alloc::string::String;

use super::value::boolean;

/// One item of a list: `name`, `no-name` or `name=<boolean>`.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Without a `no-` prefix.
    pub name: &'a str,
    /// Whether it is to be on.
    pub on: bool,
}

impl<'a> Item<'a> {
    fn new(text: &'a str) -> Option<Self> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, boolean(value)?),
            None => (text, true),
        };
        Some(match name.strip_prefix("no-") {
            Some(name) => Self { name, on: !value },
            None => Self { name, on: value },
        })
    }
}

/// Calls `set` for each item; it says whether it knew the item. Empty items are skipped.
pub fn each(
    text: &str,
    mut set: impl FnMut(Item<'_>) -> Result<bool, String>,
) -> Result<(), String> {
    let mut bad = None;
    for part in text.split(',').filter(|p| !p.is_empty()) {
        match Item::new(part).map_or(Ok(false), &mut set) {
            Ok(true) => {}
            Ok(false) => bad = bad.or(Some(format!("{part:?} is not known here"))),
            Err(why) => bad = bad.or(Some(why)),
        }
    }
    match bad {
        None => Ok(()),
        Some(why) => Err(format!("{why}; the other items are applied")),
    }
}
