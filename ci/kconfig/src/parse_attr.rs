//! The attributes of an entry, and expressions.

use crate::expr::{Comparison, Expr, number};
use crate::lex::Token;
use crate::model::If;

/// The tokens of one line, taken one by one.
pub struct Cursor {
    tokens: std::vec::IntoIter<Token>,
    /// The line, from 1.
    pub line: usize,
}

impl Cursor {
    /// At the first of `tokens`.
    pub fn new(tokens: Vec<Token>, line: usize) -> Self {
        Self {
            tokens: tokens.into_iter(),
            line,
        }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.as_slice().first()
    }

    /// Takes the next token if it is the word or sign `text`.
    pub fn take(&mut self, text: &str) -> bool {
        let hit = match self.peek() {
            Some(Token::Word(w)) => w == text,
            Some(Token::Sign(s)) => *s == text,
            _ => false,
        };
        if hit {
            self.tokens.next();
        }
        hit
    }

    /// The next token, a word.
    pub fn word(&mut self, what: &str) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            Some(other) => Err(format!("expected {what}, found {other:?}")),
            None => Err(format!("{what} is missing")),
        }
    }

    /// The next token, a quoted text.
    pub fn text(&mut self, what: &str) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Text(text)) => Ok(text),
            Some(other) => Err(format!("expected {what} in quotes, found {other:?}")),
            None => Err(format!("{what} is missing")),
        }
    }

    /// Whether a quoted text follows.
    pub fn at_text(&self) -> bool {
        matches!(self.peek(), Some(Token::Text(_)))
    }

    /// Nothing more may follow.
    pub fn end(&mut self) -> Result<(), String> {
        match self.tokens.next() {
            None => Ok(()),
            Some(extra) => Err(format!("unexpected {extra:?} at the end of the line")),
        }
    }

    /// `value` with the condition that follows it, to the end of the line.
    pub fn conditional<T>(&mut self, value: T) -> Result<If<T>, String> {
        let condition = if self.take("if") {
            self.expr()?
        } else {
            Expr::True
        };
        self.end()?;
        Ok(If {
            value,
            condition,
            line: self.line,
        })
    }

    /// An expression.
    pub fn expr(&mut self) -> Result<Expr, String> {
        let mut left = self.all_of()?;
        while self.take("||") {
            left = Expr::Or(Box::new(left), Box::new(self.all_of()?));
        }
        Ok(left)
    }

    fn all_of(&mut self) -> Result<Expr, String> {
        let mut left = self.term()?;
        while self.take("&&") {
            left = Expr::And(Box::new(left), Box::new(self.term()?));
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Expr, String> {
        if self.take("!") {
            return Ok(Expr::Not(Box::new(self.term()?)));
        }
        if self.take("(") {
            let inner = self.expr()?;
            return if self.take(")") {
                Ok(inner)
            } else {
                Err("a closing bracket is missing".into())
            };
        }
        let left = self.atom()?;
        let how = match self.peek() {
            Some(Token::Sign(sign)) => Comparison::parse(sign),
            _ => None,
        };
        let Some(how) = how else { return Ok(left) };
        self.tokens.next();
        Ok(Expr::Compare(Box::new(left), how, Box::new(self.atom()?)))
    }

    /// A symbol, number or text.
    pub fn atom(&mut self) -> Result<Expr, String> {
        Ok(match self.tokens.next() {
            Some(Token::Text(text)) if text == "y" => Expr::True,
            Some(Token::Text(text)) if text == "n" => Expr::False,
            Some(Token::Text(text)) => Expr::Text(text),
            Some(Token::Word(word)) => match word.as_str() {
                "y" => Expr::True,
                "n" => Expr::False,
                "m" => return Err("there are no modules here".into()),
                _ if number(&word).is_some() => Expr::Text(word),
                _ => Expr::Symbol(word),
            },
            Some(Token::Sign(sign)) => return Err(format!("unexpected {sign}")),
            None => return Err("an expression is missing".into()),
        })
    }
}
