//! The figures as text, in the form of `xentrace`'s event counts: a number and what it counts, a line each.

use super::counts::{Counts, Event};
use super::{Domain, Exits};
use serde::Serialize;
use std::fmt::Write;

/// All domains.
pub(super) fn text(exits: &Exits, vcpus: bool, histogram: bool) -> String {
    let mut blocks = Vec::new();
    for d in &exits.domains {
        blocks.push(block(&title(d), &d.counts, histogram));
        for v in d.vcpus.iter().filter(|_| vcpus) {
            let title = format!("{} ({}), vCPU {}", d.name, d.domid, v.vcpu);
            blocks.push(block(&title, &v.counts, histogram));
        }
    }
    blocks.join("\n")
}

fn title(d: &Domain) -> String {
    let count = d.vcpus.len();
    let plural = if count == 1 { "" } else { "s" };
    format!("{} ({}), {count} vCPU{plural}", d.name, d.domid)
}

fn block(title: &str, counts: &Counts, histogram: bool) -> String {
    let events: Vec<&Event> = counts.exits.iter().chain(&counts.schedule).collect();
    let timed = events.iter().any(|e| e.cycles.is_some());
    let mut out = format!("{title}\n");
    // Writing to a string cannot fail.
    let mut line = |count: &str, [mean, p50, p99]: [&str; 3], what: &str| {
        let _ = if timed {
            writeln!(out, "{count:>12} {mean:>12} {p50:>12} {p99:>12}  {what}")
        } else {
            writeln!(out, "{count:>12}  {what}")
        };
    };
    line(
        "count",
        ["mean cycles", "50 % below", "99 % below"],
        "event",
    );
    let show = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut spread = |e: &Event| {
        let times = [e.mean(), e.below(500), e.below(990)].map(show);
        let times: [&str; 3] = std::array::from_fn(|n| times[n].as_str());
        line(&e.count.to_string(), times, &e.reason);
        for b in e.histogram.iter().flatten().filter(|_| histogram) {
            let what = format!("  of them below {}", 1u128 << (b.log2 + 1));
            line(&b.count.to_string(), [""; 3], &what);
        }
    };
    counts.exits.iter().for_each(&mut spread);
    counts.schedule.iter().for_each(&mut spread);
    for (what, count) in rest(counts) {
        line(&count.to_string(), [""; 3], &what);
    }
    out
}

/// The lines without times.
fn rest(counts: &Counts) -> Vec<(String, u64)> {
    let vector = |v: u8| format!("injected {v:#04x}");
    let injected = counts.injected.iter().map(|i| (vector(i.vector), i.count));
    let mut lines: Vec<_> = injected.collect();
    lines.push(("all injections".into(), counts.injected_total));
    lines.push(("all exits".into(), counts.exits_total));
    lines
}

/// All lines.
fn lines(counts: &Counts) -> Vec<(String, u64)> {
    let events = counts.exits.iter().chain(&counts.schedule);
    let mut lines: Vec<_> = events.map(|e| (e.reason.clone(), e.count)).collect();
    lines.extend(rest(counts));
    lines
}

/// A domain before and after.
#[derive(Serialize)]
pub(super) struct Comparison {
    before: String,
    after: String,
    events: Vec<Compared>,
}

/// A line of it.
#[derive(Serialize)]
struct Compared {
    event: String,
    before: u64,
    after: u64,
    /// `None` if there was none before.
    change_percent: Option<f64>,
}

impl Comparison {
    /// Of these two.
    pub fn new(before: &Domain, after: &Domain) -> Comparison {
        let (old, new) = (lines(&before.counts), lines(&after.counts));
        let count = |of: &[(String, u64)], name: &str| {
            let found = of.iter().find(|(n, _)| n == name);
            found.map_or(0, |(_, count)| *count)
        };
        let mut names: Vec<&String> = old.iter().chain(&new).map(|(n, _)| n).collect();
        names.sort_by_key(|n| (place(n), *n));
        names.dedup();
        let compared = |event: &String| {
            let (before, after) = (count(&old, event), count(&new, event));
            let change = (after as f64 - before as f64) * 100.0 / before as f64;
            Compared {
                event: event.clone(),
                before,
                after,
                change_percent: (before > 0).then(|| (change * 10.0).round() / 10.0),
            }
        };
        Comparison {
            before: title(before),
            after: title(after),
            events: names.into_iter().map(compared).collect(),
        }
    }

    /// The table.
    pub fn text(&self) -> String {
        let mut out = if self.before == self.after {
            format!("{}\n", self.before)
        } else {
            format!("before: {}\nafter:  {}\n", self.before, self.after)
        };
        let mut line = |before: &str, after: &str, change: &str, what: &str| {
            let _ = writeln!(out, "{before:>12} {after:>12} {change:>10}  {what}");
        };
        line("before", "after", "change", "event");
        for c in &self.events {
            let change = match c.change_percent {
                Some(p) => format!("{p:+.1} %"),
                None => String::new(),
            };
            line(
                &c.before.to_string(),
                &c.after.to_string(),
                &change,
                &c.event,
            );
        }
        out
    }
}

/// Exits first, then turns, vectors, sums.
fn place(event: &str) -> u8 {
    match event {
        "schedule" => 1,
        "all injections" => 3,
        "all exits" => 4,
        e if e.starts_with("injected ") => 2,
        _ => 0,
    }
}
