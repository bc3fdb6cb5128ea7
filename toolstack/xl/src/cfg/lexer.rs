//! Characters to tokens.

use super::value::{ConfigError, Pos, Source, Sources};
use std::iter::Peekable;
use std::str::Chars;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Name(String),
    Number(String),
    Text(String),
    Assign,
    Append,
    Open,
    Close,
    Comma,
    /// End of a line, or `;`.
    End,
}

impl Token {
    /// In words, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Name(name) => format!("'{name}'"),
            Token::Number(number) => format!("'{number}'"),
            Token::Text(text) => {
                format!("\"{}\"", text.chars().take(40).collect::<String>())
            }
            Token::Assign => "'='".into(),
            Token::Append => "'+='".into(),
            Token::Open => "'['".into(),
            Token::Close => "']'".into(),
            Token::Comma => "','".into(),
            Token::End => "the end of the line".into(),
        }
    }
}

struct Lexer<'a> {
    sources: &'a Sources,
    chars: Peekable<Chars<'a>>,
    pos: Pos,
}

/// All tokens of a text, the last of them an end.
pub(super) fn tokens(
    sources: &Sources,
    source: Source,
    text: &str,
) -> Result<Vec<(Token, Pos)>, ConfigError> {
    let mut lexer = Lexer {
        sources,
        chars: text.chars().peekable(),
        pos: Pos {
            source,
            line: 1,
            column: 1,
        },
    };
    let mut tokens = Vec::new();
    while let Some((token, pos)) = lexer.token()? {
        tokens.push((token, pos));
    }
    tokens.push((Token::End, lexer.pos));
    Ok(tokens)
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        if c == '\n' {
            self.pos.line += 1;
            self.pos.column = 1;
        } else {
            self.pos.column += 1;
        }
        Some(c)
    }

    fn take_while(&mut self, first: char, more: impl Fn(char) -> bool) -> String {
        let mut out = String::from(first);
        while let Some(c) = self.chars.peek().copied().filter(|c| more(*c)) {
            out.push(c);
            self.next();
        }
        out
    }

    fn token(&mut self) -> Result<Option<(Token, Pos)>, ConfigError> {
        loop {
            let pos = self.pos;
            let Some(c) = self.next() else {
                return Ok(None);
            };
            let token = match c {
                // The line ends of other systems are blanks as well.
                ' ' | '\t' | '\r' => continue,
                '#' => {
                    while self.chars.peek().is_some_and(|c| *c != '\n') {
                        self.next();
                    }
                    continue;
                }
                '\n' | ';' => Token::End,
                '=' => Token::Assign,
                '+' if self.chars.peek() == Some(&'=') => {
                    self.next();
                    Token::Append
                }
                '[' => Token::Open,
                ']' => Token::Close,
                ',' => Token::Comma,
                '"' | '\'' => Token::Text(self.string(c, pos)?),
                'a'..='z' => Token::Name(
                    self.take_while(c, |c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '.')),
                ),
                '0'..='9' => {
                    Token::Number(self.take_while(c, |c| matches!(c, '0'..='9' | 'a'..='f' | 'x')))
                }
                _ => return Err(self.odd(c, pos)),
            };
            return Ok(Some((token, pos)));
        }
    }

    fn odd(&self, c: char, pos: Pos) -> ConfigError {
        let hint = match c {
            'A'..='Z' => ": names of settings are lower case, and strings need quotes",
            '-' | '+' => ": only strings may contain it, and numbers have no sign",
            '(' | ')' | '{' | '}' | ':' => ": config files are no Python programs any more",
            '/' | '_' | '.' => ": strings need quotes",
            _ => "",
        };
        let shown = c.escape_default();
        self.sources
            .error(pos, format!("'{shown}' cannot stand here{hint}"))
    }

    fn string(&mut self, quote: char, start: Pos) -> Result<String, ConfigError> {
        let mut out = String::new();
        loop {
            let pos = self.pos;
            match self.next() {
                Some(c) if c == quote => return Ok(out),
                None | Some('\n') => {
                    return Err(self
                        .sources
                        .error(start, format!("this string has no closing {quote}")));
                }
                Some('\\') => out.push(self.escape(pos)?),
                Some(c) => out.push(c),
            }
        }
    }

    fn escape(&mut self, pos: Pos) -> Result<char, ConfigError> {
        let c = self.next();
        let digits = match c {
            Some('a') => return Ok('\x07'),
            Some('b') => return Ok('\x08'),
            Some('f') => return Ok('\x0c'),
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('v') => return Ok('\x0b'),
            Some(c @ ('\\' | '"' | '\'')) => return Ok(c),
            Some('x') => self.digits(2, 16),
            Some(c @ '0'..='7') => {
                let more = self.digits(2, 8);
                format!("{c}{more}")
            }
            _ => String::new(),
        };
        let base = if c == Some('x') { 16 } else { 8 };
        // Beyond ASCII a number is no character of its own.
        u8::from_str_radix(&digits, base)
            .ok()
            .filter(|n| n.is_ascii() && *n != 0)
            .map(char::from)
            .ok_or_else(|| {
                let message = "unknown escape: a backslash goes before a b f n r t v, a quote, \
                     a backslash or a number from 1 to octal 177";
                self.sources.error(pos, message)
            })
    }

    fn digits(&mut self, most: usize, base: u32) -> String {
        let mut out = String::new();
        while out.len() < most
            && let Some(c) = self.chars.peek().copied().filter(|c| c.is_digit(base))
        {
            out.push(c);
            self.next();
        }
        out
    }
}
