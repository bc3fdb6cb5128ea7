//! `domid`, `domname`, `rename`, `uptime`.

use super::host::{Host, Report, Versioned};
use super::{Args, Command, Context, Failure, Opt, Outcome};
use crate::cfg::domain::is_name;
use crate::domain::kept;
use serde_json::json;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};
use xen_abi::DomId;
use xen_sys::xen::Domain;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "domid",
        options: &[],
        usage: "<DomainName>",
        help: "Print the number of a domain",
        min: 1,
        dry_run: false,
        run: domid,
    },
    Command {
        name: "domname",
        options: &[],
        usage: "<DomainId>",
        help: "Print the name of a domain",
        min: 1,
        dry_run: false,
        run: domname,
    },
    Command {
        name: "rename",
        options: &[],
        usage: "<Domain> <NewDomainName>",
        help: "Give a domain another name",
        min: 2,
        dry_run: false,
        run: rename,
    },
    Command {
        name: "uptime",
        options: &[Opt::flag(Some('s'), &["short"], "days, hours and minutes")],
        usage: "[-s] [Domain]",
        help: "Show for how long domains have been running",
        min: 0,
        dry_run: false,
        run: uptime,
    },
];

fn domid(context: &Context, args: &Args) -> Outcome {
    let name = &args.words[0];
    let host = &mut Host::open()?;
    let domains = host.xen.domains()?;
    let found = domains.iter().find(|d| host.name(d.id()) == *name);
    let domid = found
        .ok_or_else(|| {
            Failure::new(format!(
                "Can't get domid of domain name '{name}', maybe this domain does not exist."
            ))
        })?
        .id()
        .0;
    let value = Versioned::new(json!({ "domid": domid, "name": name }));
    Report::new(format!("{domid}\n"), &value)?.print(context)
}

fn domname(context: &Context, args: &Args) -> Outcome {
    let word = &args.words[0];
    let domid: u16 = word
        .parse()
        .map_err(|_| Failure::new(format!("Invalid domain id '{word}': a number is needed")))?;
    let host = &mut Host::open()?;
    let name = super::domain_arg::name(&mut host.store, DomId(domid)).ok_or_else(|| {
        Failure::new(format!(
            "Can't get domain name of domain id '{domid}', maybe this domain does not exist."
        ))
    })?;
    let value = Versioned::new(json!({ "domid": domid, "name": name }));
    Report::new(format!("{name}\n"), &value)?.print(context)
}

fn rename(_: &Context, args: &Args) -> Outcome {
    let (word, new) = (&args.words[0], &args.words[1]);
    if !is_name(new) {
        return Err(Failure::new(format!(
            "Can't rename domain '{word}': '{new}' is no name of a domain: no '/', not only digits"
        )));
    }
    let host = &mut Host::open()?;
    let domid = host.domain(word)?.id();
    let uuid = host.domain(word)?.uuid();
    let taken = super::domain_arg::find(&mut host.store, new);
    if let Some(other) = taken.ok().filter(|other| *other != domid) {
        return Err(Failure::new(format!(
            "Can't rename domain '{word}': domain {} is called '{new}' already",
            other.0
        )));
    }
    let vm = host.read(&format!("/local/domain/{}/vm", domid.0));
    host.store.transaction(|store, tx| {
        let path = format!("/local/domain/{}/name", domid.0);
        store.write(tx, &path, new.as_bytes())?;
        if let Some(vm) = &vm {
            store.write(tx, &format!("{vm}/name"), new.as_bytes())?;
        }
        Ok(())
    })?;
    let kept = kept::change(domid, &uuid, |config| {
        if let Some(c_info) = config.get_mut("c_info").and_then(|c| c.as_object_mut()) {
            c_info.insert("name".into(), new.clone().into());
        }
    });
    kept.map_err(|e| {
        Failure::new(format!(
            "it has its new name, but the kept config is not up to date: {e}"
        ))
    })
}

