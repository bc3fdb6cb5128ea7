//! Programs that find a guest's kernel on its disk, as `bootloader=` names them: pygrub and its kin.
//!
//! The program is run as Xen's toolstack runs it: with the disk as its last word, and with a file and a directory for its answer,
//! which is `kernel PATH`, `ramdisk PATH` and `args TEXT` with zeros between them.

use crate::cfg::DomainConfig;
use crate::cfg::domain::BootLoader;
use crate::cmd::failure::{Failure, Result};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// What it found, unpacked from its files, which are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The kernel's file.
    pub kernel: Vec<u8>,
    /// The RAM disk's.
    pub ramdisk: Option<Vec<u8>>,
    /// Command line.
    pub cmdline: String,
}

/// Most bytes of an answer.
const ANSWER: u64 = 64 << 10;
/// Most bytes of a message that are kept for an error.
const SAID: usize = 4 << 10;

/// Runs the program. `talk`: it may use this program's terminal, if there is one.
///
/// # Errors
/// If it cannot be run, says no, or gives no kernel.
pub fn run(config: &DomainConfig, loader: &BootLoader, talk: bool) -> Result<Found> {
    let Some(disk) = config.disks.first() else {
        return Err(Failure::new("bootloader= needs a disk"));
    };
    let dir = Scratch::new().map_err(|e| Failure::new(format!("/tmp or /run: {e}")))?;
    let answer = dir.0.join("answer");
    let program = find(&loader.program, &directories());
    let mut command = Command::new(&program);
    command.args(words(config, loader, &answer, &dir.0, &disk.target));
    command.env("TERM", std::env::var("TERM").unwrap_or("vt100".into()));
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(format!("bootloader {}: {why}", program.display()))
    };
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&answer);
    made.map_err(|e| failed(&e))?;
    let (status, said) = if talk && io::stdin().is_terminal() && io::stdout().is_terminal() {
        (command.status(), String::new())
    } else {
        on_own_terminal(&mut command)
    };
    let status = status.map_err(|e| failed(&e))?;
    if !status.success() {
        let last = said.lines().rev().find(|l| !l.trim().is_empty());
        return Err(failed(&format!(
            "{status}{}{}",
            if last.is_some() { ": " } else { "" },
            last.unwrap_or_default().trim()
        )));
    }
    let mut text = Vec::new();
    File::open(&answer)
        .and_then(|file| file.take(ANSWER).read_to_end(&mut text))
        .map_err(|e| failed(&e))?;
    let parts = parse(&text);
    let kernel = parts.kernel.ok_or_else(|| failed(&"it names no kernel"))?;
    let read =
        |path: &Path| fs::read(path).map_err(|e| failed(&format!("{}: {e}", path.display())));
    Ok(Found {
        kernel: read(&kernel)?,
        ramdisk: parts.ramdisk.as_deref().map(read).transpose()?,
        cmdline: parts.args.unwrap_or_else(|| config.cmdline.clone()),
    })
}

