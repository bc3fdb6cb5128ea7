//! `list` and its kin: what domains there are.

use super::host::{Host, Report, Versioned};
use super::{Args, Command, Context, Failure, Opt, Outcome, details};
use serde::Serialize;
use std::fmt::Write;
use xen_abi::domctl::dominf;
use xen_abi::sched::shutdown;
use xen_sys::xen::Domain;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "list",
        options: &[
            Opt::flag(Some('l'), &["long"], "print the configurations as JSON"),
            Opt::flag(
                Some('v'),
                &["verbose"],
                "also UUID, reason of a shutdown, security label",
            ),
            Opt::flag(Some('Z'), &["context"], "also security labels"),
            Opt::flag(Some('c'), &["cpupool"], "also pools of CPUs"),
            Opt::flag(Some('n'), &["numa"], "also memory nodes"),
        ],
        usage: "[options] [Domain]",
        help: "Show domains",
        min: 0,
        dry_run: false,
        run: list,
    },
    Command {
        name: "claims",
        options: &[],
        usage: "",
        help: "Show memory that is claimed but not yet used",
        min: 0,
        dry_run: false,
        run: claims,
    },
    Command {
        name: "sharing",
        options: &[],
        usage: "[Domain]",
        help: "Show what memory domains share",
        min: 0,
        dry_run: false,
        run: sharing,
    },
    Command {
        name: "vm-list",
        options: &[],
        usage: "",
        help: "Show domains with their UUIDs",
        min: 0,
        dry_run: false,
        run: vm_list,
    },
];

/// A domain in JSON. Documented in `docs/guide/xl-json.md`.
#[derive(Serialize, Debug)]
pub struct Entry {
    domid: u16,
    name: String,
    uuid: String,
    /// `pv`, `pvh` or `hvm`.
    r#type: String,
    state: &'static str,
    /// Of a shutdown.
    reason: Option<&'static str>,
    /// The six letters of the text form.
    flags: String,
    memory_kib: u64,
    max_memory_kib: u64,
    outstanding_kib: u64,
    shared_kib: u64,
    vcpus_online: u32,
    vcpus: u32,
    cpu_seconds: f64,
    cpupool: String,
    label: Option<String>,
    nodes: Vec<u32>,
}

#[derive(Serialize)]
struct Domains {
    domains: Vec<Entry>,
}

impl Entry {
    /// All that is known of a domain.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn new(host: &mut Host, domain: &Domain) -> Result<Entry, Failure> {
        let domid = domain.id();
        Ok(Entry {
            domid: domid.0,
            name: host.name(domid),
            uuid: domain.uuid(),
            r#type: kind(host, domain),
            state: state(domain),
            reason: domain.shutdown_reason().map(reason_name),
            flags: flags(domain),
            memory_kib: domain.memory_kib(),
            max_memory_kib: domain.0.max_pages.saturating_mul(4),
            outstanding_kib: domain.outstanding_kib(),
            shared_kib: domain.shared_kib(),
            vcpus_online: domain.0.nr_online_vcpus,
            vcpus: domain.vcpus(),
            cpu_seconds: domain.0.cpu_time as f64 / 1e9,
            cpupool: host.pool_name(domain.0.cpupool),
            label: host.xen.label(domain.0.ssidref),
            nodes: host.xen.node_affinity(domid)?.iter().collect(),
        })
    }
}

/// What kind of domain it is. The hypervisor only tells PV from the rest; the toolstack wrote down what it made.
pub fn kind(host: &mut Host, domain: &Domain) -> String {
    if !domain.is(dominf::HVM_GUEST) {
        return "pv".into();
    }
    let domid = domain.id().0;
    let written = host.read(&format!("/libxl/{domid}/type"));
    let default = if domid == 0 { "pvh" } else { "hvm" };
    written.unwrap_or_else(|| default.into())
}

/// The most telling state: a domain that is dying may also be paused.
pub fn state(domain: &Domain) -> &'static str {
    let states = [
        (dominf::DYING, "dying"),
        (dominf::SHUTDOWN, "shutdown"),
        (dominf::PAUSED, "paused"),
        (dominf::RUNNING, "running"),
        (dominf::BLOCKED, "blocked"),
    ];
    let found = states.iter().find(|(flag, _)| domain.is(*flag));
    found.map_or("runnable", |(_, name)| name)
}

