//! Our xenstored, served to Debian's clients and to ours: the same commands, the same output. Needs no Xen: the clients
//! come over the socket.

use super::report::Report;
use crate::{exec, setup, ui};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmtest::paths;

/// How long a program may take that should take a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Command, exit status 0 or not, output. Run one after another on a fresh store.
const SCRIPT: &[(&str, bool, &str)] = &[
    (
        "ls -fp",
        true,
        "/tool = \"\"   (n0)\n/tool/xenstored = \"\"   (n0)\n",
    ),
    ("write /a/b hello /a/c tab\\there /a/d \\x01\\377", true, ""),
    ("write rel value", true, ""),
    ("read /a/b", true, "hello\n"),
    ("read -p /a/b /a/c", true, "/a/b: hello\n/a/c: tab\\there\n"),
    ("read -R /a/c", true, "tab\there"),
    ("read /a/d", true, "\\001\\xff\n"),
    ("read rel", true, "value\n"),
    ("read /local/domain/0/rel", true, "value\n"),
    ("read /a/b /none", false, "hello\n"),
    ("list /a", true, "b\nc\nd\n"),
    ("list -p /a", true, "/a/b\n/a/c\n/a/d\n"),
    ("list /none", false, ""),
    ("exists /a/b /a/c", true, ""),
    ("exists /a/b /none", false, ""),
    ("chmod /a n0 r5", true, ""),
    ("chmod -r /a/b b0 w7", true, ""),
    (
        "ls -p /",
        true,
        concat!(
            "tool = \"\"  . . . . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            " xenstored = \"\"  . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            "a = \"\" . . . . . . . . . . . . . . . . . . . . . . . . . . .  (n0,r5)\n",
            " b = \"hello\" . . . . . . . . . . . . . . . . . . . . . . . .  (b0,w7)\n",
            " c = \"tab\\there\" . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            " d = \"\\001\\xff\"  . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            "local = \"\" . . . . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            " domain = \"\" . . . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            "  0 = \"\" . . . . . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
            "   rel = \"value\" . . . . . . . . . . . . . . . . . . . . . .  (n0)\n",
        ),
    ),
    ("chmod -u /local/domain/0/rel r0", true, ""),
    (
        "ls -fp /local",
        true,
        concat!(
            "/local/domain = \"\"   (r0)\n",
            "/local/domain/0 = \"\"   (r0)\n",
            "/local/domain/0/rel = \"value\"   (r0)\n",
        ),
    ),
    ("rm /a/c", true, ""),
    ("rm -t /local/domain/0/rel", true, ""),
    ("rm /none/below", false, ""),
    ("write /no/./such x", false, ""),
    (
        "ls -f",
        true,
        "/tool = \"\"\n/tool/xenstored = \"\"\n/a = \"\"\n/a/b = \"hello\"\n/a/d = \"\\001\\xff\"\n",
    ),
];

/// All of it.
pub fn check(report: &mut Report) {
    let built = match build() {
        Ok(built) => built,
        Err(error) => return report.add("xenstore/build", Err(format!("{error:#}"))),
    };
    let ours = Clients::ours(&built);
    let mut add = |name: &str, result: Result<()>| {
        report.add(
            &format!("xenstore/{name}"),
            result.map_err(|e| format!("{e:#}")),
        );
    };
    add("our clients", script(&built, &ours));
    add("watch by our client", watch(&built, &ours));
    add("restart", restart(&built, &ours));
    let names = [
        "debian's clients",
        "watch by debian's client",
        "debian's test program",
    ];
    match setup::tree("xenstore-utils").map(|dir| Clients::debian(&dir)) {
        Ok(debian) => {
            add(names[0], script(&built, &debian));
            add(names[1], watch(&built, &debian));
            add(names[2], test_program(&built, &debian));
        }
        Err(error) => {
            for name in names {
                report.skip(
                    &format!("xenstore/{name}"),
                    &format!("Debian's clients cannot be fetched: {error:#}"),
                );
            }
        }
    }
}

/// Builds the daemon and our clients, static where that can be; the directory with the programs.
fn build() -> Result<PathBuf> {
    let mut cargo = exec::cargo();
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "dom0-shim",
        "--package",
        "xenstore-tools",
    ]);
    let target = setup::static_target_flags(&mut cargo);
    exec::step("build xenstored and its clients", cargo)?;
    Ok(paths::target().join(target).join("debug"))
}

/// Programs that speak with the daemon.
struct Clients {
    /// Where `xenstore` is.
    program: PathBuf,
    libraries: Option<PathBuf>,
    test_program: Option<PathBuf>,
}

impl Clients {
    fn ours(built: &Path) -> Clients {
        Clients {
            program: built.join("xenstore"),
            libraries: None,
            test_program: None,
        }
    }

    fn debian(dir: &Path) -> Clients {
        let versions = fs::read_dir(dir.join("usr/lib"))
            .into_iter()
            .flatten()
            .flatten();
        let tests = versions.map(|v| v.path().join("bin/test-xenstore"));
        Clients {
            program: dir.join("usr/bin/xenstore"),
            libraries: Some(dir.join("usr/lib/x86_64-linux-gnu")),
            test_program: tests.filter(|t| t.exists()).last(),
        }
    }

