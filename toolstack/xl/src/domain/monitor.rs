//! What stays behind after `create`: a process for each domain that waits for its end and does what the config says then.

use super::live;
use super::real::Real;
use super::system::System;
use super::teardown::{self, userdata};
use crate::cfg;
use crate::cfg::domain::{Action, Actions};
use crate::cmd::create::{Files, background, own_program, start};
use crate::cmd::dump;
use crate::cmd::failure::{Failure, Outcome, Result};
use std::fs::OpenOptions;
use std::process::Command;
use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_abi::sched::shutdown;
use xen_sys::xen::Domain;
use xen_sys::xenstore::Transaction;

/// Name of the command that a monitor runs; not for people.
pub const COMMAND: &str = "-monitor";
/// Where dumps of crashed domains go, by name.
const DUMPS: &str = "/var/lib/xen/dump";
/// Where monitors write.
const LOGS: &str = "/var/log/xen";
/// How long xenstored may be away.
const RETURN: Duration = Duration::from_secs(300);
/// A domain that asks to be restarted sooner than that is not restarted: it would for ever (libxl's rule is the same).
const SOONEST: Duration = Duration::from_secs(2);

/// Starts a monitor in the background.
///
/// # Errors
/// If the program cannot be started.
pub fn spawn(name: &str, domid: DomId) -> Outcome {
    let log = || {
        std::fs::create_dir_all(LOGS).ok()?;
        let path = format!("{LOGS}/xl-{}.log", name.replace('/', "_"));
        OpenOptions::new().create(true).append(true).open(path).ok()
    };
    let mut program = Command::new(own_program());
    background(&mut program).args([COMMAND, &domid.0.to_string()]);
    match (log(), log()) {
        (Some(out), Some(err)) => program.stdout(out).stderr(err),
        _ => program
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null()),
    };
    let result = program.spawn();
    result.map(drop).map_err(|e| {
        Failure::new(format!(
            "domain {} runs, but nobody waits for its end: {e}",
            domid.0
        ))
    })
}

/// The process that [`spawn`] starts.
///
/// # Errors
/// As [`run`].
pub fn main(words: &[String]) -> Outcome {
    // A session of its own: the terminal's end is not the domain's.
    let _ = rustix::process::setsid();
    let domid = words.first().and_then(|w| w.parse().ok()).map(DomId);
    let domid = domid.ok_or_else(|| Failure::usage("no domain"))?;
    run(&mut Real::open()?, domid)
}

/// What a stopped domain's config says about this reason.
pub fn action(actions: &Actions, reason: u8) -> Action {
    match u32::from(reason) {
        shutdown::POWEROFF => actions.poweroff,
        shutdown::REBOOT => actions.reboot,
        shutdown::WATCHDOG => actions.watchdog,
        shutdown::SOFT_RESET => actions.soft_reset,
        shutdown::SUSPEND => Action::Preserve,
        _ => actions.crash,
    }
}

/// Waits for the end of a domain, and of those that take its place.
///
/// # Errors
/// If it cannot be restarted.
pub fn run(sys: &mut Real, first: DomId) -> Outcome {
    let mut domid = first;
    let mut born = Instant::now();
    let token = "xl-monitor";
    sys.store()?.watch("@releaseDomain", token)?;
    let Some(info) = sys.xen.domain(domid)? else {
        return Ok(());
    };
    let mut handle = info.0.handle;
    loop {
        let now = sys.xen.domain(domid)?.filter(|d| d.0.handle == handle);
        let Some(domain) = now else {
            eprintln!("domain {} is gone", domid.0);
            return Ok(());
        };
        let Some(reason) = domain.shutdown_reason() else {
            if let Err(error) = sys.store()?.event(Some(Duration::from_secs(30))) {
                // It may be started anew while the domain runs.
                eprintln!("xenstored has gone away ({error}); waiting for it to come back");
                sys.reconnect(RETURN)?;
                sys.store()?.watch("@releaseDomain", token)?;
            }
            continue;
        };
        match stopped(sys, &domain, reason, born)? {
            None => return Ok(()),
            Some(next) => {
                domid = next;
                born = Instant::now();
                match sys.xen.domain(domid)? {
                    Some(info) => handle = info.0.handle,
                    None => return Ok(()),
                }
            }
        }
    }
}

/// Does what the config says; the number of the domain that takes its place, if one does.
fn stopped(sys: &mut Real, domain: &Domain, reason: u8, born: Instant) -> Result<Option<DomId>> {
    let (domid, uuid) = (domain.id(), domain.uuid());
    let source = std::fs::read_to_string(userdata(domid, &uuid, "xl"));
    let source = source
        .map_err(|e| Failure::new(format!("the config of domain {} is lost: {e}", domid.0)))?;
    let parsed = cfg::parse("the kept config", &source, &[]);
    let mut config = parsed.map_err(|e| Failure::new(e.to_string()))?.config;
    live::merge(sys.store()?, domid, &mut config);
    // Renamed meanwhile, perhaps.
    if let Some(name) = crate::cmd::domain_arg::name(sys.store()?, domid) {
        config.name = name;
    }
    let mut action = action(&config.actions, reason);
    eprintln!(
        "domain {} '{}' stopped with reason {reason}: {}",
        domid.0,
        config.name,
        action.name()
    );
    let again = matches!(
        action,
        Action::Restart | Action::RenameRestart | Action::CoredumpRestart | Action::SoftReset
    );
    if again && born.elapsed() < SOONEST {
        eprintln!(
            "it lived for less than {} s and is not restarted",
            SOONEST.as_secs()
        );
        action = Action::Destroy;
    }
    match action {
        Action::Preserve => return Ok(None),
        Action::CoredumpDestroy | Action::CoredumpRestart => {
            let path = std::path::Path::new(DUMPS).join(config.name.replace('/', "_"));
            // There may be one already; the dump says if there is none.
            let _ = std::fs::create_dir_all(DUMPS);
            eprintln!("dumping core to {}", path.display());
            let start = Instant::now();
            match dump::dump(&sys.xen, domid, &path) {
                Ok(()) => eprintln!("core dumped in {:.1} s", start.elapsed().as_secs_f64()),
                Err(failure) => eprintln!("core dump failed: {failure}"),
            }
        }
        Action::SoftReset => eprintln!("it is built anew: a reset in place is not built yet"),
        _ => {}
    }
    match action {
        Action::Destroy | Action::CoredumpDestroy => {
            teardown::destroy(sys, domid, &uuid)?;
            return Ok(None);
        }
        Action::RenameRestart => {
            let name = format!("{}-{}", config.name, domid.0);
            let path = format!("/local/domain/{}/name", domid.0);
            sys.store()?
                .write(Transaction::NONE, &path, name.as_bytes())?;
        }
        _ => {
            config.uuid = cfg::domain::parse_uuid(&uuid);
            teardown::destroy(sys, domid, &uuid)?;
        }
    }
    let files = Files::read(&config, false)?;
    let started = start(sys, config, &files, &source, true, &mut |_| {})?;
    started.unpause(sys)?;
    eprintln!("it is domain {} now", started.domid.0);
    Ok(Some(started.domid))
}
