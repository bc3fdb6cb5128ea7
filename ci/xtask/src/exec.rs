//! Running other programs: quietly, with progress, and with their last lines shown when they fail.

use crate::ui;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// How many lines of a failed program are shown.
const TAIL: usize = 40;

/// What a program printed, both streams in the order of arrival, and whether it succeeded.
pub struct Output {
    /// Its lines.
    pub lines: Vec<String>,
    /// Exit status 0.
    pub ok: bool,
}

impl Output {
    /// The last lines, for an error message.
    pub fn tail(&self) -> String {
        self.lines[self.lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

/// A command with its arguments.
pub fn command<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Runs to the end and collects the output; `each` sees every line as it comes.
pub fn collect(mut command: Command, mut each: impl FnMut(&str)) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let (send, receive) = mpsc::channel();
    let mut readers = Vec::new();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|s| Box::new(s) as _),
        child.stderr.take().map(|s| Box::new(s) as _),
    ];
    for stream in streams.into_iter().flatten() {
        let send = send.clone();
        readers.push(thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(|l| l.ok()) {
                // The receiver lives until both readers are done.
                let _ = send.send(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        }));
    }
    drop(send);
    let mut lines = Vec::new();
    for line in receive {
        each(&line);
        lines.push(line);
    }
    let status = child.wait()?;
    Ok(Output {
        lines,
        ok: status.success(),
    })
}

/// Runs a program as one step; on failure the error holds its last lines.
pub fn step(what: &str, command: Command) -> Result<Output> {
    let step = ui::step(what);
    let shown = shell(&command);
    let output = collect(command, |line| step.detail(line))?;
    if output.ok {
        step.end("ok", "");
        return Ok(output);
    }
    step.end("FAIL", "");
    eprintln!("{}", output.tail());
    bail!("`{shown}` failed (its last lines are above)")
}

/// The first line that a program prints, if it runs and succeeds.
pub fn first_line(program: &str, args: &[&str]) -> Option<String> {
    text(program, args).and_then(|t| t.lines().next().map(String::from))
}

/// What a program prints to its standard output, if it runs and succeeds.
pub fn text(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// A command line as a person would type it.
pub fn shell(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Cargo, the one that started us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(vmtest::paths::root());
    // Set by `cargo run` for this crate; the child must not take them for its own.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    command
}
