//! Line-by-line comparison of two reports, and the list of differences that are meant.

use std::path::Path;

use crate::report::Report;

/// The rows of `docs/abi/differences.md`: guest, fact key (a final `*` matches any rest), reason.
pub(crate) struct Expected {
    rows: Vec<(String, String)>,
}

/// What a comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many facts differ that no row covers.
    pub(crate) unexpected: usize,
    /// The fact column of each row of this guest that no difference needs any more.
    pub(crate) idle: Vec<String>,
}

impl Expected {
    /// Reads the table; a missing file means that no difference is expected.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self { rows: Vec::new() }),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    fn parse(text: &str) -> Self {
        let rows = text
            .lines()
            .filter_map(|line| {
                let mut cells = line
                    .strip_prefix('|')?
                    .split('|')
                    .map(|cell| cell.trim().trim_matches('`'));
                let (guest, key, reason) = (cells.next()?, cells.next()?, cells.next()?);
                let row = !guest.is_empty()
                    && !reason.is_empty()
                    && !guest.starts_with('-')
                    && guest != "Guest";
                row.then(|| (guest.into(), key.into()))
            })
            .collect();
        Self { rows }
    }

    fn covers(&self, guest: &str, key: &str) -> bool {
        self.of(guest).any(|row| covers(row, key))
    }

    /// The fact columns of the rows of a guest.
    fn of<'a>(&'a self, guest: &'a str) -> impl Iterator<Item = &'a str> {
        let rows = self.rows.iter();
        rows.filter(move |(g, _)| g == guest)
            .map(|(_, key)| key.as_str())
    }
}

fn covers(row: &str, key: &str) -> bool {
    row.strip_suffix('*')
        .map_or(row == key, |head| key.starts_with(head))
}

/// Prints the facts that differ; returns how many of them nobody expected, and the rows that are not needed.
pub(crate) fn print(
    guest: &str,
    ours: &Report,
    theirs: &Report,
    expected: &Expected,
    verbose: bool,
) -> Found {
    let mut unexpected = 0;
    let mut known = 0;
    let mut differing = Vec::new();
    for (key, value) in &ours.facts {
        let other = theirs.fact(key);
        if other == Some(value) {
            if verbose {
                println!("    = {key} {value}");
            }
            continue;
        }
        differing.push(key);
        if expected.covers(guest, key) {
            known += 1;
            if !verbose {
                continue;
            }
        } else {
            unexpected += 1;
        }
        let mark = if expected.covers(guest, key) {
            '~'
        } else {
            '!'
        };
        println!(
            "    {mark} {key}\n        xenolith: {value}\n        xen-4.17: {}",
            other.unwrap_or("(absent)")
        );
    }
    for (key, value) in &theirs.facts {
        if ours.fact(key).is_some() {
            continue;
        }
        differing.push(key);
        if !expected.covers(guest, key) {
            unexpected += 1;
            println!("    ! {key}\n        xenolith: (absent)\n        xen-4.17: {value}");
        }
    }
    if unexpected + known > 0 {
        println!(
            "    {unexpected} unexpected and {known} expected differences in {} facts",
            ours.facts.len()
        );
    }
    let idle = expected.of(guest);
    let idle = idle.filter(|row| !differing.iter().any(|key| covers(row, key)));
    Found {
        unexpected,
        idle: idle.map(String::from).collect(),
    }
}

/// Says where a live run of the peer departs from its recording.
pub(crate) fn print_drift(guest: &str, live: &Report, recorded: &Report) {
    for (key, value) in &live.facts {
        if recorded.fact(key) != Some(value) {
            println!(
                "{guest:18} recording is stale: {key} {value} (was {:?})",
                recorded.fact(key)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Text\n| Guest | Fact | Why |\n|---|---|---|\n| `cpuid` | `leaf-d*` | xsave |\n| `msr` | `10` | |\n";

    #[test]
    fn rows_need_a_reason_and_match_by_prefix() {
        let expected = Expected::parse(TABLE);
        assert!(expected.covers("cpuid", "leaf-d.1"));
        assert!(!expected.covers("cpuid", "leaf-7.0"));
        assert!(!expected.covers("msr", "10"));
        assert!(!expected.covers("Guest", "Fact"));
    }

    #[test]
    fn missing_facts_count_on_both_sides() {
        let ours = Report::parse("FACT leaf-d.0 1\nFACT a 1\nFACT b 1\n", "");
        let theirs = Report::parse("FACT leaf-d.0 2\nFACT a 1\nFACT c 1\n", "");
        let found = print("cpuid", &ours, &theirs, &Expected::parse(TABLE), false);
        assert_eq!(found.unexpected, 2);
        assert!(found.idle.is_empty());
    }

    #[test]
    fn a_row_without_difference_is_idle() {
        let same = Report::parse("FACT leaf-d.0 1\n", "");
        let found = print("cpuid", &same, &same, &Expected::parse(TABLE), false);
        assert_eq!(found.idle, ["leaf-d*"]);
    }
}
