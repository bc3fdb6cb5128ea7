//! What a guest said last, from the log that xenconsoled keeps: for guests that are gone before anybody looked.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Where xenconsoled keeps logs unless it is told otherwise.
pub const LOGS: &str = "/var/log/xen/console";
/// Bytes at the end that are looked at.
const BYTES: u64 = 16 << 10;
/// Lines that are shown: a kernel that panics says forty after the reason.
const LINES: usize = 60;

/// The end of the log of a guest of that name, and where it is. `None` if there is none.
pub fn of(logs: &Path, name: &str) -> Option<(PathBuf, String)> {
    if name.contains('/') {
        return None;
    }
    let path = logs.join(format!("guest-{name}.log"));
    let text = end(&path).ok().filter(|t| !t.is_empty())?;
    Some((path, text))
}

fn end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(BYTES)))?;
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let shown = lines[lines.len().saturating_sub(LINES)..].iter();
    // A guest must not play with the terminal of whoever reads this.
    let plain = |c: char| if c.is_control() && c != '\t' { '.' } else { c };
    Ok(shown
        .map(|l| l.chars().map(plain).chain(['\n']).collect::<String>())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        let dir = std::env::temp_dir().join(format!("xl-last-words-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(of(&dir, "web"), None);
        let log: String = (0..5000).map(|n| format!("line {n}\r\n")).collect();
        let path = dir.join("guest-web.log");
        std::fs::write(&path, log + "\x1b[31mpanic").unwrap();
        let (found, text) = of(&dir, "web").unwrap();
        assert_eq!((found, text.lines().count()), (path, LINES));
        assert!(
            text.starts_with("line 4941\nline 4942\n") && text.ends_with("line 4999\n.[31mpanic\n")
        );
        assert_eq!(of(&dir, "../guest-web"), None);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
