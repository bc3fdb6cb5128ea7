//! What the plugin of `ci/bench` counted while the guest `bench` ran: parsed, condensed, and printed beside Xen's.
//!
//! Each operation was bracketed many times; the median of its samples is its cost, so that a timer interrupt of the
//! hypervisor spoils one sample and not the figure. What the empty bracket costs is taken off.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::report::Report;

/// Instructions of the hypervisor that an operation may cost at most (goal), by the guest's name of it.
const GOALS: &[(&str, u64)] = &[("cpuid", 600), ("hypercall", 600), ("send", 1200)];
const EMPTY: &str = "nothing";

/// Median instructions of the hypervisor per operation, by name.
pub(crate) type Costs = BTreeMap<String, u64>;

/// File that the plugin writes for a run on `hypervisor`.
pub(crate) fn file(hypervisor: &str) -> PathBuf {
    crate::target_dir().join(format!("bench/exits-{hypervisor}.txt"))
}

/// Reads what a run left. The guest's facts `op-NAME id=ID ...` name the brackets.
pub(crate) fn read(file: &Path, report: &Report) -> Result<Costs, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    costs(&text, &names(report)).map_err(|e| format!("{}: {e}", file.display()))
}

fn names(report: &Report) -> BTreeMap<u64, String> {
    let name = |(key, value): &(String, String)| {
        let name = key.strip_prefix("op-")?;
        let id = value.split(' ').find_map(|w| w.strip_prefix("id="))?;
        Some((id.parse().ok()?, name.to_owned()))
    };
    report.facts.iter().filter_map(name).collect()
}

/// Lines are `ID CPU HYPERVISOR GUEST`.
fn costs(text: &str, names: &BTreeMap<u64, String>) -> Result<Costs, String> {
    let mut samples: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        let fields: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok(&[id, _, hypervisor, _]) = fields.as_deref() else {
            return Err(format!("odd line: {line}"));
        };
        if let Some(name) = names.get(&id) {
            samples.entry(name).or_default().push(hypervisor);
        }
    }
    let mut costs: Costs = samples
        .into_iter()
        .map(|(name, mut samples)| {
            samples.sort_unstable();
            (name.to_owned(), samples[samples.len() / 2])
        })
        .collect();
    match costs.remove(EMPTY) {
        Some(empty) if !costs.is_empty() => {
            costs
                .values_mut()
                .for_each(|c| *c = c.saturating_sub(empty));
            Ok(costs)
        }
        _ => Err("no samples, or none of the empty bracket".into()),
    }
}

/// The table: ours, Xen's, the ratio, the goal. Returns it with the number of goals that were missed.
pub(crate) fn table(ours: Option<&Costs>, xen: Option<&Costs>) -> (String, usize) {
    let mut text = format!(
        "instructions of the hypervisor per operation (exact, median)\n{:<18}{:>10}{:>10}{:>9}  {}\n",
        "", "xenolith", "xen-4.17", "ratio", "goal"
    );
    let mut missed = 0;
    let all: BTreeMap<&String, ()> = [ours, xen]
        .into_iter()
        .flatten()
        .flat_map(|c| c.keys().map(|k| (k, ())))
        .collect();
    for name in all.into_keys() {
        let (a, b) = (
            ours.and_then(|c| c.get(name)),
            xen.and_then(|c| c.get(name)),
        );
        let show = |n: Option<&u64>| n.map_or_else(|| "-".to_owned(), u64::to_string);
        let ratio = match (a, b) {
            (Some(&a), Some(&b)) if b > 0 => format!("{:.3}", a as f64 / b as f64),
            _ => "-".to_owned(),
        };
        let goal = GOALS.iter().find(|(n, _)| n == name).map(|&(_, goal)| goal);
        let judged = match (a, goal) {
            (Some(&a), Some(goal)) if a >= goal => {
                missed += 1;
                format!("below {goal}: MISSED")
            }
            (_, Some(goal)) => format!("below {goal}"),
            _ => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:<18}{:>10}{:>10}{ratio:>9}  {judged}",
            show(a),
            show(b)
        );
    }
    text += "Much of Xen's share is the decoding of the instruction, which it does because QEMU's TCG saves no next RIP.\n";
    (text, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Costs {
        let report = Report::parse(
            "FACT op-nothing id=0 n=3\nFACT op-cpuid id=1 n=3\nFACT other id=9\n",
            "",
        );
        let text = "0 0 2 1\n0 0 2 1\n0 0 2 1\n1 0 500 10\n1 0 90000 10\n1 0 502 10\n9 0 1 1\n";
        costs(text, &names(&report)).unwrap()
    }

    #[test]
    fn the_median_stands_and_the_bracket_is_taken_off() {
        assert_eq!(measured(), Costs::from([("cpuid".into(), 500)]));
    }

    #[test]
    fn broken_files_are_errors() {
        let names = BTreeMap::from([(0, EMPTY.to_owned()), (1, "cpuid".to_owned())]);
        for text in [
            "",
            "1 0 5 5\n",
            "0 0 5 5\n",
            "0 0 1 1\n1 0 x 1\n",
            "0 0 1\n",
        ] {
            assert!(costs(text, &names).is_err(), "{text:?}");
        }
    }

    #[test]
    fn goals_are_judged() {
        let ours = measured();
        let xen = Costs::from([("cpuid".into(), 5000), ("send".into(), 10_000)]);
        let (text, missed) = table(Some(&ours), Some(&xen));
        assert_eq!(missed, 0);
        assert!(text.contains("0.100"), "{text}");
        let (text, missed) = table(Some(&xen), None);
        assert_eq!(missed, 2, "{text}");
    }
}
