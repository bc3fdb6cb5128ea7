//! No source file is longer than a person can hold in mind.

use crate::source::Source;

const LIMIT: usize = 600;

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let code = files.iter().filter(|f| {
        matches!(
            f.extension(),
            "rs" | "sh" | "toml" | "ld" | "S" | "py" | "c"
        )
    });
    let long = code
        .map(|f| (f, f.text.lines().count()))
        .filter(|(_, n)| *n > LIMIT);
    long.map(|(f, n)| format!("{}: {n} lines, the limit is {LIMIT}", f.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn limit() {
        assert!(check(&[file("a.rs", &"\n".repeat(600))]).is_empty());
        assert_eq!(
            check(&[
                file("a.rs", &"\n".repeat(601)),
                file("a.md", &"\n".repeat(900))
            ])
            .len(),
            1
        );
    }
}
