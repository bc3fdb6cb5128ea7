//! `vcpu-list`, `vcpu-pin`, `vcpu-set`.

use super::host::{Host, Report, Versioned};
use super::{Args, Command, Context, Failure, Opt, Outcome, output};
use crate::cfg::pins;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use xen_abi::DomId;
use xen_sys::bits::BitSet;
use xen_sys::xen::Domain;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "vcpu-list",
        options: &[],
        usage: "[Domain, ...]",
        help: "Show vCPUs",
        min: 0,
        dry_run: false,
        run: list,
    },
    Command {
        name: "vcpu-pin",
        options: &[
            Opt::flag(Some('f'), &["force"], "even if dom0 holds the vCPU pinned"),
            Opt::flag(
                Some('i'),
                &["ignore-global-affinity-masks"],
                "accepted for Xen's sake: there are no global masks",
            ),
        ],
        usage: "<Domain> <VCPU|all> <Hard affinity|-|all> <Soft affinity|-|all>",
        help: "Say on which CPUs a vCPU may run",
        min: 3,
        dry_run: true,
        run: pin,
    },
    Command {
        name: "vcpu-set",
        options: &[Opt::flag(
            Some('i'),
            &["ignore-host"],
            "even more vCPUs than there are CPUs",
        )],
        usage: "[options] <Domain> <vCPUs>",
        help: "Say how many vCPUs a domain shall use",
        min: 2,
        dry_run: false,
        run: set,
    },
];

/// A vCPU in JSON. Documented in `docs/guide/xl-json.md`.
#[derive(Serialize)]
struct Entry {
    domid: u16,
    name: String,
    vcpu: u32,
    state: &'static str,
    cpu: Option<u32>,
    cpu_seconds: f64,
    hard_affinity: Vec<u32>,
    soft_affinity: Vec<u32>,
}

fn list(context: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let cpus = host.xen.physinfo()?.nr_cpus;
    let mut text = format!(
        "{:<32} {:>5} {:>5} {:>5} {:>5} {:>9} Affinity (Hard / Soft)\n",
        "Name", "ID", "VCPU", "CPU", "State", "Time(s)"
    );
    let mut entries = Vec::new();
    for domain in host.domains(&args.words)? {
        let name = host.name(domain.id());
        for number in 0..domain.vcpus() {
            let entry = one(host, &domain, &name, number, cpus, &mut text);
            // It may have ended meanwhile.
            entries.extend(entry.ok());
        }
    }
    Report::new(text, &Versioned::new(json!({ "vcpus": entries })))?.print(context)
}

fn one(
    host: &Host,
    domain: &Domain,
    name: &str,
    number: u32,
    cpus: u32,
    text: &mut String,
) -> Result<Entry, Failure> {
    let info = host.xen.vcpu(domain.id(), number)?;
    let affinity = host.xen.affinity(domain.id(), number)?;
    let (domid, seconds) = (domain.id().0, info.cpu_time as f64 / 1e9);
    let state = match (info.online != 0, info.running != 0, info.blocked != 0) {
        (false, ..) => "offline",
        (true, true, _) => "running",
        (true, false, true) => "blocked",
        (true, false, false) => "runnable",
    };
    let letter = |set: u8, letter| if set != 0 { letter } else { '-' };
    let where_ = match info.online != 0 {
        false => format!("{:>5} {:>3}-p ", '-', '-'),
        true => format!(
            "{:>5} {:>3}{}- ",
            info.cpu,
            letter(info.running, 'r'),
            letter(info.blocked, 'b')
        ),
    };
    let (hard, soft) = (affinity.hard.describe(cpus), affinity.soft.describe(cpus));
    let _ = writeln!(
        text,
        "{name:<32} {domid:>5} {number:>5}{where_}{seconds:>9.1}  {hard} / {soft}"
    );
    Ok(Entry {
        domid,
        name: name.into(),
        vcpu: number,
        state,
        cpu: (info.online != 0).then_some(info.cpu),
        cpu_seconds: seconds,
        hard_affinity: affinity.hard.iter().collect(),
        soft_affinity: affinity.soft.iter().collect(),
    })
}

/// The node of each CPU number; all ones for a CPU that is not there.
fn nodes(host: &Host) -> Result<Vec<u32>, Failure> {
    let bound = host.xen.cpu_bound()? as usize;
    let cpus = host.xen.cpu_topology()?;
    let mut nodes: Vec<u32> = cpus.iter().map(|c| c.node).collect();
    nodes.resize(bound, u32::MAX);
    Ok(nodes)
}

fn pin(context: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let domain = host.domain(&args.words[0])?;
    let numbers: Vec<u32> = match args.words[1].as_str() {
        "all" if args.has("force") => {
            return Err(Failure::new("--force and 'all' as VCPU not allowed"));
        }
        "all" => (0..domain.vcpus()).collect(),
        word => {
            let number = word.parse().map_err(|_| {
                Failure::new(format!(
                    "Invalid argument {word} as VCPU; a number or 'all' is needed"
                ))
            })?;
            vec![number]
        }
    };
    let nodes = nodes(host)?;
    let hard = set_of(Some(args.words[2].as_str()), &nodes)?;
    let soft = set_of(args.word(3), &nodes)?;
    if context.dry_run {
        let cpus = host.xen.physinfo()?.nr_cpus;
        let mut text = String::from("cpumap: ");
        text.push_str(&hard.as_ref().map_or("-".into(), |s| s.describe(cpus)));
        if let Some(soft) = &soft {
            text.push_str(&format!(" {}", soft.describe(cpus)));
        }
        return output::print(&(text + "\n"));
    }
    for number in numbers {
        let result = host.xen.set_affinity(
            domain.id(),
            number,
            hard.as_ref(),
            soft.as_ref(),
            args.has("force"),
        );
        result.map_err(|e| {
            Failure::new(format!("Could not set affinity for vcpu `{number}': {e}"))
        })?;
    }
    Ok(())
}

