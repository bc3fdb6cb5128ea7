//! `hv-hw` knows no domain, event channel or grant, not even by name.

use super::{by_line, rust_below, words_of};
use crate::source::Source;

const WORDS: &[&str] = &[
    "domain",
    "dom0",
    "domu",
    "evtchn",
    "gnttab",
    "hypercalls",
    "xenstore",
];

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let find = |line: &str| {
        let word = words_of(line)
            .into_iter()
            .find(|w| WORDS.contains(&w.as_str()))?;
        Some(format!("`{word}` is not an idea of the hardware layer"))
    };
    // The rank table orders the locks of the layers above too.
    let table = |path: &str| path.starts_with("hypervisor/hw/src/sync/");
    let hw = rust_below(files, &["hypervisor/hw/src/"]).filter(|f| !table(&f.path));
    hw.flat_map(|f| by_line(f, find)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn code_counts_comments_do_not() {
        assert!(check(&[file("hypervisor/hw/src/a.rs", "// domain\nlet x: DomId;")]).is_empty());
        assert_eq!(
            check(&[file("hypervisor/hw/src/a.rs", "struct DomainList;")]).len(),
            1
        );
        assert!(check(&[file("hypervisor/core/src/a.rs", "struct DomainList;")]).is_empty());
    }
}
