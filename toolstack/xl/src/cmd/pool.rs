//! Pools of CPUs and their schedulers: `cpupool-list`, `sched-credit`, `sched-credit2`.

use super::host::{Host, Report, Versioned};
use super::info::scheduler_name;
use super::{Args, Command, Context, Failure, Opt, Outcome};
use serde_json::{Value, json};
use std::fmt::Write;
use xen_abi::domctl::scheduler;
use xen_sys::xen::{Pool, PoolParameters, Weight};

/// Options that both schedulers have.
const DOMAIN: Opt = Opt::with(Some('d'), &["domain"], "DOMAIN", "one domain");
const WEIGHT: Opt = Opt::with(Some('w'), &["weight"], "WEIGHT", "its weight, 1 to 65535");
const CAP: Opt = Opt::with(
    Some('c'),
    &["cap"],
    "CAP",
    "most of a CPU that it gets, in percent; 0: no limit",
);
const PARAMETERS: Opt = Opt::flag(
    Some('s'),
    &["schedparam"],
    "parameters of the pool instead of domains",
);
const RATELIMIT: Opt = Opt::with(
    Some('r'),
    &["ratelimit_us"],
    "RLIMIT",
    "shortest run of a vCPU, in microseconds",
);
const POOL: Opt = Opt::with(Some('p'), &["cpupool"], "CPUPOOL", "one pool");

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "cpupool-list",
        options: &[Opt::flag(Some('c'), &["cpus"], "the CPUs of each pool")],
        usage: "[-c|--cpus] [<CPU Pool>]",
        help: "Show the pools of CPUs",
        min: 0,
        dry_run: false,
        run: list,
    },
    Command {
        name: "sched-credit",
        options: &[
            DOMAIN,
            WEIGHT,
            CAP,
            PARAMETERS,
            Opt::with(
                Some('t'),
                &["tslice_ms"],
                "TSLICE",
                "time slice in milliseconds",
            ),
            RATELIMIT,
            Opt::with(
                Some('m'),
                &["migration_delay_us"],
                "DLY",
                "how long a vCPU counts as warm in a cache, in microseconds",
            ),
            POOL,
        ],
        usage: "[-d <Domain> [-w[=WEIGHT]|-c[=CAP]]] [-s [-t TSLICE] [-r RATELIMIT] [-m DLY]] [-p CPUPOOL]",
        help: "Show or set parameters of the credit scheduler",
        min: 0,
        dry_run: false,
        run: |context, args| sched(context, args, scheduler::CREDIT),
    },
    Command {
        name: "sched-credit2",
        options: &[DOMAIN, WEIGHT, CAP, PARAMETERS, RATELIMIT, POOL],
        usage: "[-d <Domain> [-w[=WEIGHT]|-c[=CAP]]] [-s [-r RATELIMIT]] [-p CPUPOOL]",
        help: "Show or set parameters of the credit2 scheduler",
        min: 0,
        dry_run: false,
        run: |context, args| sched(context, args, scheduler::CREDIT2),
    },
];

/// The pools that a word names, by name or number; all without a word.
fn pools(host: &mut Host, word: Option<&str>) -> Result<Vec<(Pool, String)>, Failure> {
    let all = host.xen.pools()?;
    let named = all.into_iter().map(|p| {
        let name = host.pool_name(p.id);
        (p, name)
    });
    let mut named: Vec<_> = named.collect();
    if let Some(word) = word {
        named.retain(|(pool, name)| name == word || pool.id.to_string() == word);
        if named.is_empty() {
            return Err(Failure::new(format!(
                "Pool '{word}' does not exist; 'xl cpupool-list' shows the pools"
            )));
        }
    }
    Ok(named)
}

fn list(context: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let only_cpus = args.has("cpus");
    let head = match only_cpus {
        true => "CPU list",
        false => "CPUs   Sched     Active   Domain count",
    };
    let mut text = format!("{:<19}{head}\n", "Name");
    let mut entries = Vec::new();
    for (pool, name) in pools(host, args.word(0))? {
        let cpus: Vec<u32> = pool.cpus.iter().collect();
        let words: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let scheduler = scheduler_name(pool.scheduler);
        let _ = match only_cpus {
            true => writeln!(text, "{name:<19}{}", words.join(",")),
            false => writeln!(
                text,
                "{name:<19}{:>3} {scheduler:>9}       y       {:>4}",
                cpus.len(),
                pool.domains
            ),
        };
        entries.push(json!({
            "id": pool.id,
            "name": name,
            "scheduler": scheduler,
            "domains": pool.domains,
            "cpus": cpus,
        }));
    }
    Report::new(text, &Versioned::new(json!({ "cpupools": entries })))?.print(context)
}

/// A number given with an option.
fn number<T: std::str::FromStr>(args: &Args, name: &str) -> Result<Option<T>, Failure> {
    let Some(text) = args.value(name) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        Failure::new(format!(
            "--{name}: '{text}' is not a number that is possible here"
        ))
    })?;
    Ok(Some(number))
}

