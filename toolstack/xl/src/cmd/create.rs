//! `create`, `config-update`.

use super::failure::Result;
use super::{Args, Command, Context, Failure, Opt, Outcome, output};
use crate::bootloader;
use crate::build::{self, BuildError, Image};
use crate::cfg::{self, DomainConfig, Parsed};
use crate::domain::execute::{Job, execute};
use crate::domain::plan::{self, HostFacts, Step};
use crate::domain::real::Real;
use crate::domain::{json, monitor, teardown};
use kernel_image::bzimage::Image as KernelFile;
use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;
use std::process::{Command as Program, Stdio};
use std::sync::OnceLock;
use std::time::Instant;
use xen_abi::DomId;
use xen_abi::sysctl::physcap;
use xen_sys::xen::Xen;
use xen_sys::xenstore::Transaction;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "create",
        options: &[
            Opt::flag(Some('c'), &[], "connect to the console"),
            Opt::flag(Some('p'), &[], "leave it paused"),
            Opt::flag(Some('q'), &["quiet"], "say less"),
            Opt::flag(
                Some('n'),
                &["dryrun", "dry-run"],
                "show config and plan, and do nothing",
            ),
            Opt::flag(Some('d'), &[], "show the config on standard error as well"),
            Opt::flag(
                Some('e'),
                &[],
                "do not wait in the background for the domain's end",
            ),
            Opt::flag(
                Some('F'),
                &[],
                "wait in the foreground for the domain's end",
            ),
            Opt::with(Some('f'), &["defconfig"], "FILE", "config file"),
            Opt::flag(
                Some('i'),
                &["ignore-global-affinity-masks"],
                "no effect: there are none",
            ),
            Opt::flag(Some('V'), &["vncviewer"], "not for PVH domains"),
            Opt::flag(Some('A'), &["vncviewer-autopass"], "not for PVH domains"),
            Opt::flag(None, &["timing"], "show how long each phase took"),
        ],
        usage: "[options] [config] [key=value...]",
        help: "Build and start a domain from a config file",
        min: 0,
        dry_run: true,
        run: create,
    },
    Command {
        name: "config-update",
        options: &[
            Opt::with(Some('f'), &["defconfig"], "FILE", "config file"),
            Opt::flag(Some('d'), &[], "show the config on standard error as well"),
            Opt::flag(Some('q'), &["quiet"], "say less"),
        ],
        usage: "<Domain> [config] [key=value...]",
        help: "Replace the config that a running domain gets at its next restart",
        min: 1,
        dry_run: true,
        run: config_update,
    },
];

/// Exit code of Xen's `xl` for a config that it does not understand.
const NOT_UNDERSTOOD: u8 = 1;
/// libxl's FAIL, for what cannot be carried out.
const FAIL: u8 = 3;

/// A config with the text that it was made from.
pub struct Loaded {
    /// What was read.
    pub config: DomainConfig,
    /// File and words of the command line as one text.
    pub source: String,
}

/// Reads the config that a command line names.
fn load(args: &Args, words: &[String]) -> Result<Loaded> {
    let mut file = args.value("defconfig").map(str::to_owned);
    let mut overrides = Vec::new();
    for word in words {
        match (word.contains('='), &file) {
            (true, _) => overrides.push(word.clone()),
            (false, None) => file = Some(word.clone()),
            (false, Some(first)) => {
                let message = format!("two config files, {first} and {word}");
                return Err(Failure::usage(message));
            }
        }
    }
    let Some(name) = file else {
        return Err(Failure::usage("no config file; write 'xl create FILE'"));
    };
    let mut text = String::new();
    let result = match name.as_str() {
        "-" | "/dev/stdin" => std::io::stdin().read_to_string(&mut text).map(drop),
        path => std::fs::read_to_string(path).map(|t| text = t),
    };
    result.map_err(|e| Failure::with_code(FAIL, format!("{name}: {e}")))?;
    let parsed = cfg::parse(&name, &text, &overrides);
    let parsed = parsed.map_err(|e| Failure::with_code(NOT_UNDERSTOOD, e.to_string()))?;
    let Parsed { config, warnings } = parsed;
    if !args.has("quiet") {
        warnings.iter().for_each(|w| eprintln!("xl: warning: {w}"));
    }
    let mut source = text;
    for word in overrides {
        source.push('\n');
        source.push_str(&word);
    }
    Ok(Loaded { config, source })
}