/// A directory that goes with its value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Scratch> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for base in [
            Path::new("/run/xen"),
            Path::new("/run"),
            &std::env::temp_dir(),
        ] {
            let dir = base.join(format!("bootloader.{}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Scratch(dir)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where the programs of Xen's packages are.
fn directories() -> Vec<PathBuf> {
    let version = |part| {
        let text = fs::read_to_string(format!("/sys/hypervisor/version/{part}"));
        text.unwrap_or_default().trim().to_owned()
    };
    let debian = format!("/usr/lib/xen-{}.{}/bin", version("major"), version("minor"));
    let all = [&*debian, "/usr/libexec/xen/bin", "/usr/lib/xen/bin"];
    all.iter().map(PathBuf::from).collect()
}

/// A program without a directory is one of Xen's if there is such a one, else one on the search path.
fn find(program: &str, directories: &[PathBuf]) -> PathBuf {
    if program.contains('/') {
        return program.into();
    }
    let places = directories.iter().map(|d| d.join(program));
    let found = places.into_iter().find(|p| p.is_file());
    found.unwrap_or_else(|| program.into())
}

/// Its command line.
fn words(
    config: &DomainConfig,
    loader: &BootLoader,
    answer: &Path,
    dir: &Path,
    disk: &str,
) -> Vec<String> {
    let mut words = Vec::new();
    if !config.kernel.is_empty() {
        words.push(format!("--kernel={}", config.kernel));
    }
    if let Some(ramdisk) = &config.ramdisk {
        words.push(format!("--ramdisk={ramdisk}"));
    }
    if !config.cmdline.is_empty() {
        words.push(format!("--args={}", config.cmdline));
    }
    words.push(format!("--output={}", answer.display()));
    words.push("--output-format=simple0".into());
    words.push(format!("--output-directory={}", dir.display()));
    words.extend(loader.args.iter().cloned());
    words.push(disk.into());
    words
}

/// Runs a program on a terminal that nobody types on; its end, and the last that it said.
fn on_own_terminal(command: &mut Command) -> (io::Result<ExitStatus>, String) {
    match start(command) {
        Err(error) => (Err(error), String::new()),
        Ok((mut child, ours)) => {
            let listener = std::thread::spawn(move || {
                let mut said = Vec::new();
                let mut bytes = [0; 1024];
                // The end of the last program on it is an error here.
                while let Ok(count @ 1..) = (&ours).read(&mut bytes) {
                    said.extend_from_slice(&bytes[..count]);
                    let over = said.len().saturating_sub(SAID);
                    said.drain(..over);
                }
                String::from_utf8_lossy(&said).into_owned()
            });
            let status = child.wait();
            let said = match &status {
                // A program that it left behind may keep the terminal open.
                Ok(status) if status.success() => String::new(),
                _ => listener.join().unwrap_or_default(),
            };
            (status, said)
        }
    }
}

fn start(command: &mut Command) -> io::Result<(std::process::Child, File)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let name = name.into_string().map_err(|_| io::ErrorKind::InvalidData)?;
    // A monitor leads its session and has no terminal. This one must not become its terminal: a session's leader dies with it.
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(name)?;
    command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs.try_clone()?))
        .stderr(Stdio::from(theirs));
    let child = command.spawn();
    // Our copies of its end would keep the terminal open.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok((child?, File::from(ours)))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    kernel: Option<PathBuf>,
    ramdisk: Option<PathBuf>,
    args: Option<String>,
}

/// Reads an answer; lines instead of zeros are understood as well.
fn parse(bytes: &[u8]) -> Answer {
    let mut answer = Answer::default();
    for part in bytes.split(|b| matches!(b, 0 | b'\n')) {
        let text = String::from_utf8_lossy(part);
        let (word, value) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "kernel" => {
                answer.kernel = Some(value.trim().into()).filter(|v: &PathBuf| v != Path::new(""))
            }
            "ramdisk" => {
                answer.ramdisk = Some(value.trim().into()).filter(|v: &PathBuf| v != Path::new(""))
            }
            "args" => answer.args = Some(value.trim().into()),
            _ => {}
        }
    }
    answer
}

