//! Log files: one for each guest's name, one for the hypervisor.

use super::host::Log;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How logs are written.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Lines begin with the time.
    pub timestamps: bool,
    /// Escape characters become dots.
    pub replace_escape: bool,
    /// At that many bytes a file becomes `.1` and a new one begins; a guest must not fill the disk.
    pub most: u64,
}

/// A log file.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    style: Style,
    /// The next byte begins a line.
    fresh: bool,
}

impl LogFile {
    /// Opens it, makes it and its directory if need be, and appends.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: PathBuf, style: Style) -> io::Result<LogFile> {
        let (file, size) = append(&path)?;
        Ok(LogFile {
            path,
            file: Some(file),
            size,
            style,
            fresh: true,
        })
    }

    /// `bytes` as they are written at a time.
    fn dress(&mut self, bytes: &[u8], time: SystemTime) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            if std::mem::replace(&mut self.fresh, *byte == b'\n') && self.style.timestamps {
                out.extend_from_slice(stamp(time).as_bytes());
            }
            out.push(match byte {
                0x1b if self.style.replace_escape => b'.',
                byte => *byte,
            });
        }
        out
    }
}

impl Log for LogFile {
    fn write(&mut self, bytes: &[u8]) {
        let bytes = self.dress(bytes, SystemTime::now());
        if self.size + bytes.len() as u64 > self.style.most {
            // If it cannot be moved the log goes on in it: better long than lost.
            let _ = fs::rename(&self.path, older(&self.path));
            self.reopen();
        }
        if let Some(file) = &mut self.file
            && file.write_all(&bytes).is_ok()
        {
            self.size += bytes.len() as u64;
        }
    }

    fn reopen(&mut self) {
        if let Ok((file, size)) = append(&self.path) {
            (self.file, self.size) = (Some(file), size);
        }
    }
}

fn append(path: &Path) -> io::Result<(File, u64)> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// The name of a guest's log file. A guest's name is the administrator's, but it must stay a file's name.
pub fn file_name(guest: &str) -> String {
    let plain = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    format!("guest-{}.log", guest.chars().map(plain).collect::<String>())
}

/// `[2026-11-30 12:34:56] `, in universal time.
fn stamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (day, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years; then the month from a year that begins in March.
    let days = day + 719_468;
    let (era, in_era) = (days / 146_097, days % 146_097);
    let year_in_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
    let month = (5 * in_year + 2) / 153;
    let date = in_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (era * 400 + year_in_era, month + 3),
        false => (era * 400 + year_in_era + 1, month - 9),
    };
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("[{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02}] ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times() {
        let at = |seconds| stamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "[1970-01-01 00:00:00] ");
        assert_eq!(at(951_782_399), "[2000-02-28 23:59:59] ");
        assert_eq!(at(951_868_800), "[2000-03-01 00:00:00] ");
        assert_eq!(at(1_796_083_199), "[2026-11-30 23:59:59] ");
        assert_eq!(at(1_798_761_600), "[2027-01-01 00:00:00] ");
    }

    #[test]
    fn lines_escapes_and_size() {
        let dir = std::env::temp_dir().join(format!("consoled-log-{}", std::process::id()));
        let path = dir.join(file_name("../a/b\n"));
        assert_eq!(path.file_name().unwrap(), "guest-.._a_b_.log");
        let style = Style {
            timestamps: true,
            replace_escape: true,
            most: 100,
        };
        let mut log = LogFile::open(path.clone(), style).unwrap();
        let time = UNIX_EPOCH;
        assert_eq!(log.dress(b"on", time), b"[1970-01-01 00:00:00] on");
        assert_eq!(log.dress(b"e\x1b[m\n", time), b"e.[m\n");
        assert_eq!(log.dress(b"two", time), b"[1970-01-01 00:00:00] two");
        log.style.timestamps = false;
        (0..5).for_each(|_| log.write(&[b'x'; 40]));
        assert_eq!(fs::metadata(&path).unwrap().len(), 40);
        assert_eq!(fs::metadata(older(&path)).unwrap().len(), 80);
        // Somebody moves the file away and says so.
        fs::rename(&path, dir.join("moved")).unwrap();
        log.reopen();
        log.write(b"new");
        assert_eq!(fs::read(&path).unwrap(), b"new");
        fs::remove_dir_all(dir).unwrap();
    }
}
