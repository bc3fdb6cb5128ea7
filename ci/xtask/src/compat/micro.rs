//! The micro-guests: what `ci/micro` prints for each. They run on Xenolith; what they did on Xen is in the recordings that they
//! are compared with.

use super::Found;
use super::list::{Entry, What};
use super::table::{Cell, Ground, TAIL};
use crate::{exec, micro, ui};
use anyhow::Result;

/// How a pass on Xen is shown.
const RECORDED: &str = "as recorded";
/// Seconds for one guest.
const TIMEOUT: &str = "180";

/// Runs them.
pub fn run(entries: &[&Entry]) -> Result<Vec<Found>> {
    let names = entries.iter().filter_map(|e| match &e.what {
        What::Micro(name) => Some(name.as_str()),
        _ => None,
    });
    let mut args = vec!["--timeout", TIMEOUT];
    args.extend(names);
    let step = ui::step(&format!("{} micro-guests", entries.len()));
    let output = exec::collect(micro::runner(&args), |line| step.detail(line))?;
    step.end(if output.ok { "ok" } else { "no" }, "");
    let mut found = Vec::new();
    for entry in entries {
        let What::Micro(name) = &entry.what else {
            continue;
        };
        let (cells, tail) = verdict(name, &output.lines);
        for (ground, cell) in [Ground::Xenolith, Ground::Xen].into_iter().zip(cells) {
            // The runner shows the console of ours only.
            let shown = ground == Ground::Xenolith && !cell.is_good();
            let tail = if shown { tail.clone() } else { String::new() };
            found.push(Found {
                key: entry.key.clone(),
                ground,
                cell,
                tail,
            });
        }
    }
    Ok(found)
}

/// Both results of a guest, and the lines that follow them.
fn verdict(name: &str, lines: &[String]) -> ([Cell; 2], String) {
    let results = |line: &str| {
        let (first, rest) = line.split_once(char::is_whitespace)?;
        let rest = rest.trim_start().strip_prefix("xenolith: ")?;
        let (ours, xen) = rest.split_once("   xen-4.17: ")?;
        (first == name).then(|| [cell(ours), recorded(cell(xen))])
    };
    let at = lines
        .iter()
        .enumerate()
        .find_map(|(i, line)| Some((i, results(line)?)));
    let Some((at, mut cells)) = at else {
        let missing = || Cell::Red("no word of it".into());
        return ([missing(), missing()], String::new());
    };
    let follow = lines[at + 1..].iter().take_while(|l| l.starts_with(' '));
    let follow: Vec<&str> = follow.map(|l| l.trim_end()).collect();
    // The line with the numbers of differences comes last.
    let differs = follow.iter().rev().find(|l| l.contains(" unexpected and "));
    if let Some(line) = differs.filter(|l| !l.trim().starts_with("0 ")) {
        cells[0] = Cell::Red(line.trim().to_owned());
    }
    (cells, follow[..follow.len().min(TAIL)].join("\n"))
}

fn cell(text: &str) -> Cell {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("SUCCESS", _) => Cell::Pass(String::new()),
        ("SKIP", why) => Cell::Skip(why.into()),
        _ => Cell::Red(text.into()),
    }
}

fn recorded(cell: Cell) -> Cell {
    match cell {
        Cell::Pass(_) => Cell::Pass(RECORDED.into()),
        Cell::Red(why) if why == "no recording" => Cell::Skip(why),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_runner_are_read() {
        let lines = [
            "cr8                xenolith: SUCCESS   xen-4.17: no recording",
            "cr8x               xenolith: FAILURE x   xen-4.17: SKIP no such thing",
            "    its line",
            "1 passed, 1 failed, 0 skipped",
        ]
        .map(String::from);
        let red = |why: &str| Cell::Red(why.into());
        let (cells, tail) = verdict("cr8", &lines);
        assert_eq!(
            cells,
            [Cell::Pass(String::new()), Cell::Skip("no recording".into())]
        );
        assert_eq!(tail, "");
        let (cells, tail) = verdict("cr8x", &lines);
        assert_eq!(
            cells,
            [red("FAILURE x"), Cell::Skip("no such thing".into())]
        );
        assert_eq!(tail, "    its line");
        let differing = [
            "msr                xenolith: SUCCESS   xen-4.17: SUCCESS",
            "    ! leaf-1",
            "    1 unexpected and 3 expected differences in 9 facts",
        ];
        let (cells, _) = verdict("msr", &differing.map(String::from));
        let why = "1 unexpected and 3 expected differences in 9 facts";
        assert_eq!(cells, [red(why), Cell::Pass(RECORDED.into())]);
        assert_eq!(
            verdict("none", &lines).0,
            [red("no word of it"), red("no word of it")]
        );
    }
}