fn uptime(context: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let domains = host.domains(&args.words)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |d| d.as_secs());
    let short = args.has("short");
    let mut text = String::new();
    if !short {
        let _ = writeln!(text, "{:<33} {:>4} Uptime", "Name", "ID");
    }
    let mut entries = Vec::new();
    for domain in &domains {
        let (domid, name) = (domain.id().0, host.name(domain.id()));
        let Some(seconds) = seconds(host, domain, now) else {
            continue;
        };
        let up = spell(seconds, short);
        let _ = match short {
            true => writeln!(text, " {} up {up}, {name} ({domid})", time_of_day(now)),
            false => writeln!(text, "{name:<33} {domid:>4} {up}"),
        };
        entries.push(json!({ "domid": domid, "name": name, "uptime_seconds": seconds }));
    }
    Report::new(text, &Versioned::new(json!({ "domains": entries })))?.print(context)
}

/// How long a domain has been running, if that was written down.
fn seconds(host: &mut Host, domain: &Domain, now: u64) -> Option<u64> {
    if domain.id() == DomId::DOM0 {
        let text = std::fs::read_to_string("/proc/uptime").ok()?;
        return text.split('.').next()?.parse().ok();
    }
    // Seconds and hundredths.
    let text = host.read(&format!("/vm/{}/start_time", domain.uuid()))?;
    let start: u64 = text.split('.').next()?.trim().parse().ok()?;
    Some(now.saturating_sub(start))
}

/// `2 days, 13:05:09`, or without the seconds.
fn spell(seconds: u64, short: bool) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    let days = match days {
        0 => String::new(),
        1 => "1 day, ".into(),
        n => format!("{n} days, "),
    };
    let time = format!("{days}{hours:>2}:{minutes:02}");
    if short {
        time
    } else {
        format!("{time}:{seconds:02}")
    }
}

/// In UTC.
fn time_of_day(now: u64) -> String {
    let now = now % 86_400;
    format!("{:02}:{:02}:{:02}", now / 3600, now / 60 % 60, now % 60)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};
    use super::{spell, time_of_day};

    #[test]
    fn numbers_and_names() {
        let _f = Fixture::new();
        assert_eq!(printed("domid web"), "3\n");
        assert_eq!(printed("domname 12"), "old\n");
        assert_eq!(json("domid old")["domid"], 12);
        assert_eq!(json("domname 3")["name"], "web");
        for line in ["domid nobody", "domid 3", "domname 5", "domname web"] {
            assert_eq!(run(line).0, 1, "{line}");
        }
        assert_eq!(run("domid").0, 2);
    }

    #[test]
    fn a_domain_gets_another_name() {
        let f = Fixture::new();
        printed("rename web shop");
        assert_eq!(printed("domid shop"), "3\n");
        let vm = "/vm/11111111-1111-1111-1111-111111111111/name";
        assert_eq!(f.store.get(vm).unwrap(), "shop");
        printed("rename 3 web");
        printed("rename web web");
        for (line, part) in [
            ("rename web old", "domain 12 is called 'old' already"),
            ("rename web 77", "no name of a domain"),
            ("rename web a/b", "no name of a domain"),
            ("rename nobody x", "invalid domain identifier"),
        ] {
            let (code, text) = run(line);
            assert!(code == 1 && text.contains(part), "{line}: {text}");
        }
        assert_eq!(run("rename web").0, 2);
        assert_eq!(printed("domname 3"), "web\n");
    }

    #[test]
    fn spans() {
        for (seconds, long, short) in [
            (0, " 0:00:00", " 0:00"),
            (3_723, " 1:02:03", " 1:02"),
            (86_400 + 47_109, "1 day, 13:05:09", "1 day, 13:05"),
            (2 * 86_400, "2 days,  0:00:00", "2 days,  0:00"),
        ] {
            assert_eq!(
                (spell(seconds, false), spell(seconds, true)),
                (long.into(), short.into())
            );
        }
        assert_eq!(time_of_day(86_400 * 20_000 + 3_723), "01:02:03");
    }

    #[test]
    fn uptimes() {
        let f = Fixture::new();
        // A domain that started in the future has just started.
        let start = "/vm/11111111-1111-1111-1111-111111111111/start_time";
        f.store.set(start, "99999999999.25");
        assert_eq!(
            printed("uptime web"),
            "\
Name                                ID Uptime
web                                  3  0:00:00
"
        );
        assert!(printed("uptime -s web").ends_with(" up  0:00, web (3)\n"));
        let all = printed("uptime");
        // Nobody wrote down when `old` started.
        assert!(all.contains("\nDomain-0                             0 ") && !all.contains("old"));
        assert_eq!(json("uptime web")["domains"][0]["uptime_seconds"], 0);
    }
}
