//! Unsafe code lives in few places; every other crate forbids it at its root.

use super::{by_line, rust_below, words_of};
use crate::source::Source;

/// Where it may be.
const ALLOWED: &[&str] = &[
    "hypervisor/hw/",
    "hypervisor/image/",
    "toolstack/xen-sys/",
    "ci/guests/",
];

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let allowed = |path: &str| ALLOWED.iter().any(|a| path.starts_with(a));
    let mut found = Vec::new();
    for file in rust_below(files, &[""]).filter(|f| !allowed(&f.path)) {
        found.extend(by_line(file, |line| {
            let hit = line.contains("unsafe ") || line.contains("unsafe{");
            (hit && words_of(line).iter().any(|w| w == "unsafe"))
                .then(|| "unsafe code outside its crates".into())
        }));
        let root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        if root && !file.text.contains("#![forbid(unsafe_code)]") {
            found.push(format!("{}: no #![forbid(unsafe_code)]", file.path));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn roots_and_blocks() {
        assert!(check(&[file("xen-abi/src/lib.rs", "#![forbid(unsafe_code)]")]).is_empty());
        assert_eq!(check(&[file("xen-abi/src/lib.rs", "")]).len(), 1);
        assert_eq!(
            check(&[file("hypervisor/core/src/a.rs", "let x = unsafe { y };")]).len(),
            1
        );
        assert!(check(&[file("hypervisor/hw/src/lib.rs", "unsafe { y }")]).is_empty());
    }
}
