//! What ends a domain, or holds it: `destroy`, `shutdown`, `reboot`, `pause`, `unpause`.

use super::host::Host;
use super::{Args, Command, Context, Failure, Opt, Outcome};
use crate::domain::real::Real;
use crate::domain::teardown;
use xen_abi::DomId;
use xen_abi::domctl::trigger;
use xen_sys::xen::Domain;
use xen_sys::xenstore::Transaction;

const STOP: &[Opt] = &[
    Opt::flag(Some('a'), &["all"], "all domains but this one"),
    Opt::flag(Some('w'), &["wait"], "wait until they have stopped"),
    Opt::flag(
        Some('F'),
        &[],
        "press the power button of those that cannot be asked",
    ),
];

const fn one(
    name: &'static str,
    help: &'static str,
    run: fn(&Context, &Args) -> Outcome,
) -> Command {
    Command {
        name,
        options: &[],
        usage: "<Domain>",
        help,
        min: 1,
        dry_run: false,
        run,
    }
}

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        options: &[Opt::flag(Some('f'), &[], "even this domain")],
        ..one("destroy", "End a domain at once", destroy)
    },
    Command {
        options: STOP,
        usage: "[options] <-a|Domain>",
        min: 0,
        ..one("shutdown", "Ask a domain to power off", shutdown)
    },
    Command {
        options: STOP,
        usage: "[options] <-a|Domain>",
        min: 0,
        ..one("reboot", "Ask a domain to start anew", reboot)
    },
    one("pause", "Stop the vCPUs of a domain", pause),
    one("unpause", "Let a paused domain go on", unpause),
];

/// The domain that a command line names, unless it is this one.
fn other(host: &mut Host, args: &Args, what: &str) -> super::failure::Result<Domain> {
    let word = args.word(0).unwrap_or_default();
    let domain = host.domain(word)?;
    match domain.id() {
        DomId::DOM0 => Err(Failure::new(format!("cannot {what} domain 0"))),
        _ => Ok(domain),
    }
}

fn destroy(_: &Context, args: &Args) -> Outcome {
    let mut host = Host::open()?;
    let domain = other(&mut host, args, "destroy")?;
    let result = teardown::destroy(&mut Real::open()?, domain.id(), &domain.uuid());
    result.map_err(|f| f.context(format!("domain {}", domain.id().0)))
}

fn pause(_: &Context, args: &Args) -> Outcome {
    let mut host = Host::open()?;
    let domain = other(&mut host, args, "pause")?;
    Ok(host.xen.pause(domain.id())?)
}

fn unpause(_: &Context, args: &Args) -> Outcome {
    let mut host = Host::open()?;
    let domain = other(&mut host, args, "unpause")?;
    Ok(host.xen.unpause(domain.id())?)
}

fn shutdown(_: &Context, args: &Args) -> Outcome {
    ask(args, "shutdown", "poweroff")
}

fn reboot(_: &Context, args: &Args) -> Outcome {
    ask(args, "reboot", "reboot")
}

/// Asks one domain or all.
fn ask(args: &Args, command: &str, order: &str) -> Outcome {
    let mut host = Host::open()?;
    let domains = match (args.has("all"), args.words.is_empty()) {
        (true, true) => {
            let mut all = host.xen.domains()?;
            all.retain(|d| d.id() != DomId::DOM0);
            all
        }
        (false, false) => vec![other(&mut host, args, command)?],
        _ => {
            let message = format!("'xl {command}' needs a domain or -a, not both");
            return Err(Failure::usage(message));
        }
    };
    let mut asked = Vec::new();
    let mut failures = Vec::new();
    for domain in domains {
        match ask_one(&mut host, &domain, order, args.has("F")) {
            Ok(()) => asked.push(domain),
            Err(failure) => failures.push(failure.message),
        }
    }
    if args.has("wait") {
        wait(&mut host, &asked)?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(failures.join("; "))),
    }
}

fn ask_one(host: &mut Host, domain: &Domain, order: &str, fallback: bool) -> Outcome {
    let domid = domain.id().0;
    let control = format!("/local/domain/{domid}/control");
    if host.read(&format!("{control}/shutdown")).is_some() {
        let path = format!("{control}/shutdown");
        return Ok(host
            .store
            .write(Transaction::NONE, &path, order.as_bytes())?);
    }
    if !fallback {
        let message = format!(
            "domain {domid} cannot be asked: it has no {control}/shutdown; 'xl destroy {domid}' ends it"
        );
        return Err(Failure::new(message));
    }
    let which = match order {
        "reboot" => trigger::RESET,
        _ => trigger::POWER,
    };
    let result = host.xen.trigger(domain.id(), which, 0);
    result.map_err(|e| Failure::new(format!("domain {domid} has no power button either: {e}")))
}

/// Returns when all of them have stopped or are gone. A number that is given to another domain meanwhile counts as gone.
fn wait(host: &mut Host, domains: &[Domain]) -> Outcome {
    let token = "xl-stop";
    host.store.watch("@releaseDomain", token)?;
    loop {
        let mut left = false;
        for d in domains {
            let now = host.xen.domain(d.id())?;
            let same = now.filter(|n| n.0.handle == d.0.handle);
            left |= same.is_some_and(|n| n.shutdown_reason().is_none());
        }
        if !left {
            break;
        }
        // An event may be lost with a restart of xenstored: look again now and then.
        host.store.event(Some(std::time::Duration::from_secs(5)))?;
    }
    host.store.unwatch("@releaseDomain", token)?;
    Ok(())
}
