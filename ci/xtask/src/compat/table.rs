//! `docs/compat.md`: one row for each guest and kind, one column for each ground, and the ends of the consoles of what is red.
//! A run of a part changes its rows and leaves the others.

use std::fmt;

/// Lines of console kept for what is red.
pub const TAIL: usize = 16;

const HEAD: &str = "\
# Compatibility

`cargo xtask compat` writes this page: it boots guests that nobody here wrote (and our micro-guests) in QEMU, on Xenolith and
beside it on Debian's Xen 4.17 with the same kernels, RAM disks and machine. A row passes when a dom0 reaches its user space with
all CPUs; when a guest does so, sees its disk, answers a ping and shuts down as told; when a micro-guest says so. On Xen, dom0 is
PV: as PVH it does not come up there in this emulator. `cargo xtask compat TEXT` runs the rows with this text and leaves the
others. Below the table stand the last lines of the console of each red row. What micro-guests did on Xen is not run again:
`ci/micro/reference` holds it, where Xen could run them here.

The times, in seconds, are those of a busy machine and are no measurement.

";
const COLUMNS: &str = "| Guest | Kind | Xenolith | Xen 4.17 | Run on |";
const RED: &str = "**red**: ";
const MISSING: &str = "; missing: ";

/// What a guest runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    Xenolith,
    Xen,
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xenolith => "Xenolith",
            Self::Xen => "Xen 4.17",
        })
    }
}

/// A row's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub guest: String,
    pub kind: String,
}

impl Key {
    /// Whether the text is in it.
    pub fn has(&self, text: &str) -> bool {
        self.to_string().contains(text)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.guest, self.kind)
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It runs; what else is to be said.
    Pass(String),
    /// It does not; why.
    Red(String),
    /// It says that it cannot be run there; why.
    Skip(String),
}

impl Cell {
    /// Not red.
    pub fn is_good(&self) -> bool {
        !matches!(self, Self::Red(_))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(more) if more.is_empty() => f.write_str("pass"),
            Self::Pass(more) => write!(f, "pass, {more}"),
            Self::Red(why) => write!(f, "{RED}{why}"),
            Self::Skip(why) => write!(f, "skipped: {why}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    key: Key,
    cells: [String; 2],
    date: String,
}

/// The page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Row>,
    /// Heading and lines.
    tails: Vec<(String, String)>,
}

impl Table {
    /// Reads the page; what it does not understand is left out.
    pub fn parse(page: &str) -> Self {
        let mut table = Self::default();
        let mut lines = page.lines();
        for line in lines.by_ref() {
            if let Some(heading) = line.strip_prefix("### ") {
                table.tails.push((heading.to_owned(), String::new()));
                break;
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, guest, kind, ours, xen, date, _] = cells[..] else {
                continue;
            };
            if line != COLUMNS && !guest.starts_with("--") {
                table.rows.push(Row {
                    key: Key {
                        guest: guest.into(),
                        kind: kind.into(),
                    },
                    cells: [ours.into(), xen.into()],
                    date: date.into(),
                });
            }
        }
        for line in lines {
            match (line.strip_prefix("### "), table.tails.last_mut()) {
                (Some(heading), _) => table.tails.push((heading.to_owned(), String::new())),
                (None, Some((_, text))) => {
                    if let Some(shown) = line.strip_prefix("    ") {
                        text.push_str(shown);
                        text.push('\n');
                    }
                }
                (None, None) => {}
            }
        }
        table
    }

    /// Has these rows, in this order: others are dropped, new ones are empty.
    pub fn arrange(&mut self, keys: impl Iterator<Item = Key>) {
        let old = std::mem::take(&mut self.rows);
        self.rows = keys
            .map(|key| match old.iter().find(|row| row.key == key) {
                Some(row) => row.clone(),
                None => Row {
                    key,
                    cells: ["not run", "not run"].map(String::from),
                    date: String::new(),
                },
            })
            .collect();
        let rows = &self.rows;
        self.tails
            .retain(|(heading, _)| rows.iter().any(|r| heading.starts_with(&r.key.to_string())));
    }

