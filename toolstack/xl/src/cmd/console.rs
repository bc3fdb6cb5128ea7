//! `console`: this terminal as a domain's. `devd`: hands over to the daemon.

use super::failure::{Failure, Outcome, Result};
use super::host::Host;
use super::{Args, Command, Context, Opt, last_words};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};
use xen_abi::DomId;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "console",
        options: &[
            Opt::with(Some('t'), &["type"], "TYPE", "pv, serial or vuart"),
            Opt::with(Some('n'), &["num"], "NUMBER", "which of its consoles"),
            Opt::with(
                Some('e'),
                &["escape"],
                "ESCAPE",
                "what leaves, as ^] for Ctrl-]",
            ),
        ],
        usage: "[options] <Domain>",
        help: "Connect this terminal to a domain's console",
        min: 1,
        dry_run: false,
        run: console,
    },
    Command {
        name: "devd",
        options: &[
            Opt::flag(Some('F'), &["foreground"], "stay in the foreground"),
            Opt::with(
                Some('p'),
                &["pidfile"],
                "FILE",
                "write the process number to a file",
            ),
        ],
        usage: "[options]",
        help: "Serve the devices of a driver domain",
        min: 0,
        dry_run: false,
        run: devd,
    },
];

/// How long the domain's console may take to appear.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ctrl-], which leaves.
const ESCAPE: u8 = 0x1d;

fn console(_: &Context, args: &Args) -> Outcome {
    let escape = args.value("escape").map_or(Ok(ESCAPE), parse_escape)?;
    let number = match args.value("num") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Failure::new(format!("-n: '{text}' is no number")))?,
    };
    let host = &mut Host::open()?;
    let name = &args.words[0];
    let domain = host.domain(name).map_err(|failure| {
        let Some((path, text)) = last_words::of(Path::new(last_words::LOGS), name) else {
            return failure;
        };
        print!("{text}");
        let path = path.display();
        Failure::new(format!(
            "there is no domain {name} any more; this is how {path} ends"
        ))
    })?;
    attach(host, domain.id(), args.value("type"), number, escape)
}

/// Connects the terminal until the user leaves or the console ends.
///
/// # Errors
/// If the domain has no such console, or somebody else has it.
pub fn attach(
    host: &mut Host,
    domid: DomId,
    kind: Option<&str>,
    number: u32,
    escape: u8,
) -> Outcome {
    if domid == DomId::DOM0 {
        return Err(Failure::with_code(
            22,
            "domain 0 has no console of its own: this terminal is in it",
        ));
    }
    let nodes = nodes(domid, kind, number)?;
    let _lock = lock(domid)?;
    let path = wait_for_terminal(host, domid, &nodes)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = open(&path, flags, Mode::empty())
        .map_err(|e| Failure::new(format!("cannot open {path}, the domain's console: {e}")))?;
    raw(&terminal)?;
    Ok(talk(&File::from(terminal), escape)?)
}

/// Where the terminal of a console is written down; the first node that is there counts.
fn nodes(domid: DomId, kind: Option<&str>, number: u32) -> Result<Vec<String>> {
    let base = format!("/local/domain/{}", domid.0);
    let pv = match number {
        0 => format!("{base}/console/tty"),
        n => format!("{base}/device/console/{n}/tty"),
    };
    match kind {
        None | Some("pv") => Ok(vec![pv]),
        Some("serial") => Ok(vec![format!("{base}/serial/{number}/tty"), pv]),
        Some("vuart") => Ok(vec![format!("{base}/vuart/0/tty")]),
        Some(other) => Err(Failure::new(format!(
            "'{other}' is no type of console; pv, serial and vuart are"
        ))),
    }
}

/// `^]`, `]` after a caret, or a character.
fn parse_escape(text: &str) -> Result<u8> {
    match text.as_bytes() {
        [c] if c.is_ascii() => Ok(*c),
        [b'^', c @ b'@'..=b'_'] => Ok(c - b'@'),
        [b'^', c @ b'a'..=b'z'] => Ok(c - b'a' + 1),
        _ => Err(Failure::new(format!(
            "-e: '{text}' is neither a character nor one with Control, such as ^]"
        ))),
    }
}

/// Two people at one console would share its output between them.
fn lock(domid: DomId) -> Result<Option<OwnedFd>> {
    let path = format!("/var/lock/xenconsole.{}", domid.0);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let Ok(file) = open(&path, flags, Mode::RUSR | Mode::WUSR) else {
        // Nowhere to lock: better a console without than none.
        return Ok(None);
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(_) => Err(Failure::new(format!(
            "the console of domain {} is open elsewhere ({path} is locked)",
            domid.0
        ))),
    }
}

