//! `exits`: why domains left guest mode, how long the hypervisor took, and what was injected; measured and compared.

mod counts;
mod cpus;
mod table;
#[cfg(test)]
mod tests;

use super::failure::{Failure, Result};
use super::host::{Report, Versioned, store, xen};
use super::{Args, Command, Context, Opt, Outcome, domain_arg};
use counts::{Counts, Sample, parse};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use xen_abi::{DomId, Errno};
use xen_sys::errno_of;
use xen_sys::xen::{File, Xen};
use xen_sys::xenstore::Client;

/// The rows.
pub const ROWS: &[Command] = &[Command {
    name: "exits",
    options: &[
        Opt::flag(None, &["vcpus"], "also each vCPU by itself"),
        Opt::flag(None, &["histogram"], "also how times are distributed"),
        Opt::with(
            Some('T'),
            &["seconds"],
            "SECONDS",
            "only what happens within so many seconds from now",
        ),
        Opt::with(
            None,
            &["since"],
            "FILE",
            "only what has happened since FILE, made by 'xl exits --json'",
        ),
        Opt::flag(
            None,
            &["diff"],
            "compare two files, made by 'xl exits --json'",
        ),
        Opt::flag(
            None,
            &["cpus"],
            "interrupts of the machine's CPUs instead, posted ones by themselves",
        ),
    ],
    usage: "[options] [Domain...] | --diff <before> <after> [Domain] | --cpus",
    help: "Show why domains left guest mode",
    min: 0,
    dry_run: false,
    run: exits,
}];

/// A domain's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Domain {
    domid: u16,
    name: String,
    #[serde(flatten)]
    counts: Counts,
    vcpus: Vec<Vcpu>,
}

/// A vCPU's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Vcpu {
    vcpu: u32,
    #[serde(flatten)]
    counts: Counts,
}

/// What is printed, and read again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Exits {
    /// Cycles per millisecond.
    tsc_khz: u64,
    domains: Vec<Domain>,
}

fn exits(context: &Context, args: &Args) -> Outcome {
    if args.has("diff") {
        return compare(context, args);
    }
    let xen = xen()?;
    if args.has("cpus") {
        return cpus::print(context, &xen);
    }
    let mut store = store().ok();
    let domains = chosen(&xen, store.as_mut(), &args.words)?;
    let first = match (args.value("since"), args.value("seconds")) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--since and --seconds exclude each other"));
        }
        (Some(file), None) => Some(read_file(file)?),
        (None, Some(text)) => {
            let seconds: f64 = text.parse().unwrap_or(0.0);
            if !(0.001..1e6).contains(&seconds) {
                let message = format!("--seconds: '{text}' is not a number above 0");
                return Err(Failure::usage(message));
            }
            let first = take(&xen, store.as_mut(), &domains)?;
            std::thread::sleep(Duration::from_secs_f64(seconds));
            Some(first)
        }
        (None, None) => None,
    };
    let mut now = take(&xen, store.as_mut(), &domains)?;
    if let Some(first) = &first {
        now.subtract(first);
    }
    let text = table::text(&now, args.has("vcpus"), args.has("histogram"));
    Report::new(text, &Versioned::new(&now))?.print(context)
}

/// The domains that the words name, or all.
fn chosen(xen: &Xen, store: Option<&mut Client>, words: &[String]) -> Result<Vec<u16>> {
    let all = numbers(xen, "/exits")?;
    if words.is_empty() {
        return Ok(all);
    }
    let mut store = store;
    let find = |word: &String| -> Result<u16> {
        let id = match word.parse() {
            Ok(id) => id,
            Err(_) => match store.as_deref_mut() {
                Some(store) => domain_arg::find(store, word)?.0,
                None => {
                    let message = format!("'{word}': without xenstored only numbers name domains");
                    return Err(Failure::new(message));
                }
            },
        };
        all.contains(&id).then_some(id).ok_or_else(|| {
            Failure::new(format!(
                "Domain '{word}' does not exist; 'xl list' shows the domains"
            ))
        })
    };
    words.iter().map(find).collect()
}

/// The names in a folder that are numbers, ascending.
fn numbers<T: std::str::FromStr + Ord>(xen: &Xen, path: &str) -> Result<Vec<T>> {
    match xen.file(path) {
        Ok(File::Folder(names)) => {
            let mut all: Vec<T> = names.iter().filter_map(|n| n.parse().ok()).collect();
            all.sort();
            Ok(all)
        }
        Ok(_) => Err(Failure::new(format!("{path} is not a folder"))),
        Err(e) => Err(unreadable(path, &e)),
    }
}

fn unreadable(path: &str, error: &std::io::Error) -> Failure {
    let is = |errno: Errno| errno_of(error) == Some(errno as i32);
    if is(Errno::ENOSYS) {
        return Failure::new(
            "this hypervisor has no file system (hypfs); Xenolith has one if built with CONFIG_HYPFS",
        );
    }
    if is(Errno::ENOENT) {
        let message = format!("{path} is not in the hypervisor's file system; Xenolith has it");
        return Failure::new(message);
    }
    Failure::new(format!("{path}: {error}"))
}

