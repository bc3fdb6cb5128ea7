//! Values: booleans, integers, sizes.

use alloc::format;
use alloc::string::String;

/// What an option was given: `no-` before its name, a value after `=`.
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a> {
    /// What stands in brackets behind the name.
    pub index: Option<&'a str>,
    /// Written with `no-`.
    pub negated: bool,
    /// What follows `=`.
    pub value: Option<&'a str>,
}

impl<'a> Arg<'a> {
    /// As a boolean: the bare name is true.
    pub fn boolean(self) -> Result<bool, String> {
        match self.value {
            None => Ok(!self.negated),
            Some(v) => match boolean(v) {
                Some(b) => Ok(b != self.negated),
                None => Err(format!("{v:?} is not a boolean (on or off)")),
            },
        }
    }

    /// As text, which must be there.
    pub fn text(self) -> Result<&'a str, String> {
        match self.value {
            Some(v) if !self.negated && !v.is_empty() => Ok(v),
            _ => Err(String::from("needs a value")),
        }
    }

    /// As an unsigned number.
    pub fn number(self) -> Result<u32, String> {
        let text = self.text()?;
        integer(text)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| format!("{text:?} is not a number below 2^32"))
    }

    /// As a size in bytes.
    pub fn size(self) -> Result<u64, String> {
        let text = self.text()?;
        size(text).ok_or_else(|| bad_size(text))
    }
}

/// The message for a bad size.
pub fn bad_size(text: &str) -> String {
    format!("{text:?} is not a size (a number with K, M, G or T)")
}

/// Xen's words for true and false.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "yes" | "on" | "true" | "enable" | "1" => Some(true),
        "no" | "off" | "false" | "disable" | "0" => Some(false),
        _ => None,
    }
}

/// Decimal, `0x` hexadecimal, or octal with a leading zero.
pub fn integer(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // `from_str_radix` would take a sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// A size in bytes. Without a suffix the unit is KiB.
pub fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'b' | b'B' if !is_hex(text) => (&text[..text.len() - 1], 0),
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        b't' | b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 10),
    };
    integer(digits)?.checked_mul(1 << shift)
}

/// In a hexadecimal number a final `b` is a digit.
fn is_hex(text: &str) -> bool {
    text.starts_with("0x") || text.starts_with("0X")
}