/// Makes a program of a script. Another process writes it: if this one did, a child that a test on another thread starts
/// meanwhile would have the file open for writing for a moment, and it could not be run ("Text file busy").
#[cfg(test)]
pub(crate) fn program(path: &Path, script: &str) {
    use std::io::Write;
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell is there");
    let mut input = writer.stdin.take().expect("piped");
    input.write_all(script.as_bytes()).expect("taken");
    drop(input);
    assert!(writer.wait().expect("ends").success());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg;

    fn with_script(name: &str, script: &str, more: &str) -> Result<Found> {
        let dir = std::env::temp_dir().join(format!("xl-loader-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        let program = dir.join("loader");
        super::program(&program, &format!("#!/bin/sh\n{script}\n"));
        let text = format!(
            "type='pvh'\nname='g'\nbootloader='{}'\nbootloader_args=['-q', 'a b']\ndisk=['/x.img,raw,xvda,w']\n{more}",
            program.display()
        );
        let config = cfg::parse("f", &text, &[]).expect("right").config;
        let loader = config.bootloader.clone().expect("named");
        let found = run(&config, &loader, false);
        fs::remove_dir_all(&dir).expect("ours");
        found
    }

    const ANSWERS: &str = r#"
for word; do
	case "$word" in
	--output=*) out=${word#*=} ;;
	--output-directory=*) dir=${word#*=} ;;
	esac
	all="$all<$word>"
done
printf '%s' "$all" >"$dir/kernel"
printf disk >"$dir/ramdisk"
"#;

    #[test]
    fn it_is_run_as_xen_runs_it() {
        let script = format!(
            "{ANSWERS}\nprintf 'kernel %s\\0ramdisk %s\\0args root=/dev/xvda1 ro\\0' \"$dir/kernel\" \"$dir/ramdisk\" >\"$out\""
        );
        let found = with_script("run", &script, "extra='quiet'\nramdisk='/r'\n").expect("found");
        let words = String::from_utf8(found.kernel).expect("text");
        let words: Vec<&str> = words.trim_matches(['<', '>']).split("><").collect();
        assert_eq!(words[..2], ["--ramdisk=/r", "--args=quiet"]);
        assert!(words[2].starts_with("--output=/") && words[4].starts_with("--output-directory=/"));
        assert_eq!(words[3], "--output-format=simple0");
        assert_eq!(words[5..], ["-q", "a b", "/x.img"]);
        assert_eq!(found.ramdisk.as_deref(), Some(&b"disk"[..]));
        assert_eq!(found.cmdline, "root=/dev/xvda1 ro");
    }

    #[test]
    fn what_it_leaves_out_is_that_of_the_config() {
        let script = format!("{ANSWERS}\nprintf 'kernel %s\\n' \"$dir/kernel\" >\"$out\"");
        let found = with_script("less", &script, "extra='quiet'\n").expect("found");
        assert_eq!((found.ramdisk, &*found.cmdline), (None, "quiet"));
    }

    #[test]
    fn failures_say_what_it_said() {
        for (name, script, part) in [
            (
                "no",
                "echo 'no kernel on it' >&2; exit 3",
                "exit status: 3: no kernel on it",
            ),
            ("nothing", "exit 0", "it names no kernel"),
            (
                "gone",
                "for w; do case $w in --output=*) printf 'kernel /none' >${w#*=};; esac; done",
                "/none: No such file",
            ),
        ] {
            let error = with_script(name, script, "").expect_err(name).message;
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_leader_of_a_session_outlives_it() {
        const CHILD: &str = "XL_TEST_SESSION";
        const NAME: &str = "bootloader::tests::the_leader_of_a_session_outlives_it";
        if std::env::var_os(CHILD).is_none() {
            let this = std::env::current_exe().expect("runs");
            let mut child = Command::new(this);
            let output = child.args(["--exact", NAME]).env(CHILD, "1").output();
            let output = output.expect("started");
            assert!(output.status.success(), "{output:?}");
            return;
        }
        // Its terminal is gone when the listener has ended; the signal comes then.
        rustix::process::setsid().expect("leads no group of processes");
        let script = format!("{ANSWERS}\nprintf 'kernel %s\\0' \"$dir/kernel\" >\"$out\"");
        with_script("session", &script, "").expect("found");
        with_script("session-no", "exit 1", "").expect_err("fails");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }

    #[test]
    fn answers() {
        assert_eq!(parse(b""), Answer::default());
        assert_eq!(parse(b"kernel \0args\0junk x\0").kernel, None);
        assert_eq!(parse(b"args\0").args.as_deref(), Some(""));
        assert_eq!(
            parse(b"\xff\0kernel /a b\0").kernel.as_deref(),
            Some(Path::new("/a b"))
        );
    }

    #[test]
    fn names_without_a_directory_are_looked_for() {
        let dir = PathBuf::from("/bin");
        assert_eq!(find("sh", &["/none".into(), dir]), Path::new("/bin/sh"));
        assert_eq!(find("sh", &[]), Path::new("sh"));
        assert_eq!(find("/x/sh", &["/bin".into()]), Path::new("/x/sh"));
    }
}
