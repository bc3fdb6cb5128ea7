//! One run: the named machine in QEMU, a hypervisor, a guest as its dom0, the serial console read to the end.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::report::Report;

/// What to boot.
pub(crate) enum Hypervisor<'a> {
    Xenolith(&'a Path),
    Xen(&'a Path),
}

impl Hypervisor<'_> {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Xenolith(_) => "xenolith",
            Self::Xen(_) => "xen-4.17",
        }
    }
}

/// Guests that restore their FPU state without end. On several CPUs of the host a fault of QEMU's would end them (the guide to
/// testing tells of it); the others run truly at the same time where the host can.
const BOUND: &[&str] = &["fpu"];

/// QEMU, all its threads on one CPU of the host if this guest needs that.
fn emulator(guest: &Path, args: &Args) -> Command {
    const QEMU: &str = "qemu-system-x86_64";
    let bound = guest
        .file_name()
        .is_some_and(|name| BOUND.iter().any(|b| name == *b));
    match first_cpu() {
        Some(cpu) if bound && !args.parallel => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), QEMU]);
            command
        }
        _ => Command::new(QEMU),
    }
}

/// The first CPU of the host that this process may use.
fn first_cpu() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.split_once("Cpus_allowed_list:")?.1.trim_start();
    let digits = list.find(|c: char| !c.is_ascii_digit())?;
    list[..digits].parse().ok()
}

/// Ends QEMU whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already dead is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots `guest` and reads the console until the result line, the end of the machine, or the time-out.
pub(crate) fn run(
    hypervisor: &Hypervisor<'_>,
    guest: &Path,
    args: &Args,
) -> Result<Report, String> {
    let mut qemu = emulator(guest, args);
    let guest = guest.to_str().ok_or("path of the guest is not UTF-8")?;
    qemu.args([
        "-machine",
        "q35,kernel-irqchip=split",
        "-device",
        "amd-iommu,intremap=on,xtsup=on",
    ])
    .args(["-m", "2G", "-smp", &args.smp.to_string(), "-cpu", &args.cpu])
    .args([
        "-display",
        "none",
        "-serial",
        "stdio",
        "-monitor",
        "none",
        "-no-reboot",
    ])
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped());
    if let Some(plugin) = &args.count {
        let out = crate::count::file(hypervisor.name());
        if let Some(dir) = out.parent() {
            std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        qemu.arg("-plugin")
            .arg(format!("{},out={}", plugin.display(), out.display()));
    }
    match hypervisor {
        Hypervisor::Xenolith(image) => {
            // QEMU gives a PVH module no command line of its own: the dom0 part follows the double dash.
            let line = format!(
                "dom0=pvh dom0_mem=512M console=com1 com1=115200,8n1 noreboot loglvl=all {} -- {}",
                args.hv_args, args.guest_args
            );
            qemu.arg("-kernel")
                .arg(image)
                .args(["-append", &line, "-initrd", guest]);
        }
        Hypervisor::Xen(image) => {
            // cpuidle=0: MWAIT faults in QEMU's TCG and Xen would panic in its idle loop. bootscrub=0: scrubbing in
            // the background can hold up a populate for a minute.
            let line = format!(
                "dom0=pvh dom0_mem=512M console=com1 com1=115200,8n1 noreboot loglvl=all cpuidle=0 bootscrub=0 {}",
                args.hv_args
            );
            let module = format!("{guest} {}", args.guest_args.replace(',', ",,"));
            qemu.arg("-kernel")
                .arg(image)
                .args(["-append", &line, "-initrd", &module]);
        }
    }
    let mut running = Running(
        qemu.spawn()
            .map_err(|e| format!("qemu-system-x86_64: {e}"))?,
    );
    let mut pipe = running.0.stdout.take().ok_or("no console pipe")?;
    let mut errors = running.0.stderr.take().ok_or("no error pipe")?;
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n) = pipe.read(&mut buffer) {
            if n == 0 || send.send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut deadline = Instant::now() + Duration::from_secs(args.timeout);
    let mut console = Vec::new();
    let mut finished = false;
    let silence = loop {
        match receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(bytes) => console.extend(bytes),
            Err(RecvTimeoutError::Disconnected) => {
                break "the machine ended without a result".to_string();
            }
            Err(RecvTimeoutError::Timeout) => break format!("no result within {} s", args.timeout),
        }
        if !finished && has_result(&console) {
            finished = true;
            // Xen halts instead of powering off; nothing after the result matters.
            deadline = Instant::now() + Duration::from_millis(300);
        }
    };
    drop(running);
    for line in errors.join().unwrap_or_default().lines() {
        // What the emulator cannot do of a CPU model is said at every start and never matters here.
        if !line.contains("TCG doesn't support") && !line.contains("terminating on signal") {
            eprintln!("{line}");
        }
    }
    Ok(Report::parse(&String::from_utf8_lossy(&console), &silence))
}

/// True once a whole `TEST` line is there.
fn has_result(console: &[u8]) -> bool {
    let start = match console.windows(6).rposition(|w| w == b"\nTEST ") {
        Some(at) => at + 1,
        None => return false,
    };
    console[start..].contains(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::has_result;

    #[test]
    fn a_result_is_a_whole_line() {
        assert!(!has_result(b"FACT a 1\n"));
        assert!(!has_result(b"x\nTEST g: SUCC"));
        assert!(has_result(b"x\nTEST g: SUCCESS\r\n"));
    }
}