fn sched(context: &Context, args: &Args, wanted: u32) -> Outcome {
    let (weight, cap) = (number::<u16>(args, "weight")?, number::<u16>(args, "cap")?);
    let changes = Changes {
        tslice_ms: number(args, "tslice_ms")?,
        ratelimit_us: number(args, "ratelimit_us")?,
        migration_delay_us: number(args, "migration_delay_us")?,
    };
    let domain = args.value("domain");
    let change_domain = weight.is_some() || cap.is_some();
    if (args.has("cpupool") || args.has("schedparam")) && (domain.is_some() || change_domain) {
        return Err(Failure::new(
            "Specifying a cpupool or schedparam is not allowed with domain options",
        ));
    }
    if domain.is_none() && change_domain {
        return Err(Failure::new("Must specify a domain (-d)"));
    }
    if !args.has("schedparam") && changes.any() {
        return Err(Failure::new(
            "Must specify schedparam (-s) to set schedule parameter values",
        ));
    }
    let host = &mut Host::open()?;
    if let Some(word) = domain {
        return of_domain(context, host, word, wanted, weight, cap);
    }
    let default = args.has("schedparam").then_some("0");
    let pools = pools(host, args.value("cpupool").or(default))?;
    let pools = pools.into_iter().filter(|(p, _)| p.scheduler == wanted);
    let pools: Vec<_> = pools.collect();
    if args.has("schedparam") {
        let name = scheduler_name(wanted);
        let Some((pool, name)) = pools.first() else {
            return Err(Failure::new(format!(
                "the pool does not run the scheduler {name}"
            )));
        };
        if changes.any() {
            let now = host.xen.pool_parameters(pool)?;
            let result = host.xen.set_pool_parameters(pool, changes.apply(now));
            return result.map_err(|e| {
                Failure::new(format!(
                    "cannot set the parameters of {name}: {e}; are they in range?"
                ))
            });
        }
    }
    let mut text = String::new();
    let mut entries = Vec::new();
    for (pool, name) in &pools {
        let (line, mut entry) = pool_line(host, pool, name);
        text.push_str(&line);
        if !args.has("schedparam") {
            text.push_str(DOMAIN_HEAD);
            let mut domains = Vec::new();
            for d in host.xen.domains()? {
                if d.0.cpupool == pool.id {
                    let share = host.xen.weight(d.id(), wanted)?;
                    domains.push(domain_line(&host.name(d.id()), d.id().0, share, &mut text));
                }
            }
            entry["domains"] = domains.into();
        }
        entries.push(entry);
    }
    Report::new(text, &Versioned::new(json!({ "cpupools": entries })))?.print(context)
}

const DOMAIN_HEAD: &str = "Name                                ID Weight  Cap\n";

fn of_domain(
    context: &Context,
    host: &mut Host,
    word: &str,
    wanted: u32,
    weight: Option<u16>,
    cap: Option<u16>,
) -> Outcome {
    let domid = host.domain(word)?.id();
    let mut share = host.xen.weight(domid, wanted).map_err(|e| {
        let name = scheduler_name(wanted);
        Failure::new(format!(
            "domain '{word}' is not run by the scheduler {name} ({e})"
        ))
    })?;
    if weight.is_some() || cap.is_some() {
        share = Weight {
            weight: weight.unwrap_or(share.weight),
            cap: cap.unwrap_or(share.cap),
        };
        let most = host.xen.physinfo()?.nr_cpus.saturating_mul(100);
        return host.xen.set_weight(domid, wanted, share).map_err(|e| {
            Failure::new(format!(
                "cannot give domain '{word}' weight {} and cap {}: {e}; 1 to 65535 and 0 to {most} are possible",
                share.weight, share.cap
            ))
        });
    }
    let mut text = String::from(DOMAIN_HEAD);
    let entry = domain_line(&host.name(domid), domid.0, share, &mut text);
    Report::new(text, &Versioned::new(json!({ "domains": [entry] })))?.print(context)
}

fn domain_line(name: &str, domid: u16, share: Weight, text: &mut String) -> Value {
    let (weight, cap) = (share.weight, share.cap);
    let _ = writeln!(text, "{name:<33} {domid:>4} {weight:>6} {cap:>4}");
    json!({ "domid": domid, "name": name, "weight": weight, "cap": cap })
}

