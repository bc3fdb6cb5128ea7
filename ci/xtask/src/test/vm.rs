//! Runs VM tests: media, machine, console, verdict, bundle.

use super::Peer;
use super::report::Report;
use crate::media::{self, On, Plan};
use crate::{micro, setup, ui};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};
use vm_tests::{End, FATAL, NOT_DOM0, Step, VmTest};
use vmtest::bundle::Bundle;
use vmtest::console::Outcome;
use vmtest::iso::Iso;
use vmtest::kernels::{self, Kernel};
use vmtest::machine::{Emulator, Firmware, Machine};
use vmtest::place::Place;
use vmtest::qemu::Vm;
use vmtest::{bochs, kernels as cache, paths};

/// Lines of console shown for a failed test.
const TAIL: usize = 25;

/// Series of the kernels that tests name.
const TESTED: &[&str] = &["6.1", "6.12"];

/// `Ok(seconds)` for a pass, `Err(reason)` for a failure.
pub type Verdict = Result<f32, String>;

/// What the tests share: the image and the RAM disks.
pub struct Runner {
    peer: Option<Peer>,
    hypervisor: PathBuf,
    kernels: BTreeMap<String, (Kernel, PathBuf)>,
    /// Factor on all time-outs, for slow or busy hosts: `XENOLITH_TIMEOUT_SCALE`.
    scale: f32,
}

impl Runner {
    /// A runner for Xenolith, built if need be.
    pub fn new() -> Result<Self> {
        let hypervisor = crate::build::build(&crate::build::Args::default())?;
        Self::with(None, hypervisor, TESTED)
    }

    /// A runner of tests with these kernels, which must be in the cache.
    pub fn with(peer: Option<Peer>, hypervisor: PathBuf, series: &[&str]) -> Result<Self> {
        let scale = env::var("XENOLITH_TIMEOUT_SCALE")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(1.0);
        let mut kernels = BTreeMap::new();
        for series in series {
            let kernel = Kernel::find(series)?;
            let initrd = media::initrd(&kernel)?;
            kernels.insert((*series).to_owned(), (kernel, initrd));
        }
        Ok(Self {
            peer,
            hypervisor,
            kernels,
            scale,
        })
    }

    /// Runs one test with its bundle under `bundle`. The outer error is ours, the inner one the test's.
    pub fn run(&self, test: &VmTest, bundle: &str, place: Place) -> Result<Verdict> {
        let start = Instant::now();
        let mut verdict = Ok(0.0);
        for _ in 0..test.repeat {
            verdict = self.once(test, bundle, place)?;
            if verdict.is_err() {
                break;
            }
        }
        Ok(verdict.map(|_| start.elapsed().as_secs_f32()))
    }

    fn once(&self, test: &VmTest, bundle: &str, place: Place) -> Result<Verdict> {
        let start = Instant::now();
        let bundle = Bundle::new(bundle)?;
        let (mut vm, timeout) = self.start(test, &bundle, place)?;
        let until = Instant::now() + timeout;
        let result = watch(test, &mut vm, until);
        let verdict = match result {
            Ok(()) => Ok(start.elapsed().as_secs_f32()),
            Err(reason) => Err(format!(
                "{reason}\n{}\nkept in {}",
                tail(&vm.console.text()),
                bundle.dir.display()
            )),
        };
        drop(vm);
        bundle.keep("verdict", &format!("{verdict:?}\n"))?;
        bundle.drop_media();
        Ok(verdict)
    }

    /// Removes the bundle of a run that passed.
    pub fn forget(&self, bundle: &str) {
        // It holds nothing of interest; a leftover does no harm.
        let _ = fs::remove_dir_all(paths::logs().join(bundle.replace('/', ".")));
    }