    /// Fills in a result.
    pub fn set(
        &mut self,
        key: &Key,
        ground: Ground,
        cell: Cell,
        missing: Option<&str>,
        tail: String,
        date: &str,
    ) {
        let heading = format!("{key}, on {ground}");
        self.tails.retain(|(old, _)| *old != heading);
        if !cell.is_good() && !tail.is_empty() {
            self.tails.push((heading, tail));
        }
        if let Some(row) = self.rows.iter_mut().find(|row| row.key == *key) {
            // A bar would end the column.
            let mut text = cell.to_string().replace(['|', '\n', '\r'], " ");
            if let (Some(missing), false) = (missing, cell.is_good()) {
                text += &format!("{MISSING}{missing}");
            }
            row.cells[ground as usize] = text;
            row.date = date.to_owned();
        }
    }

    /// How many of each on Xenolith.
    pub fn summary(&self) -> String {
        let count = |start: &str| {
            let ours = self.rows.iter().filter(|r| r.cells[0].starts_with(start));
            ours.count()
        };
        format!(
            "on Xenolith {} pass, {} red, {} skipped, {} not run",
            count("pass"),
            count(RED),
            count("skipped"),
            count("not run")
        )
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}At present: {}.\n\n", self.summary())?;
        writeln!(f, "{COLUMNS}\n|---|---|---|---|---|")?;
        for row in &self.rows {
            let Key { guest, kind } = &row.key;
            let [ours, xen] = &row.cells;
            writeln!(f, "| {guest} | {kind} | {ours} | {xen} | {} |", row.date)?;
        }
        if !self.tails.is_empty() {
            writeln!(f, "\n## Consoles")?;
        }
        // In the order of the rows.
        for row in &self.rows {
            for ground in [Ground::Xenolith, Ground::Xen] {
                let heading = format!("{}, on {ground}", row.key);
                let Some((_, text)) = self.tails.iter().find(|(h, _)| *h == heading) else {
                    continue;
                };
                writeln!(f, "\n### {heading}\n")?;
                for line in text.lines().filter(|l| !l.trim().is_empty()) {
                    writeln!(f, "    {}", line.trim_end())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(guest: &str) -> Key {
        Key {
            guest: guest.into(),
            kind: "dom0".into(),
        }
    }

    #[test]
    fn a_part_leaves_the_rest() {
        let mut table = Table::default();
        table.arrange(["a", "b", "c"].map(key).into_iter());
        let red = |why: &str| Cell::Red(why.into());
        let tail = "last\nwords".to_owned();
        table.set(&key("a"), Ground::Xen, red("a | b"), Some("x"), tail, "1");
        let tail = "more".to_owned();
        table.set(&key("b"), Ground::Xenolith, red("why"), None, tail, "1");
        let page = table.to_string();
        assert!(page.contains("| a | dom0 | not run | **red**: a   b; missing: x | 1 |"));
        let mut again = Table::parse(&page);
        assert_eq!(again.to_string(), page);
        // `b` runs now, `c` is no longer on the list, `d` is new.
        again.arrange(["d", "a", "b"].map(key).into_iter());
        let pass = Cell::Pass("2 s".into());
        again.set(&key("b"), Ground::Xenolith, pass, None, String::new(), "2");
        let page = again.to_string();
        assert!(page.contains("| d | dom0 | not run | not run |  |\n| a |"));
        assert!(page.contains("| b | dom0 | pass, 2 s | not run | 2 |"));
        assert!(page.contains("### a, dom0, on Xen 4.17\n\n    last\n    words\n"));
        assert!(!page.contains("more\n") && !page.contains("| c |"));
        assert_eq!(
            again.summary(),
            "on Xenolith 1 pass, 0 red, 0 skipped, 2 not run"
        );
    }
}