/// Phases and how long they took.
struct Timing {
    start: Instant,
    current: &'static str,
    phases: Vec<(&'static str, f64)>,
}

impl Timing {
    fn new(phase: &'static str) -> Timing {
        Timing {
            start: Instant::now(),
            current: phase,
            phases: Vec::new(),
        }
    }

    /// A phase begins, perhaps the one that is under way; the time since the last call belongs to that.
    fn begin(&mut self, phase: &'static str) {
        let took = self.start.elapsed().as_secs_f64() * 1000.0;
        self.start = Instant::now();
        let before = std::mem::replace(&mut self.current, phase);
        match self.phases.last_mut().filter(|(name, _)| *name == before) {
            Some((_, sum)) => *sum += took,
            None => self.phases.push((before, took)),
        }
    }

    fn text(&self) -> String {
        let total: f64 = self.phases.iter().map(|(_, t)| t).sum();
        let line = |name: &str, ms: f64| format!("{name:<24}{ms:>10.1} ms\n");
        let mut text: String = self.phases.iter().map(|(n, t)| line(n, *t)).collect();
        text.push_str(&line("all", total));
        text
    }
}

fn phase(step: &Step) -> &'static str {
    match step {
        Step::Populate(_) | Step::Claim(_) => "memory",
        Step::Unpacked => "wait for the kernel",
        Step::Write(..) => "copy of the image",
        Step::Disk(..) | Step::Vif(_) | Step::Console => "devices",
        Step::Unpause => "first run",
        _ => "domain",
    }
}

/// Files of a guest.
pub struct Files {
    /// The file, and what it is called in messages.
    kernel: (Vec<u8>, String),
    unpacked: OnceLock<Result<Vec<u8>>>,
    ramdisk: Option<Vec<u8>>,
    /// What a boot loader says in place of the config's.
    cmdline: Option<String>,
}

impl Files {
    /// Reads them, or lets a boot loader find them; it may `talk` on this program's terminal.
    ///
    /// # Errors
    /// Which file cannot be read, and why.
    pub fn read(config: &DomainConfig, talk: bool) -> Result<Files> {
        if let Some(loader) = &config.bootloader {
            let found = bootloader::run(config, loader, talk)?;
            return Ok(Files {
                kernel: (found.kernel, loader.program.clone()),
                unpacked: OnceLock::new(),
                ramdisk: found.ramdisk,
                cmdline: Some(found.cmdline),
            });
        }
        let read = |path: &str| {
            std::fs::read(path).map_err(|e| Failure::with_code(FAIL, format!("{path}: {e}")))
        };
        Ok(Files {
            kernel: (read(&config.kernel)?, config.kernel.clone()),
            unpacked: OnceLock::new(),
            ramdisk: config.ramdisk.as_deref().map(read).transpose()?,
            cmdline: None,
        })
    }

    /// The kernel, unpacked by whoever asks first; others wait for that.
    ///
    /// # Errors
    /// If it cannot be unpacked.
    pub fn unpacked(&self) -> Result<&[u8]> {
        let (file, name) = &self.kernel;
        let result = self.unpacked.get_or_init(|| unpack(file, name));
        result.as_deref().map_err(Failure::clone)
    }

    /// Places them.
    ///
    /// # Errors
    /// If the kernel cannot be used, or memory is too small.
    pub fn image<'a>(&'a self, config: &'a DomainConfig) -> Result<Image<'a>> {
        let parts = build::Parts {
            kernel: self.unpacked()?,
            ramdisk: self.ramdisk.as_deref(),
            cmdline: self.cmdline.as_deref().unwrap_or(&config.cmdline),
            memory: config.memory << 10,
            vcpus: config.maxvcpus,
        };
        build::build(&parts).map_err(|e| {
            let place = match &e {
                BuildError::Kernel(_) => &config.kernel,
                BuildError::Memory(..) => &config.name,
            };
            Failure::with_code(FAIL, format!("{place}: {e}"))
        })
    }
}

fn unpack(file: &[u8], name: &str) -> Result<Vec<u8>> {
    let unpacked = KernelFile::parse(file).and_then(KernelFile::unpack);
    unpacked
        .map(Cow::into_owned)
        .map_err(|e| Failure::with_code(FAIL, format!("{name}: {e}")))
}