    fn start(&self, test: &VmTest, bundle: &Bundle, place: Place) -> Result<(Vm, Duration)> {
        if Machine::load(test.machine)?.emulator == Emulator::Bochs {
            return self.start_bochs(test, bundle);
        }
        let (kernel, initrd) = self
            .kernels
            .get(test.kernel)
            .with_context(|| format!("no kernel {}", test.kernel))?;
        let on = match self.peer {
            Some(Peer::Xen) => On::Xen,
            Some(Peer::None) => On::Bare,
            None if test.direct => On::XenolithDirect,
            None => On::Xenolith,
        };
        let mut machine = media::machine(test.machine, on)?;
        machine.cpus = test.cpus;
        if test.firmware == Firmware::Efi {
            machine.firmware = Firmware::Efi;
        }
        machine
            .devices
            .extend(test.devices.iter().map(|s| s.to_string()));
        let slow = self.scale.max(1.0).ceil();
        let mut line = format!("xt.cpus={} xt.slow={slow} {}", test.cpus, test.dom0_cmdline);
        if let Some(script) = test.script {
            line += &format!(" xt.test={script}");
        }
        if test.disk_mib > 0 {
            let (disk, md5) = test_disk(test.disk_mib)?;
            link(&disk, &bundle.dir.join("disk.img"))?;
            line += &format!(" xt.bytes={} xt.md5={md5}", u64::from(test.disk_mib) << 20);
        }
        let with_tools = tools(test, kernel)?;
        let special = test.defconfig.map(|name| crate::build::image(Some(name)));
        let installed = test.installed.then(setup::Installed::get).transpose()?;
        if let Some(installed) = &installed {
            let tree = media::tree_disk()?;
            machine.devices.extend(installed.disks(&tree));
            line += " root=LABEL=dom0 ro quiet";
        }
        let own = installed.as_ref().map(|i| (&i.kernel, &i.initrd));
        let usual = (&kernel.image, with_tools.as_ref().unwrap_or(initrd));
        let (kernel, initrd) = own.unwrap_or(usual);
        let plan = Plan {
            on,
            hypervisor: special.as_ref().unwrap_or(&self.hypervisor),
            cmdline: test.cmdline,
            kernel,
            initrd,
            dom0_cmdline: &line,
            tables: test.tables,
        };
        let args = plan.args(&machine, &bundle.dir)?;
        let seconds = (machine.timeout + test.extra_time) as f32 * self.scale;
        Ok((
            Vm::start(args, &bundle.dir, place)?,
            Duration::from_secs_f32(seconds),
        ))
    }
}

impl Runner {
    /// Boots the test's micro-guest, or Linux, in Bochs.
    fn start_bochs(&self, test: &VmTest, bundle: &Bundle) -> Result<(Vm, Duration)> {
        {
            static FETCHING: Mutex<()> = Mutex::new(());
            let _one_at_a_time = FETCHING.lock().expect("no panic while locked");
            setup::tree("bochs")?;
        }
        let mut machine = Machine::load(test.machine)?;
        machine.cpus = test.cpus;
        machine
            .devices
            .extend(test.devices.iter().map(|s| s.to_string()));
        let (kernel, initrd) = self
            .kernels
            .get(test.kernel)
            .with_context(|| format!("no kernel {}", test.kernel))?;
        let slow = self.scale.max(1.0).ceil();
        let mut line = format!(
            "console=hvc0 xt.cpus={} xt.slow={slow} {}",
            test.cpus, test.dom0_cmdline
        );
        if let Some(script) = test.script {
            line += &format!(" xt.test={script}");
        }
        let guest = test.guest.map(micro::build_guest).transpose()?;
        let with_tools = tools(test, kernel)?;
        let special = test.defconfig.map(|name| crate::build::image(Some(name)));
        let iso = bundle.dir.join("boot.iso");
        vmtest::iso::build(
            &Iso {
                hypervisor: special.as_ref().unwrap_or(&self.hypervisor),
                cmdline: &format!("{} noreboot {}", crate::iso::CMDLINE, test.cmdline),
                kernel: Some(guest.as_ref().unwrap_or(&kernel.image)),
                dom0_cmdline: if guest.is_some() {
                    test.dom0_cmdline
                } else {
                    &line
                },
                initrd: guest
                    .is_none()
                    .then_some(with_tools.as_ref().unwrap_or(initrd)),
                tables: test.tables,
                efi_only: false,
            },
            &iso,
        )?;
        let seconds = (machine.timeout + test.extra_time) as f32 * self.scale;
        Ok((
            bochs::start(&machine, &iso, &bundle.dir)?,
            Duration::from_secs_f32(seconds),
        ))
    }
}

/// The RAM disk of a test whose dom0 has more than the plain one.
fn tools(test: &VmTest, kernel: &Kernel) -> Result<Option<PathBuf>> {
    Ok(match (test.tools, test.debian) {
        (_, debian) if test.system => Some(media::initrd_with_system(
            kernel,
            debian.is_some(),
            test.micro,
        )?),
        (true, Some(_)) => Some(media::initrd_with_both(kernel)?),
        (true, None) => Some(media::initrd_with_tools(kernel)?),
        (false, Some(release)) => Some(media::initrd_with_debian(kernel, release)?),
        (false, None) => None,
    })
}

/// Follows the console to the verdict.
fn watch(test: &VmTest, vm: &mut Vm, until: Instant) -> Result<(), String> {
    for step in &test.steps {
        match step {
            Step::Type(text) => vm
                .send(text)
                .map_err(|e| format!("cannot type {text:?}: {e:#}"))?,
            Step::See(text) => see(vm, text, &[], until).map(drop)?,
            Step::AtLeast(text, least) => {
                see(vm, text, &[], until)?;
                let line = see(vm, "\n", &[], until)?;
                let number = number_after(&line, text);
                if number.is_none_or(|n| n < *least) {
                    return Err(format!("wanted at least {least} after {text:?}: {line}"));
                }
            }
        }
    }
    if let Some(script) = test.script {
        let pass = format!("XT-RESULT {script} pass");
        let fail = format!("XT-RESULT {script} fail");
        see(vm, &pass, &["XT-FAIL ", &fail, NOT_DOM0], until).map(drop)?;
    }
    if test.end == End::PowerOff {
        let status = vm.wait_exit(until).map_err(|e| format!("{e:#}"))?;
        let status = status.ok_or("the machine did not switch itself off")?;
        if !status.success() {
            return Err(format!("QEMU ended with {status}"));
        }
    }
    Ok(())
}

