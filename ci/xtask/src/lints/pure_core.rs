//! `hv-core` and the two crates of data execute nothing of their own: no intrinsics, no assembler, no statics, no raw
//! pointers.

use super::{by_line, rust_below};
use crate::source::Source;

/// Text in code without blanks, and what it is.
const BANNED: &[(&str, &str)] = &[
    ("core::arch", "a CPU intrinsic"),
    ("std::arch", "a CPU intrinsic"),
    ("asm!", "assembler"),
    ("static mut ", "a mutable static"),
    ("*const ", "a raw pointer"),
    ("*mut ", "a raw pointer"),
];

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in rust_below(
        files,
        &[
            "hypervisor/core/src/",
            "hypervisor/x86-model/src/",
            "hypervisor/kernel-image/src/",
            "xen-abi/src/",
        ],
    ) {
        found.extend(by_line(file, |line| {
            let hit = BANNED
                .iter()
                .find(|(text, _)| line.contains(text))
                .map(|(_, what)| what.to_string());
            let core = file.path.starts_with("hypervisor/core/");
            let item = line
                .trim_start()
                .trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ");
            // A slice behind a shared reference is a table, not state.
            let state = item.starts_with("static ") && !item.contains(": &[");
            hit.or_else(|| (core && state).then(|| "a static: state belongs to a value".into()))
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn each_ban() {
        let bad = [
            "use core::arch::x86_64;",
            "asm!(\"\");",
            "static mut X: u8 = 0;",
            "fn f(p: *const u8)",
            "pub static X: u8 = 0;",
        ];
        for line in bad {
            assert_eq!(
                check(&[file("hypervisor/core/src/a.rs", line)]).len(),
                1,
                "{line}"
            );
        }
        let good = "fn f(x: &'static str) -> u64 { a * b } // asm!";
        assert!(check(&[file("hypervisor/core/src/a.rs", good)]).is_empty());
        assert!(check(&[file("hypervisor/hw/src/a.rs", bad[0])]).is_empty());
    }
}