    fn command(&self, program: &Path, daemon: &Daemon) -> Command {
        let mut command = Command::new(program);
        command
            .env("XENSTORED_RUNDIR", &daemon.dir)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        self.libraries
            .iter()
            .for_each(|dir| _ = command.env("LD_LIBRARY_PATH", dir));
        command
    }

    /// Runs one command of the client; whether it succeeded, and its output.
    fn run(&self, daemon: &Daemon, line: &str) -> Result<(bool, String)> {
        let mut command = self.command(&self.program, daemon);
        let child = command
            .args(line.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        finish(child).with_context(|| format!("xenstore {line}"))
    }
}

/// The daemon in a directory of its own.
struct Daemon {
    dir: PathBuf,
    child: Child,
}

impl Daemon {
    fn start(built: &Path, fresh: bool) -> Result<Daemon> {
        let dir = paths::target().join("xenstore-test");
        if fresh && dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let mut command = Command::new(built.join("dom0-shim"));
        command
            .args(["xenstored", "--no-fork", "--no-domain-init", "--trace-file"])
            .arg(dir.join("log"));
        let child = command
            .env("XENSTORED_RUNDIR", &dir)
            .stdin(Stdio::null())
            .spawn()?;
        let mut daemon = Daemon { dir, child };
        let start = Instant::now();
        while !daemon.dir.join("socket").exists() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("the daemon ended: {status}");
            }
            ensure!(start.elapsed() < PATIENCE, "the daemon makes no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// Ends it as a service manager does.
    fn stop(mut self) -> Result<()> {
        let id = self.child.id().to_string();
        exec::first_line("kill", &["-TERM", &id]);
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(start.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Gone already after `stop`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a program, not for ever; whether it succeeded, and its output.
fn finish(mut child: Child) -> Result<(bool, String)> {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            bail!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut bytes = Vec::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_end(&mut bytes)?;
    }
    Ok((
        status.success(),
        String::from_utf8_lossy(&bytes).into_owned(),
    ))
}

fn script(built: &Path, clients: &Clients) -> Result<()> {
    let daemon = Daemon::start(built, true)?;
    for (line, ok, expected) in SCRIPT {
        let (succeeded, output) = clients.run(&daemon, line)?;
        ensure!(
            succeeded == *ok && output == *expected,
            "xenstore {line}: success {succeeded}, expected {ok}; output\n{output}expected\n{expected}"
        );
    }
    daemon.stop()
}

/// A client that waits sees each change as a line.
fn watch(built: &Path, clients: &Clients) -> Result<()> {
    let daemon = Daemon::start(built, true)?;
    let mut command = clients.command(&clients.program, &daemon);
    let mut child = command
        .args(["watch", "-n", "4", "/w"])
        .stdout(Stdio::piped())
        .spawn()?;
    // How soon it watches is not known, so changes go on until it has seen enough.
    let (start, mut written) = (Instant::now(), 0);
    while child.try_wait()?.is_none() && start.elapsed() < PATIENCE {
        clients.run(&daemon, &format!("write /w/{written} x"))?;
        written += 1;
    }
    let (ok, output) = finish(child)?;
    let lines: Vec<&str> = output.lines().collect();
    ensure!(
        ok && lines.len() == 4 && lines[0] == "/w",
        "output\n{output}"
    );
    ensure!(
        lines[1..].iter().all(|l| l.starts_with("/w/")),
        "output\n{output}"
    );
    daemon.stop()
}

/// What was written is there after a restart of the daemon.
fn restart(built: &Path, clients: &Clients) -> Result<()> {
    let daemon = Daemon::start(built, true)?;
    clients.run(&daemon, "write /kept/value here")?;
    clients.run(&daemon, "chmod /kept/value r0 b3")?;
    daemon.stop()?;
    let daemon = Daemon::start(built, false)?;
    let (_, output) = clients.run(&daemon, "ls -fp /kept")?;
    ensure!(
        output == "/kept/value = \"here\"   (r0,b3)\n",
        "after the restart: {output}"
    );
    // Nor does it matter how it ended, a second after the last change.
    clients.run(&daemon, "write /kept/value late")?;
    std::thread::sleep(Duration::from_millis(2500));
    drop(daemon);
    fs::remove_file(paths::target().join("xenstore-test/socket"))?;
    let daemon = Daemon::start(built, false)?;
    let (_, output) = clients.run(&daemon, "read /kept/value")?;
    ensure!(output == "late\n", "after an abrupt end: {output}");
    daemon.stop()
}

/// Debian's own test of a xenstored, transactions with conflicts included.
fn test_program(built: &Path, clients: &Clients) -> Result<()> {
    let program = clients
        .test_program
        .as_deref()
        .context("the package has no test-xenstore")?;
    let daemon = Daemon::start(built, true)?;
    let child = clients
        .command(program, &daemon)
        .stdout(Stdio::piped())
        .spawn()?;
    let (ok, output) = finish(child)?;
    ui::say(&output);
    ensure!(
        ok && !output.contains("failed") && output.contains("ta rmw x"),
        "output\n{output}"
    );
    daemon.stop()
}
