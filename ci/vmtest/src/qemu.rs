//! Starting QEMU: the command line of a machine, and a running one.

use crate::console::{Console, Outcome};
use crate::machine::{Emulator, Firmware, Machine};
use crate::paths;
use crate::place::{self, Place};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What the machine boots from.
pub enum Boot<'a> {
    /// A CD image.
    Iso(&'a Path),
    /// QEMU loads the ELF itself through its PVH entry; one optional module, one command line.
    Direct {
        /// The ELF.
        kernel: &'a Path,
        /// The module.
        module: Option<&'a Path>,
        /// Command line.
        cmdline: &'a str,
    },
}

/// QEMU's arguments for `machine`, without those of its console. `dir` takes the EFI variables and the test disk.
pub fn args(machine: &Machine, boot: &Boot<'_>, dir: &Path) -> Result<Vec<String>> {
    if machine.emulator != Emulator::Qemu {
        bail!("this machine does not run in QEMU: it is for `cargo xtask test --machine`");
    }
    let mut args: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| args.extend(list.iter().map(|s| s.to_string()));
    add(&[
        "-machine",
        &machine.machine,
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        &machine.cpu,
    ]);
    add(&["-smp", &machine.cpus.to_string(), "-m", &machine.memory]);
    add(&[
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-device",
        "VGA",
    ]);
    if machine.firmware == Firmware::Efi && !matches!(boot, Boot::Direct { .. }) {
        let (code, vars) = ovmf()?;
        let own = dir.join("efivars.fd");
        fs::copy(&vars, &own).with_context(|| format!("cannot copy {}", vars.display()))?;
        add(&[
            "-drive",
            &format!(
                "if=pflash,format=raw,unit=0,readonly=on,file={}",
                code.display()
            ),
        ]);
        add(&[
            "-drive",
            &format!("if=pflash,format=raw,unit=1,file={}", own.display()),
        ]);
    }
    match boot {
        Boot::Iso(iso) => add(&["-cdrom", &iso.display().to_string(), "-boot", "d"]),
        Boot::Direct {
            kernel,
            module,
            cmdline,
        } => {
            add(&["-kernel", &kernel.display().to_string(), "-append", cmdline]);
            if let Some(module) = module {
                add(&["-initrd", &module.display().to_string()]);
            }
        }
    }
    let disk = dir.join("disk.img").display().to_string();
    let machines = paths::root().join("ci/machines").display().to_string();
    for device in &machine.devices {
        let device = device.replace("{disk}", &disk);
        add(&[&device.replace("{machines}", &machines)]);
    }
    Ok(args)
}

/// OVMF's code and variable files, where Debian 12 and 13 put them.
fn ovmf() -> Result<(PathBuf, PathBuf)> {
    let dir = Path::new("/usr/share/OVMF");
    for (code, vars) in [
        ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
        ("OVMF_CODE.fd", "OVMF_VARS.fd"),
    ] {
        if dir.join(code).exists() && dir.join(vars).exists() {
            return Ok((dir.join(code), dir.join(vars)));
        }
    }
    bail!("OVMF is not in {}: run `cargo xtask setup`", dir.display())
}

/// A command that dies with us: a test run that is killed leaves no emulator behind.
pub fn command(args: &[String]) -> Command {
    let mut command = if Path::new("/usr/bin/setpriv").exists() {
        let mut c = Command::new("/usr/bin/setpriv");
        c.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        c
    } else {
        Command::new("qemu-system-x86_64")
    };
    command.args(args);
    command
}

/// Every argument quoted for a shell, so that a failed run can be repeated by hand.
pub fn shell_line(args: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "=,.:/_-+@%".contains(c);
    let quoted = args.iter().map(|a| {
        if !a.is_empty() && a.chars().all(safe) {
            a.clone()
        } else {
            format!("'{}'", a.replace('\'', r"'\''"))
        }
    });
    format!(
        "qemu-system-x86_64 {}",
        quoted.collect::<Vec<_>>().join(" ")
    )
}

/// A machine that runs. Dropping it kills it.
pub struct Vm {
    child: Child,
    /// Its serial port's input, if it has one.
    input: Option<ChildStdin>,
    /// Its console.
    pub console: Console,
    at: usize,
}

impl Vm {
    /// Starts QEMU with its first serial port on the console; `dir` takes `console.log`, `qemu.log` and `command`.
    pub fn start(mut args: Vec<String>, dir: &Path, place: Place) -> Result<Self> {
        args.extend(["-serial", "stdio", "-monitor", "none"].map(String::from));
        fs::write(dir.join("command"), shell_line(&args) + "\n")?;
        let mut command = command(&args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.join("qemu.log"))?);
        let mut child = place::spawn(&mut command, place)
            .context("cannot start qemu-system-x86_64: run `cargo xtask setup`")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("QEMU has no console");
        };
        let console = Console::default();
        let log = File::create(dir.join("console.log"))?;
        let pump = console.clone();
        thread::spawn(move || pump.pump(output, log));
        Ok(Self {
            child,
            input: Some(input),
            console,
            at: 0,
        })
    }

    /// A machine without input, whose console is read from `source`.
    pub(crate) fn with_output(child: Child, source: impl Read + Send + 'static, log: File) -> Self {
        let console = Console::default();
        let pump = console.clone();
        thread::spawn(move || pump.pump(source, log));
        Self {
            child,
            input: None,
            console,
            at: 0,
        }
    }

    /// Waits for one of `needles` behind the last match.
    pub fn wait(&mut self, needles: &[&str], until: Instant) -> Outcome {
        self.console.wait(&mut self.at, needles, until)
    }

    /// Types text.
    pub fn send(&mut self, text: &str) -> Result<()> {
        let input = self.input.as_mut();
        let input = input.context("this machine's console takes no input")?;
        input
            .write_all(text.as_bytes())
            .and_then(|()| input.flush())
            .context("the machine is gone")
    }

    /// Waits until QEMU ends by itself.
    pub fn wait_exit(&mut self, until: Instant) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