fn text(xen: &Xen, path: &str) -> Result<String> {
    match xen.file(path) {
        Ok(File::Text(text)) => Ok(text),
        Ok(_) => Err(Failure::new(format!("{path} is not a text"))),
        Err(e) => Err(unreadable(path, &e)),
    }
}

/// Reads the counters. A domain that goes away in the middle is left out.
fn take(xen: &Xen, mut store: Option<&mut Client>, domains: &[u16]) -> Result<Exits> {
    let mut exits = Exits {
        tsc_khz: 0,
        domains: Vec::new(),
    };
    for &domid in domains {
        let folder = format!("/exits/{domid}");
        let vcpus = numbers::<u32>(xen, &folder).and_then(|vcpus| {
            let read = |vcpu: u32| -> Result<Vcpu> {
                let Sample { tsc_khz, counts } = parse(&text(xen, &format!("{folder}/{vcpu}"))?)?;
                exits.tsc_khz = tsc_khz;
                Ok(Vcpu { vcpu, counts })
            };
            vcpus.into_iter().map(read).collect::<Result<Vec<_>>>()
        });
        let vcpus = match vcpus {
            Ok(vcpus) => vcpus,
            Err(_) if !numbers(xen, "/exits")?.contains(&domid) => continue,
            Err(e) => return Err(e),
        };
        let name = store
            .as_deref_mut()
            .and_then(|s| domain_arg::name(s, DomId(domid)));
        exits.domains.push(Domain {
            domid,
            name: name.unwrap_or_else(|| NAMELESS.into()),
            counts: Counts::sum(vcpus.iter().map(|v| &v.counts)),
            vcpus,
        });
    }
    Ok(exits)
}

/// As Xen's tools print a domain without a name.
const NAMELESS: &str = "(null)";

fn read_file(path: &str) -> Result<Exits> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::new(format!("{path}: {e}")))?;
    let parsed: Versioned<Exits> = serde_json::from_str(&text).map_err(|e| {
        Failure::new(format!(
            "{path}: {e}; it must have been made by 'xl exits --json'"
        ))
    })?;
    if parsed.version != 1 {
        let message = format!("{path}: version {} is not known here", parsed.version);
        return Err(Failure::new(message));
    }
    Ok(parsed.body)
}

impl Domain {
    /// Whether it is the same one, in another sample: by its name, which outlives its number, or, without one, by its number.
    fn is(&self, other: &Domain) -> bool {
        let named = |d: &Domain| d.name != NAMELESS;
        if named(self) && named(other) {
            return self.name == other.name;
        }
        self.domid == other.domid
    }
}

impl Exits {
    /// Leaves what has happened since; a domain that was not there before, or has started anew, stays whole.
    fn subtract(&mut self, earlier: &Exits) {
        for domain in &mut self.domains {
            let Some(old) = earlier.domains.iter().find(|d| d.domid == domain.domid) else {
                continue;
            };
            let anew = domain.vcpus.iter().any(|v| {
                let old = old.vcpus.iter().find(|o| o.vcpu == v.vcpu);
                old.is_some_and(|o| !v.counts.follows(&o.counts))
            });
            if anew {
                continue;
            }
            for v in &mut domain.vcpus {
                if let Some(o) = old.vcpus.iter().find(|o| o.vcpu == v.vcpu) {
                    v.counts.subtract(&o.counts);
                }
            }
            domain.counts = Counts::sum(domain.vcpus.iter().map(|v| &v.counts));
        }
    }
}

/// `--diff`.
fn compare(context: &Context, args: &Args) -> Outcome {
    let [before, after, names @ ..] = &args.words[..] else {
        let message = "'xl exits --diff' needs two files, made by 'xl exits --json'";
        return Err(Failure::usage(message));
    };
    let (before, after) = (read_file(before)?, read_file(after)?);
    let wanted = |d: &Domain| {
        names.is_empty()
            || names
                .iter()
                .any(|n| *n == d.name || *n == d.domid.to_string())
    };
    let (old, new): (Vec<_>, Vec<_>) = (
        before.domains.iter().filter(|d| wanted(d)).collect(),
        after.domains.iter().filter(|d| wanted(d)).collect(),
    );
    let pairs: Vec<(&Domain, &Domain)> = match (&old[..], &new[..]) {
        ([a], [b]) => vec![(*a, *b)],
        _ => old
            .iter()
            .filter_map(|a| Some((*a, *new.iter().find(|b| a.is(b))?)))
            .collect(),
    };
    if pairs.is_empty() {
        return Err(Failure::new(
            "no domain is in both files; name one that is, or make files of one domain each",
        ));
    }
    let comparison: Vec<_> = pairs
        .iter()
        .map(|(a, b)| table::Comparison::new(a, b))
        .collect();
    let text = comparison.iter().map(table::Comparison::text);
    let text = text.collect::<Vec<_>>().join("\n");
    let value = serde_json::json!({ "comparison": comparison });
    Report::new(text, &Versioned::new(value))?.print(context)
}