/// A reason of a shutdown in a word.
pub fn reason_name(reason: u8) -> &'static str {
    match reason.into() {
        shutdown::POWEROFF => "poweroff",
        shutdown::REBOOT => "reboot",
        shutdown::SUSPEND => "suspend",
        shutdown::CRASH => "crash",
        shutdown::WATCHDOG => "watchdog",
        shutdown::SOFT_RESET => "soft_reset",
        _ => "unknown",
    }
}

/// The six letters.
fn flags(domain: &Domain) -> String {
    let letter = |flag, letter| if domain.is(flag) { letter } else { '-' };
    let reason = domain.shutdown_reason().map_or('-', |r| {
        *['-', 'r', 's', 'c', 'w', 'S']
            .get(usize::from(r))
            .unwrap_or(&'?')
    });
    [
        letter(dominf::RUNNING, 'r'),
        letter(dominf::BLOCKED, 'b'),
        letter(dominf::PAUSED, 'p'),
        letter(dominf::SHUTDOWN, 's'),
        reason,
        letter(dominf::DYING, 'd'),
    ]
    .iter()
    .collect()
}

const HEAD: &str = "Name                                        ID   Mem VCPUs\tState\tTime(s)";

/// The columns that all lists begin with.
fn columns(name: &str, domain: &Domain) -> String {
    format!(
        "{name:<40} {:>5} {:>5} {:>5}     {}  {:>8.1}",
        domain.id().0,
        mib(domain),
        domain.0.nr_online_vcpus,
        flags(domain),
        domain.0.cpu_time as f64 / 1e9,
    )
}

fn mib(domain: &Domain) -> u64 {
    domain.memory_kib().saturating_add(domain.outstanding_kib()) / 1024
}

fn list(context: &Context, args: &Args) -> Outcome {
    one_at_most(args)?;
    let host = &mut Host::open()?;
    let domains = host.domains(&args.words)?;
    if args.has("long") {
        return details::print(host, &domains);
    }
    let (verbose, labels) = (args.has("verbose"), args.has("context"));
    let (pools, numa) = (args.has("cpupool"), args.has("numa"));
    let mut text = String::from(HEAD);
    for (wanted, head) in [
        (
            verbose,
            "   UUID                            Reason-Code\tSecurity Label",
        ),
        (labels && !verbose, "   Security Label"),
        (pools, "         Cpupool"),
        (numa, " NODE Affinity"),
    ] {
        text.push_str(if wanted { head } else { "" });
    }
    text.push('\n');
    let nodes = if numa {
        host.xen.physinfo()?.nr_nodes
    } else {
        0
    };
    for domain in &domains {
        text.push_str(&columns(&host.name(domain.id()), domain));
        if verbose {
            let reason = domain.shutdown_reason().map(|r| format!("{r:x}"));
            let reason = reason.as_deref().unwrap_or("-");
            let _ = write!(text, " {} {reason:>8}", domain.uuid());
        }
        if verbose || labels {
            let label = host.xen.label(domain.0.ssidref);
            let _ = write!(text, " {:>16}", label.as_deref().unwrap_or("-"));
        }
        if pools {
            let _ = write!(text, "{:>16}", host.pool_name(domain.0.cpupool));
        }
        if numa {
            let affinity = host.xen.node_affinity(domain.id())?;
            let _ = write!(text, " {}", affinity.describe(nodes));
        }
        text.push('\n');
    }
    report(host, &domains, text)?.print(context)
}

fn report(host: &mut Host, domains: &[Domain], text: String) -> Result<Report, Failure> {
    let domains = domains.iter().map(|d| Entry::new(host, d));
    let domains = domains.collect::<Result<_, _>>()?;
    Report::new(text, &Versioned::new(Domains { domains }))
}

fn claims(context: &Context, _: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let domains = host.xen.domains()?;
    let mut text = format!("{HEAD}  Claimed\n");
    for domain in &domains {
        let name = host.name(domain.id());
        let claimed = domain.outstanding_kib() / 1024;
        let _ = writeln!(text, "{} {claimed:>5}", columns(&name, domain));
    }
    report(host, &domains, text)?.print(context)
}

fn sharing(context: &Context, args: &Args) -> Outcome {
    one_at_most(args)?;
    let host = &mut Host::open()?;
    let domains = host.domains(&args.words)?;
    let mut text = String::from("Name                                        ID   Mem Shared\n");
    for domain in &domains {
        let _ = writeln!(
            text,
            "{:<40} {:>5} {:>5}  {:>5}",
            host.name(domain.id()),
            domain.id().0,
            mib(domain),
            domain.shared_kib() / 1024
        );
    }
    report(host, &domains, text)?.print(context)
}

