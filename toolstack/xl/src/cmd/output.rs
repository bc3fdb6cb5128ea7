//! Standard output.

use super::Outcome;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use std::io::{ErrorKind, Write};

/// Prints text as it is. A reader that went away (`xl list | head -1`) is no failure.
///
/// # Errors
/// If it cannot be written.
pub fn print(text: &str) -> Outcome {
    #[cfg(test)]
    return {
        CAPTURED.with_borrow_mut(|c| c.push_str(text));
        Ok(())
    };
    #[cfg(not(test))]
    write(text)
}

#[cfg_attr(test, allow(dead_code, reason = "tests capture the output"))]
fn write(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a value as JSON, indented by four blanks as Xen's `xl` does.
///
/// # Errors
/// As [`print`].
pub fn json(value: &impl Serialize) -> Outcome {
    print(&to_json(value)?)
}

/// A value as indented JSON with a newline behind.
///
/// # Errors
/// If the value has no JSON form.
pub fn to_json(value: &impl Serialize) -> super::failure::Result<String> {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    bytes.push(b'\n');
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
thread_local! {
    static CAPTURED: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// What this thread's commands have printed since the last call.
#[cfg(test)]
pub fn captured() -> String {
    CAPTURED.take()
}
