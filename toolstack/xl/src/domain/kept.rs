//! The config that libxl's tools keep beside a running domain, and its lock, which all of them take.

use super::teardown::userdata;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Map, Value};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use xen_abi::DomId;

/// Changes the kept config of a domain. A domain without one, which another tool made or dom0, has nothing to be changed.
///
/// # Errors
/// If the files cannot be used.
pub fn change(
    domid: DomId,
    uuid: &str,
    change: impl FnOnce(&mut Map<String, Value>),
) -> io::Result<()> {
    let path = userdata(domid, uuid, "libxl-json");
    let lock = path.replacen("userdata-d", "userdata-l", 1);
    let lock = lock.replacen(".libxl-json", ".domain-userdata-lock", 1);
    change_files(Path::new(&path), Path::new(&lock), change)
}

fn change_files(
    path: &Path,
    lock: &Path,
    change: impl FnOnce(&mut Map<String, Value>),
) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let held = take(lock)?;
    let result = rewrite(path, change);
    // Whoever waits for it sees that it is another file now, and takes the new one.
    let removed = fs::remove_file(lock);
    drop(held);
    result.and(removed)
}

/// Reads the text of a kept config. libxl ends its own with a zero byte, and reads it as a string in C.
///
/// # Errors
/// If it is no object in JSON.
pub fn parse(text: &str) -> serde_json::Result<Map<String, Value>> {
    serde_json::from_str(text.trim_end_matches('\0'))
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Map<String, Value>)) -> io::Result<()> {
    let old = fs::read_to_string(path)?;
    let mut config = parse(&old)?;
    change(&mut config);
    let new = path.with_extension("libxl-json.new");
    let end = if old.ends_with('\0') { "\n\0" } else { "\n" };
    fs::write(&new, serde_json::to_string_pretty(&config)? + end)?;
    fs::rename(new, path)
}

/// Takes the lock, which is removed with its file.
fn take(lock: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(lock)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let there = fs::metadata(lock).ok().map(|m| (m.dev(), m.ino()));
        let held = file.metadata()?;
        if there == Some((held.dev(), held.ino())) {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_many_do_not_get_lost() {
        let dir = std::env::temp_dir().join(format!("xl-kept-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        let (path, lock) = (dir.join("a.libxl-json"), dir.join("lock"));
        change_files(&path, &lock, |_| panic!("there is nothing to change")).expect("ignored");
        fs::write(&path, "{\"count\": 0}").expect("written");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        change_files(&path, &lock, |config| {
                            let count = config["count"].as_u64().expect("a number");
                            config.insert("count".into(), (count + 1).into());
                        })
                        .expect("changed");
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).expect("there");
        assert!(text.contains("80") && !lock.exists(), "{text}");
        // One of libxl's stays one of libxl's.
        fs::write(&path, "{\"count\": 0}\n\0").expect("written");
        change_files(&path, &lock, |config| drop(config.remove("count"))).expect("changed");
        assert_eq!(fs::read_to_string(&path).expect("there"), "{}\n\0");
        fs::remove_dir_all(&dir).expect("ours");
    }
}
