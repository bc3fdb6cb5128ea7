//! CPU vendors and their extensions are named only where the hardware is driven or described.

use super::{by_line, rust_below, words_of};
use crate::source::Source;

const WORDS: &[&str] = &[
    "svm", "vmx", "vmcb", "vmcs", "avic", "amd", "intel", "vmexit",
];
/// Page-table formats: the hardware layer's generic walker may name them, those above it may not.
const FORMATS: &[&str] = &["npt", "ept"];

/// What a guest sees of its processor depends on the vendor that CPUID names, and nothing else there does.
const IDENTITY: &[&str] = &[
    "hypervisor/core/src/hvm/cpuid",
    "hypervisor/core/src/hvm/msr",
    "hypervisor/core/src/domain/cpu",
];

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let find = |line: &str, formats_too: bool| {
        let bad = |w: &&str| WORDS.contains(w) || (formats_too && FORMATS.contains(w));
        let words = words_of(line);
        let word = words.iter().map(String::as_str).find(bad)?;
        Some(format!("vendor word `{word}`"))
    };
    let identity = |path: &str| IDENTITY.iter().any(|p| path.starts_with(p));
    let dirs = [
        "hypervisor/core/",
        "hypervisor/image/",
        "hypervisor/hw/src/",
    ];
    let neutral = rust_below(files, &dirs)
        .filter(|f| !f.path.starts_with("hypervisor/hw/src/x86/") && !identity(&f.path));
    neutral
        .flat_map(|f| by_line(f, |line| find(line, !f.path.starts_with("hypervisor/hw/"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn words_in_identifiers() {
        assert_eq!(
            check(&[file(
                "hypervisor/core/src/a.rs",
                "fn handle_vmcb() {}\nstruct SvmExit;"
            )])
            .len(),
            2
        );
        assert!(
            check(&[file(
                "hypervisor/core/src/a.rs",
                "fn accept() {} // as on AMD"
            )])
            .is_empty()
        );
        assert_eq!(
            check(&[
                file("hypervisor/core/src/a.rs", "Format::Npt"),
                file("hypervisor/hw/src/a.rs", "Format::Npt")
            ])
            .len(),
            1
        );
        assert!(check(&[file("hypervisor/hw/src/x86/virt/a.rs", "struct SvmExit;")]).is_empty());
    }
}