fn wait_for_terminal(host: &mut Host, domid: DomId, nodes: &[String]) -> Result<String> {
    let start = Instant::now();
    loop {
        let found = nodes.iter().find_map(|n| host.read(n));
        if let Some(path) = found.filter(|p| !p.is_empty()) {
            return Ok(path);
        }
        if start.elapsed() > PATIENCE {
            return Err(Failure::new(format!(
                "domain {} has no terminal at {}; is xenconsoled running?",
                domid.0, nodes[0]
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a terminal pass on every byte.
fn raw(terminal: impl AsFd) -> Result<Termios> {
    let old = tcgetattr(&terminal).map_err(io::Error::from)?;
    let mut new = old.clone();
    new.make_raw();
    tcsetattr(&terminal, OptionalActions::Now, &new).map_err(io::Error::from)?;
    Ok(old)
}

/// The user's terminal, as it was once this is dropped.
pub(super) struct Raw(Option<Termios>);

impl Raw {
    pub(super) fn new() -> Result<Raw> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            return Ok(Raw(None));
        }
        raw(&stdin).map(|old| Raw(Some(old)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(old) = &self.0 {
            // There is nobody left to tell.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, old);
        }
    }
}

/// A stream that can be read as soon as someone wants to end this program.
pub(super) fn ending() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

/// Passes bytes on, until the escape character comes alone, the console ends or this program shall end.
fn talk(mut terminal: &File, escape: u8) -> io::Result<()> {
    let end = ending()?;
    let _raw = Raw::new().map_err(|f| io::Error::other(f.message))?;
    let (stdin, mut stdout) = (io::stdin(), io::stdout());
    let mut input = true;
    let mut bytes = [0; 512];
    loop {
        let mut fds = vec![
            PollFd::new(terminal, PollFlags::IN),
            PollFd::new(&end, PollFlags::IN),
        ];
        if input {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        if ready[0] {
            // The other end was closed, with all its words read, or there are words.
            match terminal.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    stdout.write_all(&bytes[..n])?;
                    stdout.flush()?;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(()),
            }
        }
        if ready[1] {
            return Ok(());
        }
        if input && ready[2] {
            match rustix::io::read(&stdin, &mut bytes) {
                // A file or pipe has ended; what the domain says may still be of interest.
                Ok(0) => input = false,
                Ok(1) if bytes[0] == escape => return Ok(()),
                Ok(n) => terminal.write_all(&bytes[..n])?,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn devd(_: &Context, args: &Args) -> Outcome {
    let mut options = vec!["devd".to_owned()];
    options.extend(args.has("foreground").then(|| "-F".into()));
    if let Some(file) = args.value("pidfile") {
        options.extend(["-p".into(), file.into()]);
    }
    let error = std::process::Command::new("dom0-shim")
        .args(&options)
        .exec();
    Err(Failure::new(format!(
        "cannot start 'dom0-shim devd', which serves devices: {error}; is dom0-shim in the PATH?"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, run};
    use super::{nodes, parse_escape, raw, talk};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Write};
    use xen_abi::DomId;

    #[test]
    fn each_type_has_its_node() {
        let all = |kind, number| nodes(DomId(5), kind, number).unwrap().join(" ");
        assert_eq!(all(None, 0), "/local/domain/5/console/tty");
        assert_eq!(all(Some("pv"), 2), "/local/domain/5/device/console/2/tty");
        assert_eq!(
            all(Some("serial"), 0),
            "/local/domain/5/serial/0/tty /local/domain/5/console/tty"
        );
        assert_eq!(all(Some("vuart"), 0), "/local/domain/5/vuart/0/tty");
        assert!(nodes(DomId(5), Some("x"), 0).is_err());
    }

    #[test]
    fn escapes() {
        for (text, byte) in [("^]", 0x1d), ("^a", 1), ("^A", 1), ("x", b'x')] {
            assert_eq!(parse_escape(text).unwrap(), byte);
        }
        assert!(parse_escape("^]]").is_err() && parse_escape("").is_err());
    }

    #[test]
    fn errors() {
        let f = Fixture::new();
        assert_eq!(run("console 0").0, 22);
        assert!(
            run("console nobody")
                .1
                .contains("invalid domain identifier")
        );
        assert!(run("console -t x web").1.contains("'x' is no type"));
        f.store.set("/local/domain/3/console/tty", "/none");
        assert!(run("console web").1.contains("cannot open /none"));
    }

    /// The session ends when the domain's end is closed, after its last words.
    #[test]
    fn it_ends_with_the_console() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave: File = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .unwrap();
        raw(&slave).unwrap();
        let mut master = File::from(master);
        master.write_all(b"last words\r\n").unwrap();
        (&slave).write_all(b"x").unwrap();
        let mut byte = [0];
        master.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        drop(master);
        talk(&slave, 0x1d).unwrap();
    }
}