fn create(context: &Context, args: &Args) -> Outcome {
    let mut timing = Timing::new("config");
    let Loaded { config, source } = load(args, &args.words)?;
    if args.has("vncviewer") || args.has("vncviewer-autopass") {
        return Err(Failure::usage(
            "PVH domains have no screen: leave -V and -A out",
        ));
    }
    if args.has("d") {
        eprint!("{}", json::text(&config)?);
    }
    if context.dry_run || args.has("dryrun") {
        // A boot loader only looks; with -c it may ask.
        let files = Files::read(&config, args.has("c"))?;
        let image = files.image(&config)?;
        output::print(&json::text(&config)?)?;
        if !args.has("quiet") {
            let facts = HostFacts::default();
            let steps = plan::plan(&config, &facts, &image, args.has("p"));
            steps.iter().for_each(|s| eprintln!("{s}"));
        }
        return Ok(());
    }
    timing.begin("kernel and RAM disk");
    let files = Files::read(&config, args.has("c"))?;
    timing.begin("domain");
    let mut sys = Real::open()?;
    let attach = args.has("c");
    let started = start(&mut sys, config, &files, &source, true, &mut |step| {
        if context.verbose > 0 {
            eprintln!("xl: {step}");
        }
        timing.begin(phase(step));
    })?;
    timing.begin("first run");
    if attach {
        attach_console(&mut sys, started.domid)?;
    }
    if !args.has("p") {
        started.unpause(&mut sys)?;
    }
    timing.begin("");
    if !args.has("quiet") {
        let (name, domid) = (&started.config.name, started.domid.0);
        match context.json {
            true => {
                output::json(&serde_json::json!({ "version": 1, "domid": domid, "name": name }))?
            }
            false => eprintln!("xl: domain {domid} '{name}' made"),
        }
    }
    if args.has("timing") {
        eprint!("{}", timing.text());
    }
    let domid = started.domid;
    if args.has("F") {
        return monitor::run(&mut sys, domid);
    }
    if !args.has("e") {
        monitor::spawn(&started.config.name, domid)?;
    }
    if attach {
        // The console's window is this one, until the user leaves it.
        let mut console = Program::new(own_program());
        let status = console.args(["console", &domid.0.to_string()]).status();
        status.map_err(|e| Failure::new(format!("cannot connect to the console: {e}")))?;
    }
    Ok(())
}

/// This program, for running other commands of it.
pub fn own_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "xl".into())
}

/// A domain that is built and still paused.
pub struct Started {
    /// With everything chosen.
    pub config: DomainConfig,
    /// Its number.
    pub domid: DomId,
}

impl Started {
    /// Lets it run; ends it if that does not work.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn unpause(&self, sys: &mut Real) -> Outcome {
        sys.xen.unpause(self.domid).map_err(|e| {
            let uuid = cfg::domain::uuid_text(self.config.uuid.unwrap_or_default());
            let _ = teardown::destroy(sys, self.domid, &uuid);
            Failure::new(format!("cannot let it run: {e}"))
        })
    }
}

/// Chooses what is left open, checks against the host, and builds the domain; it stays paused.
///
/// # Errors
/// What is wrong; nothing is left behind.
pub fn start(
    sys: &mut Real,
    mut config: DomainConfig,
    files: &Files,
    source: &str,
    unique: bool,
    progress: &mut dyn FnMut(&Step),
) -> Result<Started> {
    if config.uuid.is_none() {
        let mut uuid = random::<16>()?;
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        config.uuid = Some(uuid);
    }
    for vif in &mut config.vifs {
        if vif.mac.is_none() {
            vif.mac = Some(random_mac()?);
        }
    }
    if unique {
        let store = crate::domain::system::System::store(sys)?;
        if let Ok(other) = super::domain_arg::find(store, &config.name) {
            let message = format!(
                "domain {} is already called '{}'; 'xl rename' or name=\"...\" changes that",
                other.0, config.name
            );
            return Err(Failure::with_code(FAIL, message));
        }
    }
    let facts = facts(sys, &config)?;
    check_pins(&config, &facts)?;
    check_memory(
        &sys.xen,
        &build::frames(config.memory << 10, config.maxvcpus),
    )?;
    let job = Job {
        config: &config,
        source,
        progress,
    };
    // Of all that takes time, only the copy of the image needs the kernel.
    let domid = std::thread::scope(|scope| {
        scope.spawn(|| files.unpacked().is_ok());
        execute(sys, &plan::domain(&config, &facts), job, || {
            let image = files.image(&config)?;
            let steps = plan::image(&config, &image, true);
            Ok((image, steps))
        })
    })?;
    Ok(Started { config, domid })
}

