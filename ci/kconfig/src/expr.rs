//! Expressions of `depends on`, `if` and `default`.

use std::fmt;

/// An expression. Names that are no symbols are texts, as in Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// `y`: always true.
    True,
    /// `n`: never true.
    False,
    /// A symbol.
    Symbol(String),
    /// A quoted text or a number.
    Text(String),
    /// Negation.
    Not(Box<Expr>),
    /// Both.
    And(Box<Expr>, Box<Expr>),
    /// Either.
    Or(Box<Expr>, Box<Expr>),
    /// A comparison of two atoms.
    Compare(Box<Expr>, Comparison, Box<Expr>),
}

/// How two atoms are compared: as numbers if both are, else as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the operators'")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The operator's spelling.
    pub fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// The operator that is spelt so.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Equal,
            Self::NotEqual,
            Self::Less,
            Self::LessOrEqual,
            Self::Greater,
            Self::GreaterOrEqual,
        ]
        .into_iter()
        .find(|c| c.text() == text)
    }

    fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// A number as Kconfig writes it: decimal, or hexadecimal with `0x`; perhaps with a minus sign.
pub fn number(text: &str) -> Option<i128> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(rest) => (rest, -1),
        None => (text, 1),
    };
    let value = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    // "+5" is a number to Rust and not to Kconfig.
    let plain = digits.starts_with(|c: char| c.is_ascii_digit());
    value.ok().filter(|_| plain).map(|n| sign * i128::from(n))
}

impl Expr {
    /// Both, without needless parts.
    pub fn and(self, other: Expr) -> Expr {
        match (self, other) {
            (Expr::True, e) | (e, Expr::True) => e,
            (a, b) => Expr::And(Box::new(a), Box::new(b)),
        }
    }

    /// Whether it is true, given the text of each symbol's value ("y", "n", a number, a text).
    pub fn is_true(&self, value: &mut dyn FnMut(&str) -> String) -> bool {
        match self {
            Expr::True => true,
            Expr::False => false,
            Expr::Symbol(_) | Expr::Text(_) => self.text(value) == "y",
            Expr::Not(e) => !e.is_true(value),
            Expr::And(a, b) => a.is_true(value) && b.is_true(value),
            Expr::Or(a, b) => a.is_true(value) || b.is_true(value),
            Expr::Compare(a, how, b) => {
                let (a, b) = (a.text(value), b.text(value));
                how.holds(match (number(&a), number(&b)) {
                    (Some(a), Some(b)) => a.cmp(&b),
                    _ => a.cmp(&b),
                })
            }
        }
    }

    /// Its value as a text: what a symbol holds, a text itself, `y` or `n` for the rest.
    pub fn text(&self, value: &mut dyn FnMut(&str) -> String) -> String {
        match self {
            Expr::Symbol(name) => value(name),
            Expr::Text(text) => text.clone(),
            other => if other.is_true(value) { "y" } else { "n" }.to_owned(),
        }
    }

    /// The symbols in it.
    pub fn symbols(&self, each: &mut dyn FnMut(&str)) {
        match self {
            Expr::True | Expr::False | Expr::Text(_) => {}
            Expr::Symbol(name) => each(name),
            Expr::Not(e) => e.symbols(each),
            Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(a, _, b) => {
                a.symbols(each);
                b.symbols(each);
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::True => f.write_str("y"),
            Expr::False => f.write_str("n"),
            Expr::Symbol(name) => f.write_str(name),
            Expr::Text(text) if number(text).is_some() => f.write_str(text),
            Expr::Text(text) => write!(f, "{text:?}"),
            Expr::Not(e) if matches!(**e, Expr::And(..) | Expr::Or(..) | Expr::Compare(..)) => {
                write!(f, "!({e})")
            }
            Expr::Not(e) => write!(f, "!{e}"),
            Expr::And(a, b) => {
                let part = |e: &Expr| match e {
                    Expr::Or(..) => format!("({e})"),
                    _ => e.to_string(),
                };
                write!(f, "{} && {}", part(a), part(b))
            }
            Expr::Or(a, b) => write!(f, "{a} || {b}"),
            Expr::Compare(a, how, b) => write!(f, "{a} {} {b}", how.text()),
        }
    }
}
