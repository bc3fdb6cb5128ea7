//! Every `unsafe` block and `unsafe impl` says why it is sound, every `unsafe fn` what its caller must see to. Clippy
//! checks this too, but only in the code that it compiles.

use super::rust_below;
use crate::source::Source;

/// How many lines above may lie between the comment and the block.
const REACH: usize = 12;

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in rust_below(files, &[""]) {
        let code = file.code();
        let text: Vec<&str> = file.text.lines().collect();
        for (i, line) in code.lines().enumerate() {
            for (at, _) in line.match_indices("unsafe") {
                let before = line[..at].chars().next_back();
                let after = line[at + 6..].trim_start();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_')
                    || line[at + 6..].starts_with(['_', '('])
                {
                    continue;
                }
                let window = || &text[i.saturating_sub(REACH)..=i];
                let says = |word: &str| {
                    window()
                        .iter()
                        .any(|l| l.contains("//") && l.contains(word))
                };
                let ok = if after.starts_with("fn")
                    || after.starts_with("extern")
                    || after.starts_with("trait")
                {
                    // Function pointer types and `extern` blocks carry no contract of their own.
                    !line[..at].trim_end().ends_with("pub") && !after.starts_with("trait")
                        || doc_above(&text, i)
                } else {
                    says("SAFETY")
                };
                if !ok {
                    found.push(format!("{}:{}: no SAFETY comment", file.path, i + 1));
                }
            }
        }
    }
    found
}

/// Whether the documentation right above line `i` has a `# Safety` section.
fn doc_above(text: &[&str], i: usize) -> bool {
    let above = text[..i].iter().rev().map(|l| l.trim_start());
    above
        .take_while(|l| l.starts_with("//") || l.starts_with('#'))
        .any(|l| l.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn blocks_and_functions() {
        let good = "// SAFETY: alone.\nunsafe { f() }\n/// # Safety\n/// Call once.\npub unsafe fn g() {}\n";
        assert!(check(&[file("a.rs", good)]).is_empty());
        assert_eq!(check(&[file("a.rs", "fn f() { unsafe { g() } }")]).len(), 1);
        assert_eq!(check(&[file("a.rs", "unsafe impl Sync for A {}")]).len(), 1);
        assert_eq!(
            check(&[file("a.rs", "/// Words.\npub unsafe fn g() {}")]).len(),
            1
        );
        assert!(
            check(&[file(
                "a.rs",
                "#![forbid(unsafe_code)]\n#[unsafe(no_mangle)]\n// unsafe {"
            )])
            .is_empty()
        );
    }
}