fn vm_list(context: &Context, _: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let domains = host.xen.domains()?;
    let mut text = String::from("UUID                                  ID    name\n");
    for domain in &domains {
        let name = host.name(domain.id());
        let _ = writeln!(text, "{}  {}    {name:<30}", domain.uuid(), domain.id().0);
    }
    report(host, &domains, text)?.print(context)
}

fn one_at_most(args: &Args) -> Outcome {
    if args.words.len() > 1 {
        let more = &args.words[1];
        return Err(Failure::usage(format!(
            "one domain at most, '{more}' is one too many"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};

    #[test]
    fn list() {
        let _f = Fixture::new();
        assert_eq!(
            printed("list"),
            "\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0  1024     3     r-----      12.3
web                                          3   257     2     -b----       0.0
old                                         12   128     1     ---sc-       0.0
"
        );
        assert_eq!(printed("list 3"), printed("list web"));
        assert_eq!(printed("list web").lines().count(), 2);
    }

    #[test]
    fn list_with_all_columns() {
        let f = Fixture::new();
        assert_eq!(
            printed("list -v -c -n"),
            "\
Name                                        ID   Mem VCPUs\tState\tTime(s)   UUID                            Reason-Code\tSecurity Label         Cpupool NODE Affinity
Domain-0                                     0  1024     3     r-----      12.3 00000000-0000-0000-0000-000000000000        -                -          Pool-0 all
web                                          3   257     2     -b----       0.0 11111111-1111-1111-1111-111111111111        -                -          Pool-0 all
old                                         12   128     1     ---sc-       0.0 00010203-0405-0607-0809-0a0b0c0d0e0f        3                -          Pool-0 all
"
        );
        f.machine.borrow_mut().enforcing = Some(true);
        assert_eq!(
            printed("list -Z web"),
            "\
Name                                        ID   Mem VCPUs\tState\tTime(s)   Security Label
web                                          3   257     2     -b----       0.0 system_u:system_r:label_7
"
        );
    }

    #[test]
    fn the_others() {
        let _f = Fixture::new();
        assert_eq!(
            printed("claims"),
            "\
Name                                        ID   Mem VCPUs\tState\tTime(s)  Claimed
Domain-0                                     0  1024     3     r-----      12.3     0
web                                          3   257     2     -b----       0.0     1
old                                         12   128     1     ---sc-       0.0     0
"
        );
        assert_eq!(
            printed("sharing web"),
            "\
Name                                        ID   Mem Shared
web                                          3   257      2
"
        );
        assert_eq!(
            printed("vm-list"),
            "\
UUID                                  ID    name
00000000-0000-0000-0000-000000000000  0    Domain-0                      \n\
11111111-1111-1111-1111-111111111111  3    web                           \n\
00010203-0405-0607-0809-0a0b0c0d0e0f  12    old                           \n"
        );
    }

    #[test]
    fn json_tells_state_and_reason() {
        let _f = Fixture::new();
        let all = json("list");
        assert_eq!(all["version"], 1);
        let [dom0, web, old] = [0, 1, 2].map(|n| &all["domains"][n]);
        assert_eq!(
            (&dom0["state"], &dom0["type"]),
            (&"running".into(), &"pvh".into())
        );
        assert_eq!(
            (&web["state"], &web["reason"]),
            (&"blocked".into(), &().into())
        );
        assert_eq!(
            (&old["state"], &old["reason"]),
            (&"shutdown".into(), &"crash".into())
        );
        assert_eq!(web["memory_kib"], 262_144);
        assert_eq!(dom0["vcpus"], 4);
        assert_eq!(json("claims"), all);
        assert_eq!(json("list old")["domains"][0]["flags"], "---sc-");
    }

    #[test]
    fn errors() {
        let _f = Fixture::new();
        assert_eq!(run("list 5").0, 1);
        assert!(run("list 5").1.contains("Domain '5' does not exist"));
        assert!(
            run("list nobody")
                .1
                .contains("nobody is an invalid domain identifier")
        );
        assert_eq!(run("list web old").0, 2);
        assert_eq!(run("list -x").0, 2);
    }
}
