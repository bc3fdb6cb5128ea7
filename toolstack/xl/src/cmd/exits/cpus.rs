//! Interrupts of the machine's CPUs: `/interrupts/<CPU>`.

use super::{numbers, text};
use crate::cmd::failure::{Failure, Result};
use crate::cmd::host::{Report, Versioned};
use crate::cmd::{Context, Outcome};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use xen_sys::xen::Xen;

/// A CPU's figures.
#[derive(Debug, PartialEq, Serialize)]
struct Cpu {
    cpu: u32,
    vectors_used: u64,
    vectors: u64,
    spurious: u64,
    icr_writes: u64,
    posted_interrupts: u64,
    posted_notifications: u64,
    posted_turns: u64,
    posted_stray: u64,
    exits_settled: u64,
    exits_repaired: u64,
}

/// Prints them.
pub(super) fn print(context: &Context, xen: &Xen) -> Outcome {
    let read = |cpu: u32| parse(cpu, &text(xen, &format!("/interrupts/{cpu}"))?);
    let cpus = numbers(xen, "/interrupts")?.into_iter().map(read);
    let cpus = cpus.collect::<Result<Vec<Cpu>>>()?;
    let mut out = String::from(
        "CPU  vectors  spurious  ICR writes  posted messages  notifications     turns     stray    settled  repaired\n",
    );
    for c in &cpus {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:>3} {:>8} {:>9} {:>11} {:>16} {:>14} {:>9} {:>9} {:>10} {:>9}",
            c.cpu,
            format!("{}/{}", c.vectors_used, c.vectors),
            c.spurious,
            c.icr_writes,
            c.posted_interrupts,
            c.posted_notifications,
            c.posted_turns,
            c.posted_stray,
            c.exits_settled,
            c.exits_repaired
        );
    }
    Report::new(out, &Versioned::new(json!({ "cpus": cpus })))?.print(context)
}

fn parse(cpu: u32, text: &str) -> Result<Cpu> {
    let word = |key: &str| {
        let mut lines = text.lines().filter_map(|l| l.split_once(' '));
        lines.find(|(k, _)| *k == key).map(|(_, value)| value)
    };
    if word("format") != Some("1") {
        return Err(Failure::new(format!(
            "the hypervisor counts interrupts in format {}; this xl knows 1",
            word("format").unwrap_or("(none)")
        )));
    }
    let number = |key: &str| {
        let value = word(key).and_then(|v| v.parse().ok());
        value
            .ok_or_else(|| Failure::new(format!("the hypervisor does not tell {key} of CPU {cpu}")))
    };
    Ok(Cpu {
        cpu,
        vectors_used: number("vectors_used")?,
        vectors: number("vectors")?,
        spurious: number("spurious")?,
        icr_writes: number("icr_writes")?,
        posted_interrupts: number("posted_interrupts")?,
        posted_notifications: number("posted_notifications")?,
        posted_turns: number("posted_turns")?,
        posted_stray: number("posted_stray")?,
        exits_settled: number("exits_settled")?,
        exits_repaired: number("exits_repaired")?,
    })
}