/// A hardware address with Xen's prefix that nobody else is likely to have.
///
/// # Errors
/// If there is no randomness.
pub(super) fn random_mac() -> Result<[u8; 6]> {
    let [a, b, c] = random::<3>()?;
    Ok([0x00, 0x16, 0x3e, a & 0x7f, b, c])
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn facts(sys: &mut Real, config: &DomainConfig) -> Result<HostFacts> {
    let info = sys.xen.physinfo()?;
    let topology = sys.xen.cpu_topology()?;
    let pool = match config.pool.as_deref() {
        None | Some("Pool-0" | "0") => 0,
        Some(wanted) => {
            let pools = sys.xen.pools()?;
            let store = crate::domain::system::System::store(sys)?;
            let called = |id: u32| {
                let name = store.read(Transaction::NONE, &format!("/local/pool/{id}/name"));
                name.is_ok_and(|n| n == wanted.as_bytes()) || wanted == id.to_string()
            };
            let mut ids = pools.iter().map(|p| p.id);
            let mut called = called;
            ids.find(|id| called(*id)).ok_or_else(|| {
                let message =
                    format!("there is no CPU pool '{wanted}'; 'xl cpupool-list' shows them");
                Failure::with_code(FAIL, message)
            })?
        }
    };
    Ok(HostFacts {
        nodes: topology.iter().map(|t| t.node).collect(),
        grant_v2: info.capabilities & physcap::GNTTAB_V2 != 0,
        pool,
    })
}

fn check_pins(config: &DomainConfig, facts: &HostFacts) -> Outcome {
    for (name, lists) in [("cpus", &config.cpus), ("cpus_soft", &config.cpus_soft)] {
        if lists.iter().any(|l| l.cpus(&facts.nodes).is_empty()) {
            let most = facts.nodes.len().saturating_sub(1);
            let message = format!("{name} names no CPU of this machine, which has 0 to {most}");
            return Err(Failure::with_code(FAIL, message));
        }
    }
    Ok(())
}

/// Says in numbers what is missing before anything is made.
fn check_memory(xen: &Xen, frames: &[Range<u64>]) -> Outcome {
    let info = xen.physinfo()?;
    let need: u64 = frames.iter().map(|r| r.end - r.start).sum();
    let free = info.free_pages.saturating_sub(info.outstanding_pages);
    if need <= free {
        return Ok(());
    }
    let message = format!(
        "the domain needs {} MiB, and {} MiB are free: lower memory=, end another domain, or let dom0 give some \
         back ('xl mem-set 0', or dom0_mem= on the hypervisor's command line)",
        need.div_ceil(256),
        free / 256
    );
    Err(Failure::with_code(FAIL, message))
}

/// Waits until xenconsoled has made a terminal.
fn attach_console(sys: &mut Real, domid: DomId) -> Outcome {
    use crate::domain::system::System;
    let path = format!("{}/tty", crate::device::console::front(domid));
    let there = |tty: Option<&str>| tty.is_some_and(|t| !t.is_empty());
    if sys.wait(&path, &there, 10)? {
        return Ok(());
    }
    let message = "xenconsoled has made no terminal in 10 s; is it running? The domain is left paused: 'xl destroy' ends it, \
                   'xl unpause' lets it run";
    Err(Failure::new(message))
}

fn config_update(context: &Context, args: &Args) -> Outcome {
    use crate::domain::system::System;
    let (word, rest) = args
        .words
        .split_first()
        .unwrap_or_else(|| unreachable!("min is 1"));
    let Loaded { config, source } = load(args, rest)?;
    if args.has("d") {
        eprint!("{}", json::text(&config)?);
    }
    if context.dry_run {
        return output::print(&json::text(&config)?);
    }
    let mut host = super::host::Host::open()?;
    let domain = host.domain(word)?;
    let mut sys = Real::open()?;
    let uuid = domain.uuid();
    sys.save(&teardown::userdata(domain.id(), &uuid, "xl"), &source)?;
    sys.save(
        &teardown::userdata(domain.id(), &uuid, "libxl-json"),
        &json::text(&config)?,
    )?;
    Ok(())
}

/// Detaches a program from this one's terminal.
pub fn background(program: &mut Program) -> &mut Program {
    program.stdin(Stdio::null())
}