fn pool_line(host: &Host, pool: &Pool, name: &str) -> (String, Value) {
    let mut entry =
        json!({ "id": pool.id, "name": name, "scheduler": scheduler_name(pool.scheduler) });
    let text = match host.xen.pool_parameters(pool) {
        Ok(PoolParameters::Credit {
            tslice_ms,
            ratelimit_us,
            migration_delay_us,
        }) => {
            entry["tslice_ms"] = tslice_ms.into();
            entry["ratelimit_us"] = ratelimit_us.into();
            entry["migration_delay_us"] = migration_delay_us.into();
            format!(
                "Cpupool {name}: tslice={tslice_ms}ms ratelimit={ratelimit_us}us migration-delay={migration_delay_us}us\n"
            )
        }
        Ok(PoolParameters::Credit2 { ratelimit_us }) => {
            entry["ratelimit_us"] = ratelimit_us.into();
            format!("Cpupool {name}: ratelimit={ratelimit_us}us\n")
        }
        Err(_) => format!("Cpupool {name}: [sched params unavailable]\n"),
    };
    (text, entry)
}

/// What is asked of a pool.
struct Changes {
    tslice_ms: Option<u32>,
    ratelimit_us: Option<u32>,
    migration_delay_us: Option<u32>,
}

impl Changes {
    fn any(&self) -> bool {
        [self.tslice_ms, self.ratelimit_us, self.migration_delay_us]
            .iter()
            .any(Option::is_some)
    }

    fn apply(&self, now: PoolParameters) -> PoolParameters {
        match now {
            PoolParameters::Credit {
                tslice_ms,
                ratelimit_us,
                migration_delay_us,
            } => PoolParameters::Credit {
                tslice_ms: self.tslice_ms.unwrap_or(tslice_ms),
                ratelimit_us: self.ratelimit_us.unwrap_or(ratelimit_us),
                migration_delay_us: self.migration_delay_us.unwrap_or(migration_delay_us),
            },
            PoolParameters::Credit2 { ratelimit_us } => PoolParameters::Credit2 {
                ratelimit_us: self.ratelimit_us.unwrap_or(ratelimit_us),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};
    use xen_abi::domctl::scheduler;
    use xen_sys::xen::PoolParameters;

    #[test]
    fn pools_are_listed() {
        let _f = Fixture::new();
        assert_eq!(
            printed("cpupool-list"),
            "\
Name               CPUs   Sched     Active   Domain count
Pool-0               4   credit2       y          3
"
        );
        assert_eq!(
            printed("cpupool-list -c Pool-0"),
            "\
Name               CPU list
Pool-0             0,1,2,3
"
        );
        assert_eq!(json("cpupool-list")["cpupools"][0]["cpus"][3], 3);
        assert!(
            run("cpupool-list Pool-9")
                .1
                .contains("Pool 'Pool-9' does not exist")
        );
    }

    #[test]
    fn credit2() {
        let _f = Fixture::new();
        printed("sched-credit2 -d web -w 512 -c 50");
        assert_eq!(
            printed("sched-credit2"),
            "\
Cpupool Pool-0: ratelimit=1000us
Name                                ID Weight  Cap
Domain-0                             0    256    0
web                                  3    512   50
old                                 12    256    0
"
        );
        assert_eq!(
            printed("sched-credit2 --domain=web"),
            "\
Name                                ID Weight  Cap
web                                  3    512   50
"
        );
        printed("sched-credit2 -s -r 500");
        assert_eq!(
            printed("sched-credit2 -s"),
            "Cpupool Pool-0: ratelimit=500us\n"
        );
        assert_eq!(json("sched-credit2 -s")["cpupools"][0]["ratelimit_us"], 500);
        assert_eq!(
            json("sched-credit2")["cpupools"][0]["domains"][1]["weight"],
            512
        );
        assert_eq!(printed("sched-credit"), "");
    }

    #[test]
    fn credit() {
        let f = Fixture::new();
        {
            let mut machine = f.machine.borrow_mut();
            machine.scheduler = scheduler::CREDIT;
            machine.parameters = PoolParameters::Credit {
                tslice_ms: 30,
                ratelimit_us: 1000,
                migration_delay_us: 0,
            };
        }
        printed("sched-credit -s -t 20 -m 7");
        assert_eq!(
            printed("sched-credit -p Pool-0 -s"),
            "Cpupool Pool-0: tslice=20ms ratelimit=1000us migration-delay=7us\n"
        );
        assert_eq!(printed("sched-credit2"), "");
    }

    #[test]
    fn errors() {
        let _f = Fixture::new();
        for (line, part) in [
            ("sched-credit2 -w 5", "Must specify a domain"),
            ("sched-credit2 -r 5", "Must specify schedparam"),
            ("sched-credit2 -s -d web", "not allowed with domain options"),
            ("sched-credit2 -d web -w 70000", "--weight: '70000'"),
            ("sched-credit2 -p 4", "Pool '4' does not exist"),
            ("sched-credit -d web", "not run by the scheduler credit"),
            ("sched-credit -s", "does not run the scheduler credit"),
        ] {
            let (code, text) = run(line);
            assert!(code == 1 && text.contains(part), "{line}: {text}");
        }
        assert_eq!(run("sched-credit2 -t 5").0, 2);
    }
}
