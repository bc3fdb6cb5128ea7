//! Values that are not plain text, on a terminal.

/// A value with `\t`, `\n`, `\r`, `\\` and, for other bytes outside printable ASCII, `\` with three octal digits (below 8)
/// or `\x` with two hexadecimal ones.
pub fn escape(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for &byte in value {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\t' => text.push_str("\\t"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b' '..=b'~' => text.push(byte.into()),
            0..=7 => text.push_str(&format!("\\{byte:03o}")),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// The bytes that such a text stands for. A backslash before anything else stands for what follows it.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        let Some((&kind, after)) = rest.split_first() else {
            break;
        };
        rest = after;
        match kind {
            b't' => value.push(b'\t'),
            b'n' => value.push(b'\n'),
            b'r' => value.push(b'\r'),
            b'x' => value.push(number(&mut rest, 16, 2, kind)),
            b'0'..=b'7' => {
                rest = &text.as_bytes()[text.len() - rest.len() - 1..];
                value.push(number(&mut rest, 8, 3, kind));
            }
            other => value.push(other),
        }
    }
    value
}

/// Up to `most` digits at the start of `rest`; `without` if there are none.
fn number(rest: &mut &[u8], base: u32, most: usize, without: u8) -> u8 {
    let mut value = None;
    for _ in 0..most {
        let Some((digit, after)) = rest
            .split_first()
            .and_then(|(b, a)| Some((char::from(*b).to_digit(base)?, a)))
        else {
            break;
        };
        value = Some(value.unwrap_or(0) * base + digit);
        *rest = after;
    }
    // Three octal digits can be more than a byte holds; what is above it is lost, as in Xen's client.
    value.map_or(without, |v| v as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), all);
        assert_eq!(escape(b"a\\b\0\x1f\xff\n"), "a\\\\b\\000\\x1f\\xff\\n");
    }

    #[test]
    fn odd_texts() {
        assert_eq!(unescape("\\"), b"");
        assert_eq!(unescape("\\q\\xg\\x4\\101\\777"), b"qxg\x04A\xff");
    }
}
