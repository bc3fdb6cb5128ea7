//! The hypervisor's log and keys, its security module, and pokes at a domain: `dmesg`, `debug-keys`, `getenforce`,
//! `loadpolicy`, `sysrq`, `trigger`.

use super::host::{Host, Report, Versioned, xen};
use super::{Args, Command, Context, Failure, Opt, Outcome, output};
use serde_json::json;
use xen_abi::domctl::trigger;
use xen_sys::xenstore::Transaction;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "dmesg",
        options: &[Opt::flag(Some('c'), &["clear"], "empty the log afterwards")],
        usage: "[-c]",
        help: "Show the hypervisor's log",
        min: 0,
        dry_run: false,
        run: dmesg,
    },
    Command {
        name: "debug-keys",
        options: &[],
        usage: "<Keys>",
        help: "Press debug keys of the hypervisor",
        min: 1,
        dry_run: false,
        run: debug_keys,
    },
    Command {
        name: "getenforce",
        options: &[],
        usage: "",
        help: "Say whether Flask enforces its policy",
        min: 0,
        dry_run: false,
        run: getenforce,
    },
    Command {
        name: "loadpolicy",
        options: &[],
        usage: "<policy file>",
        help: "Load a policy of the Flask security module",
        min: 1,
        dry_run: false,
        run: loadpolicy,
    },
    Command {
        name: "sysrq",
        options: &[],
        usage: "<Domain> <letter>",
        help: "Send a SysRq letter to a Linux domain",
        min: 2,
        dry_run: false,
        run: sysrq,
    },
    Command {
        name: "trigger",
        options: &[],
        usage: "<Domain> <nmi|reset|init|power|sleep|s3resume> [<VCPU>]",
        help: "Send an NMI, a reset, a button or the like to a domain",
        min: 2,
        dry_run: false,
        run: send_trigger,
    },
];

fn dmesg(context: &Context, args: &Args) -> Outcome {
    let log = xen()?.console(args.has("clear"))?;
    let text = String::from_utf8_lossy(&log).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let json = Versioned::new(json!({ "lines": lines }));
    let report = Report::new(String::new(), &json)?;
    match context.json {
        true => report.print(context),
        false => output::print(&text),
    }
}

fn debug_keys(_: &Context, args: &Args) -> Outcome {
    Ok(xen()?.debug_keys(args.word(0).unwrap_or_default())?)
}

/// The exit codes are those of Xen's `xl`: what Flask answers, or -1.
fn getenforce(context: &Context, _: &Args) -> Outcome {
    let (text, word, code) = match xen()?.enforcing()? {
        Some(true) => ("Enforcing", "enforcing", 1),
        Some(false) => ("Permissive", "permissive", 0),
        None => ("Flask XSM Disabled", "disabled", 255),
    };
    let value = Versioned::new(json!({ "flask": word }));
    Report::new(format!("{text}\n"), &value)?.print(context)?;
    match code {
        0 => Ok(()),
        code => Err(Failure::silent(code)),
    }
}

fn loadpolicy(_: &Context, args: &Args) -> Outcome {
    let file = args.word(0).unwrap_or_default();
    Err(Failure::new(match xen()?.enforcing()? {
        None => format!("cannot load {file}: the hypervisor has no Flask security module"),
        Some(_) => {
            format!("cannot load {file}: loading a Flask policy is not built yet; use Xen's xl")
        }
    }))
}

fn sysrq(_: &Context, args: &Args) -> Outcome {
    let (word, letter) = (&args.words[0], &args.words[1]);
    if letter.chars().count() != 1 {
        return Err(Failure::new(format!(
            "Invalid sysrq '{letter}': one letter is needed, such as s or b"
        )));
    }
    let host = &mut Host::open()?;
    let domid = host.domain(word)?.id().0;
    let path = format!("/local/domain/{domid}/control/sysrq");
    host.store
        .write(Transaction::NONE, &path, letter.as_bytes())?;
    Ok(())
}

fn send_trigger(_: &Context, args: &Args) -> Outcome {
    let (word, name) = (&args.words[0], args.words[1].as_str());
    let number = match name {
        "nmi" => trigger::NMI,
        "reset" => trigger::RESET,
        "init" => trigger::INIT,
        "power" => trigger::POWER,
        "sleep" => trigger::SLEEP,
        "s3resume" => {
            return Err(Failure::new(
                "trigger s3resume needs a device model, which PVH guests do not have",
            ));
        }
        _ => {
            return Err(Failure::new(format!(
                "Invalid trigger \"{name}\"; nmi, reset, init, power and sleep are known"
            )));
        }
    };
    let vcpu = match args.word(2) {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Failure::new(format!("Invalid vcpuid '{text}': a number is needed")))?,
    };
    let host = &mut Host::open()?;
    let domid = host.domain(word)?.id();
    host.xen.trigger(domid, number, vcpu).map_err(|e| {
        Failure::new(format!(
            "cannot send {name} to vCPU {vcpu} of domain '{word}': {e}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};

    #[test]
    fn the_log_is_shown_and_emptied() {
        let f = Fixture::new();
        f.machine.borrow_mut().console = b"(XEN) one\n(XEN) two\n".to_vec();
        assert_eq!(printed("dmesg"), "(XEN) one\n(XEN) two\n");
        assert_eq!(json("dmesg")["lines"][1], "(XEN) two");
        assert_eq!(printed("dmesg -c"), "(XEN) one\n(XEN) two\n");
        assert_eq!(printed("dmesg"), "");
    }

    #[test]
    fn flask() {
        let f = Fixture::new();
        assert_eq!(run("getenforce"), (255, "Flask XSM Disabled\n".into()));
        assert!(
            run("getenforce --json")
                .1
                .contains("\"flask\": \"disabled\"")
        );
        assert_eq!(run("loadpolicy /p").0, 1);
        f.machine.borrow_mut().enforcing = Some(false);
        assert_eq!(run("getenforce"), (0, "Permissive\n".into()));
        f.machine.borrow_mut().enforcing = Some(true);
        assert_eq!(run("getenforce"), (1, "Enforcing\n".into()));
    }

    #[test]
    fn pokes_reach_their_domain() {
        let f = Fixture::new();
        printed("debug-keys qh");
        printed("trigger web nmi 1");
        printed("trigger 3 reset");
        assert_eq!(
            f.machine.borrow().log,
            ["keys qh", "trigger 0 of d3v1", "trigger 1 of d3v0"]
        );
        printed("sysrq web s");
        assert_eq!(f.store.get("/local/domain/3/control/sysrq").unwrap(), "s");
    }

    #[test]
    fn errors() {
        let _f = Fixture::new();
        for (line, code, part) in [
            ("sysrq web sb", 1, "Invalid sysrq 'sb'"),
            ("sysrq web", 2, "requires at least 2 arguments"),
            ("trigger web bang", 1, "Invalid trigger"),
            ("trigger web nmi x", 1, "Invalid vcpuid 'x'"),
            ("trigger 99 nmi", 1, "Domain '99' does not exist"),
            ("debug-keys", 2, "requires at least 1 argument."),
        ] {
            let (found, text) = run(line);
            assert_eq!(found, code, "{line}");
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
