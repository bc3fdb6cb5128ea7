//! Starting Bochs, the emulator of Intel's VT-x. It comes from another Debian release with all its libraries
//! (`ci/images.toml`), and is run by that release's own dynamic loader.
//!
//! Its serial port writes to a file, because that loses nothing however slow the reader is; there is no input.

use crate::machine::Machine;
use crate::paths;
use crate::qemu::Vm;
use anyhow::{Context, Result, bail};
use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Emulated instructions per second of emulated time, which is also the rate of the TSC.
const IPS: u32 = 120_000_000;
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Names a directory with plugins of Bochs, which are used in the place of its own ones: all of them must be there.
pub const PLUGINS: &str = "XENOLITH_BOCHS_PLUGINS";

/// Where it is unpacked.
pub fn root() -> PathBuf {
    paths::cache().join("bochs")
}

/// The configuration of `machine` with a CD image.
pub fn config(machine: &Machine, iso: &Path, dir: &Path) -> Result<String> {
    let Some(memory) = machine.memory.strip_suffix('M') else {
        bail!(
            "memory `{}`: Bochs takes a number with an M",
            machine.memory
        );
    };
    let share = root().join("usr/share");
    let mut lines = vec![
        "config_interface: textconfig".to_owned(),
        // Needs no screen; waits for no viewer.
        "display_library: rfb, options=\"timeout=0\"".to_owned(),
        "plugin_ctrl: voodoo=0".to_owned(),
        format!(
            "cpu: model={}, count=1:{}:1, ips={IPS}, reset_on_triple_fault=0",
            machine.cpu, machine.cpus
        ),
        format!("memory: guest={memory}, host={memory}"),
        format!(
            "romimage: file={}, options=fastboot",
            share.join("bochs/BIOS-bochs-latest").display()
        ),
        format!(
            "vgaromimage: file={}",
            share.join("vgabios/vgabios.bin").display()
        ),
        // GRUB 2.06 does not survive the VESA BIOS.
        "vga: extension=none".to_owned(),
        format!("pci: enabled=1, chipset={}", machine.machine),
        "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14".to_owned(),
        format!(
            "ata0-master: type=cdrom, path={}, status=inserted",
            iso.display()
        ),
        "boot: cdrom".to_owned(),
        format!("log: {}", dir.join("bochs.log").display()),
        "panic: action=fatal".to_owned(),
        "error: action=ignore".to_owned(),
        "info: action=ignore".to_owned(),
        format!(
            "com1: enabled=1, mode=file, dev={}",
            dir.join("serial").display()
        ),
        "speaker: enabled=0".to_owned(),
    ];
    lines.extend(machine.devices.iter().cloned());
    Ok(lines.join("\n") + "\n")
}

/// A command that dies with us.
fn command(dir: &Path) -> Command {
    let root = root();
    let mut command = if Path::new("/usr/bin/setpriv").exists() {
        let mut c = Command::new("/usr/bin/setpriv");
        c.args(["--pdeathsig", "KILL"]);
        c.arg(root.join("lib64/ld-linux-x86-64.so.2"));
        c
    } else {
        Command::new(root.join("lib64/ld-linux-x86-64.so.2"))
    };
    let libraries = root.join(LIBRARIES);
    let own = libraries.join("bochs/plugins");
    let plugins = env::var_os(PLUGINS).unwrap_or_else(|| own.into());
    let path = format!("{0}:{0}/pulseaudio", libraries.display());
    command
        .args(["--library-path", &path])
        .arg(root.join("usr/bin/bochs-bin"))
        .args(["-q", "-unlock", "-f"])
        .arg(dir.join("bochsrc"))
        .env("LTDL_LIBRARY_PATH", plugins)
        .env("BXSHARE", root.join("usr/share/bochs"));
    command
}

/// Starts `machine`; `dir` takes the configuration, `console.log`, `bochs.log` and `serial`.
pub fn start(machine: &Machine, iso: &Path, dir: &Path) -> Result<Vm> {
    fs::write(dir.join("bochsrc"), config(machine, iso, dir)?)?;
    let serial = dir.join("serial");
    // It must be there before it is read.
    File::create(&serial).with_context(|| format!("cannot create {}", serial.display()))?;
    let mut child = command(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(dir.join("bochs.err"))?)
        .spawn()
        .context("cannot start Bochs: run `cargo xtask setup`")?;
    let Some(mut talk) = child.stdout.take() else {
        bail!("Bochs has no output");
    };
    let ended = Arc::new(AtomicBool::new(false));
    let tail = Tail {
        file: File::open(&serial)?,
        ended: ended.clone(),
    };
    let mut kept = File::create(dir.join("bochs.out"))?;
    thread::spawn(move || {
        // Its end is what matters; what it says is for people.
        let _ = io::copy(&mut talk, &mut kept);
        ended.store(true, Ordering::Release);
    });
    Ok(Vm::with_output(
        child,
        tail,
        File::create(dir.join("console.log"))?,
    ))
}

/// A file that grows until `ended`.
struct Tail {
    file: File,
    ended: Arc<AtomicBool>,
}

impl Read for Tail {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            // Looked at first: what was written before the end is still read.
            let last = self.ended.load(Ordering::Acquire);
            let n = self.file.read(buf)?;
            if n > 0 || last {
                return Ok(n);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_growing_file_is_read_to_its_end() {
        let path = std::env::temp_dir().join(format!("xenolith-tail-{}", std::process::id()));
        let mut writer = File::create(&path).expect("a temporary file");
        let ended = Arc::new(AtomicBool::new(false));
        let mut tail = Tail {
            file: File::open(&path).expect("just created"),
            ended: ended.clone(),
        };
        writer.write_all(b"one").expect("writable");
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(80));
            writer.write_all(b" two").expect("writable");
            ended.store(true, Ordering::Release);
        });
        let mut text = String::new();
        tail.read_to_string(&mut text).expect("readable");
        late.join().expect("no panic");
        let _ = fs::remove_file(&path);
        assert_eq!(text, "one two");
    }

    #[test]
    fn the_machine_is_in_the_configuration() {
        let mut machine = Machine::load("bochs").expect("the file is there");
        machine.cpus = 2;
        machine.devices = vec!["cpu: exclude_features=vmx".into()];
        let text = config(&machine, Path::new("/x.iso"), Path::new("/d")).expect("valid");
        for part in [
            "model=corei7_skylake_x, count=1:2:1",
            "path=/x.iso",
            "dev=/d/serial",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.ends_with("exclude_features=vmx\n"));
        machine.memory = "1G".into();
        assert!(config(&machine, Path::new("/x.iso"), Path::new("/d")).is_err());
    }
}
