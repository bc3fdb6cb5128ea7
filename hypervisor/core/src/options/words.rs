//! Splits the command line into words.

use alloc::string::String;
use alloc::vec::Vec;

/// Words separated by white space; double or single quotes keep white space and are taken off. The word `--` ends the
/// hypervisor's part: what follows is returned as it is. A NUL ends the line; bytes that are no UTF-8 are replaced.
pub fn split(line: &[u8]) -> (Vec<String>, String) {
    let line = line.split(|&b| b == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    let mut words = Vec::new();
    let mut rest = text.as_ref();
    loop {
        rest = rest.trim_start_matches(is_space);
        if rest.is_empty() {
            return (words, String::new());
        }
        let (word, after) = next(rest);
        if word == "--" {
            return (words, String::from(after.trim_matches(is_space)));
        }
        if !word.is_empty() {
            words.push(word);
        }
        rest = after;
    }
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace()
}

fn next(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(q) if c == q => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if is_space(c) => return (word, &text[at..]),
            _ => word.push(c),
        }
    }
    (word, "")
}
