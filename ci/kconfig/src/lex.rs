//! A line of a Kconfig file, cut into tokens.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A keyword, a symbol or a number.
    Word(String),
    /// A quoted text.
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// Longer ones first.
const SIGNS: &[&str] = &["&&", "||", "!=", "<=", ">=", "=", "<", ">", "!", "(", ")"];

/// The tokens of `line`, without its comment. The error says what is wrong.
pub fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(c) = rest.chars().next() {
        if c == '#' {
            break;
        }
        if c == '"' || c == '\'' {
            let (text, after) = quoted(&rest[1..], c)?;
            found.push(Token::Text(text));
            rest = after;
        } else if let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            found.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let is_word = |c: char| c.is_ascii_alphanumeric() || "_-./$".contains(c);
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("unexpected {c:?}"));
            }
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(found)
}

/// The text up to the closing quote, and what follows. A backslash takes the next character as it is.
pub fn quoted(rest: &str, quote: char) -> Result<(String, &str), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => text.extend(chars.next().map(|(_, c)| c)),
            c if c == quote => return Ok((text, &rest[at + c.len_utf8()..])),
            c => text.push(c),
        }
    }
    Err("a text without its closing quote".into())
}