/// `-`, or nothing: as it is.
fn set_of(word: Option<&str>, nodes: &[u32]) -> Result<Option<BitSet>, Failure> {
    let Some(word) = word.filter(|w| *w != "-") else {
        return Ok(None);
    };
    let list = pins::parse(word).map_err(Failure::new)?;
    let set: BitSet = list.cpus(nodes).into_iter().collect();
    if set.is_empty() {
        let last = nodes.len().saturating_sub(1);
        return Err(Failure::new(format!(
            "no CPU is left of '{word}'; this machine has the CPUs 0-{last}"
        )));
    }
    Ok(Some(set))
}

fn set(_: &Context, args: &Args) -> Outcome {
    let wanted: u32 = args.words[1].parse().map_err(|_| {
        Failure::new(format!(
            "Invalid argument '{}': a number of vCPUs is needed",
            args.words[1]
        ))
    })?;
    let host = &mut Host::open()?;
    let domain = host.domain(&args.words[0])?;
    let cpus = host.xen.cpu_bound()?;
    if !args.has("ignore-host") && wanted > domain.0.nr_online_vcpus && wanted > cpus {
        return Err(Failure::new(format!(
            "You are overcommmitting! You have {cpus} physical CPUs and want {wanted} vCPUs! \
             Aborting, use --ignore-host to continue"
        )));
    }
    let most = domain.vcpus();
    if wanted > most {
        return Err(Failure::new(format!(
            "Requested {wanted} VCPUs, however maximum allowed is {most}! (maxvcpus= in the domain's config)"
        )));
    }
    if wanted == 0 {
        return Err(Failure::new("a domain needs at least one vCPU"));
    }
    set_online(host, domain.id(), wanted, most)
}

/// Tells the domain's kernel, which obeys or not.
fn set_online(host: &mut Host, domid: DomId, wanted: u32, most: u32) -> Outcome {
    host.store.transaction(|store, tx| {
        for number in 0..most {
            let path = format!("/local/domain/{}/cpu/{number}/availability", domid.0);
            let word = if number < wanted { "online" } else { "offline" };
            store.write(tx, &path, word.as_bytes())?;
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};

    #[test]
    fn vcpus_are_listed() {
        let _f = Fixture::new();
        assert_eq!(
            printed("vcpu-list"),
            "\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    0   -b-       0.0  all / all
Domain-0                             0     1    3   r--       1.2  all / all
Domain-0                             0     2    -   --p       0.0  all / all
Domain-0                             0     3    0   -b-       0.0  all / all
web                                  3     0    0   -b-       0.0  1-2 / all
web                                  3     1    0   -b-       0.0  all / all
old                                 12     0    0   -b-       0.0  all / all
"
        );
        assert_eq!(printed("vcpu-list old 3").lines().count(), 4);
        let all = json("vcpu-list 0");
        assert_eq!(all["vcpus"][1]["state"], "running");
        assert_eq!(all["vcpus"][2]["state"], "offline");
        assert_eq!(all["vcpus"][2]["cpu"], serde_json::Value::Null);
        assert_eq!(
            json("vcpu-list web")["vcpus"][0]["hard_affinity"],
            serde_json::json!([1, 2])
        );
    }

    #[test]
    fn vcpus_are_pinned() {
        let _f = Fixture::new();
        printed("vcpu-pin web 1 0,3 1");
        printed("vcpu-pin old all all,^0");
        printed("vcpu-pin 0 0 - 2-3");
        let list = printed("vcpu-list");
        for row in [
            "web                                  3     1    0   -b-       0.0  0,3 / 1\n",
            "old                                 12     0    0   -b-       0.0  1-3 / all\n",
            "Domain-0                             0     0    0   -b-       0.0  all / 2-3\n",
        ] {
            assert!(list.contains(row), "{list}");
        }
        assert_eq!(printed("-N vcpu-pin web 0 1-2 all"), "cpumap: 1-2 all\n");
        assert_eq!(printed("-N vcpu-pin web 0 - 3"), "cpumap: - 3\n");
        assert!(printed("vcpu-list web").contains(" 1-2 / all\n"));
    }

    #[test]
    fn vcpus_are_switched_through_the_store() {
        let f = Fixture::new();
        printed("vcpu-set web 1");
        let node = |n| {
            f.store
                .get(&format!("/local/domain/3/cpu/{n}/availability"))
        };
        assert_eq!(
            (node(0).unwrap(), node(1).unwrap()),
            ("online".into(), "offline".into())
        );
        printed("vcpu-set web 2");
        assert_eq!(node(1).unwrap(), "online");
        assert!(node(2).is_none());
    }

    #[test]
    fn errors() {
        let _f = Fixture::new();
        for (line, part) in [
            ("vcpu-set web 3", "maximum allowed is 2"),
            ("vcpu-set web 9", "overcommmitting"),
            ("vcpu-set -i web 9", "maximum allowed is 2"),
            ("vcpu-set web 0", "at least one"),
            ("vcpu-set web x", "Invalid argument 'x'"),
            ("vcpu-pin web 7 0", "Could not set affinity for vcpu `7'"),
            ("vcpu-pin web x 0", "Invalid argument x as VCPU"),
            ("vcpu-pin web 0 9", "has the CPUs 0-3"),
            ("vcpu-pin web 0 1+2", "'1+2' is neither a CPU"),
            ("vcpu-pin -f web all 1", "not allowed"),
        ] {
            let (code, text) = run(line);
            assert!(code == 1 && text.contains(part), "{line}: {text}");
        }
    }
}
