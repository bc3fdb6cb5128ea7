//! Port 0xe9 of a guest: text for the hypervisor's log, a byte at a time.
//!
//! What a guest writes is gathered to lines and logged as what guests cause, rate-limited: a serial line is slow, and a guest
//! must not keep a CPU or drown the log by writing.

use arrayvec::ArrayString;
use hv_hw::sync::{SpinLock, rank};

/// Bytes of a line; a longer one goes out in pieces.
const LINE: usize = 80;

/// A piece of a guest's text.
pub type Line = ArrayString<LINE>;

/// A line that is being written.
pub struct DebugPort(SpinLock<Line, { rank::DEVICE }>);

impl Default for DebugPort {
    fn default() -> Self {
        Self(SpinLock::new(Line::new_const()))
    }
}

impl DebugPort {
    /// Takes a byte; a line when it ends one or fills it. Only printable ASCII is kept.
    pub fn put(&self, byte: u8) -> Option<Line> {
        let mut line = self.0.lock();
        if matches!(byte, b' '..=b'~') {
            // There is room: a full line was taken out.
            let _ = line.try_push(char::from(byte));
        }
        let whole = byte == b'\n' && !line.is_empty() || line.is_full();
        whole.then(|| core::mem::take(&mut *line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_lines_without_control_characters() {
        let port = DebugPort::default();
        let lines = |text: &[u8]| -> Vec<String> {
            let whole = text.iter().filter_map(|&b| port.put(b));
            whole.map(|l| l.as_str().to_owned()).collect()
        };
        assert_eq!(lines(b"he\x1b[llo\r\n\n\xffworld"), ["he[llo"]);
        assert_eq!(lines(b"\n"), ["world"]);
        let long = lines(&[b'x'; 2 * LINE + 1]);
        assert_eq!(long, ["x".repeat(LINE), "x".repeat(LINE)]);
        assert_eq!(lines(b"\n"), ["x"]);
    }
}
