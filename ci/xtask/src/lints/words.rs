//! Words and paths that must not be in the tree: unfinished code, machine-local paths, debugging leftovers.

use crate::source::Source;

/// Each written in two halves, so that this file does not find itself.
const CODE: &[(&str, &str)] = &[("todo", "!("), ("unimplemented", "!("), ("dbg", "!(")];
const TEXT: &[(&str, &str)] = &[
    ("FIX", "ME"),
    ("XX", "X:"),
    ("/wo", "rk/"),
    ("/root", "/."),
    ("/home", "/"),
];

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    let mut search = |file: &Source, text: &str, list: &[(&str, &str)]| {
        for (i, line) in text.lines().enumerate() {
            let hit = list
                .iter()
                .map(|(a, b)| format!("{a}{b}"))
                .find(|w| line.contains(w.as_str()));
            if let Some(word) = hit {
                found.push(format!("{}:{}: `{word}`", file.path, i + 1));
            }
        }
    };
    for file in files {
        search(file, &file.text, TEXT);
        if file.extension() == "rs" {
            search(file, &file.code(), CODE);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn unfinished_code() {
        let text = format!("fn f() {{ {}!() }}", "todo");
        assert_eq!(check(&[file("a.rs", &text)]).len(), 1);
        assert_eq!(
            check(&[file("a.md", &format!("see {}rk/x", "/wo"))]).len(),
            1
        );
        assert!(check(&[file("a.rs", "fn todo() {} // networking")]).is_empty());
    }
}