/// The number behind the last `text` in a line.
fn number_after(line: &str, text: &str) -> Option<u64> {
    let (_, rest) = line.rsplit_once(text)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// Waits for `text` and returns its line so far; any of `bad` or a fatal text is a failure.
fn see(vm: &mut Vm, text: &str, bad: &[&str], until: Instant) -> Result<String, String> {
    let mut needles = vec![text];
    needles.extend(bad);
    needles.extend(FATAL);
    match vm.wait(&needles, until) {
        Outcome::Found(0, line) => Ok(line),
        Outcome::Found(_, line) => {
            // The reason stands behind it.
            let rest = match vm.wait(&["\n"], Instant::now() + Duration::from_secs(5)) {
                Outcome::Found(_, whole) => whole,
                _ => line,
            };
            Err(format!("the console says: {}", rest.trim()))
        }
        Outcome::TimedOut => Err(format!("time-out while waiting for {text:?}")),
        Outcome::Closed => Err(format!("the machine ended before {text:?} appeared")),
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(TAIL)..];
    shown
        .iter()
        .map(|l| format!("    | {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A disk of `mib` MiB with fixed pseudo-random contents, and its MD5 digest.
fn test_disk(mib: u32) -> Result<(PathBuf, String)> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().expect("no panic while locked");
    let path = paths::target()
        .join("image")
        .join(format!("disk-{mib}.img"));
    if !path.exists() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(mib);
        let mut bytes = Vec::with_capacity((mib as usize) << 20);
        while bytes.len() < (mib as usize) << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        let part = path.with_extension("part");
        fs::write(&part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &path)?;
    }
    let line = crate::exec::first_line("md5sum", &[&path.display().to_string()])
        .context("md5sum failed")?;
    Ok((
        path,
        line.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned(),
    ))
}

fn link(from: &Path, to: &Path) -> Result<()> {
    fs::hard_link(from, to)
        .or_else(|_| fs::copy(from, to).map(drop))
        .with_context(|| format!("cannot copy {}", from.display()))
}

/// Why a test cannot run here, if so.
fn not_here(test: &VmTest, peer: Option<Peer>) -> Option<String> {
    if test.needs_xen && peer == Some(Peer::None) {
        return Some("needs a hypervisor".into());
    }
    if test.installed
        && let Some(reason) = setup::Installed::cannot()
    {
        return Some(reason);
    }
    let (var, what) = test.needs_var?;
    env::var_os(var)
        .is_none()
        .then(|| format!("needs {what}: {var}"))
}

/// Runs all `tests`, some at a time, and adds their results.
pub fn run_all(
    tests: &[VmTest],
    peer: Option<Peer>,
    jobs: Option<usize>,
    parallel: bool,
    report: &mut Report,
) -> Result<()> {
    let hypervisor = if peer == Some(Peer::Xen) {
        cache::peer_xen()?
    } else {
        paths::image()
    };
    if peer.is_none() {
        kernels::busybox()?;
    }
    let runner = Runner::with(peer, hypervisor, TESTED)?;
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = jobs.unwrap_or(cores.min(2)).max(1);
    let next = AtomicUsize::new(0);
    let report = Mutex::new(report);
    let first_error = Mutex::new(None);
    let label = match peer {
        None => "vm",
        Some(Peer::Xen) => "xen",
        Some(Peer::None) => "bare",
    };
    thread::scope(|scope| {
        for job in 0..jobs {
            let place = Place::of_job(job, parallel);
            let (next, report, first_error, runner) = (&next, &report, &first_error, &runner);
            scope.spawn(move || {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = format!("{label}/{}", test.name);
                    if let Some(why) = not_here(test, peer) {
                        report
                            .lock()
                            .expect("no panic while locked")
                            .skip(&name, &why);
                        continue;
                    }
                    match runner.run(test, &name, place) {
                        Ok(verdict) => {
                            if let Ok(seconds) = verdict {
                                ui::say(&format!("{name}: {seconds:.1} s"));
                            }
                            report
                                .lock()
                                .expect("no panic while locked")
                                .add(&name, verdict.map(drop));
                        }
                        Err(error) => {
                            let text = format!("cannot run it: {error:#}");
                            report
                                .lock()
                                .expect("no panic while locked")
                                .add(&name, Err(text));
                            first_error
                                .lock()
                                .expect("no panic while locked")
                                .get_or_insert(());
                        }
                    }
                }
            });
        }
    });
    Ok(())
}
