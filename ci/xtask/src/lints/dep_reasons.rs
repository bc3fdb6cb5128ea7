//! Every line of the dependency table has a comment above it, or above its group, that says why it is there; no git
//! sources; default features off.

use crate::source::Source;

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let Some(root) = files.iter().find(|f| f.path == "Cargo.toml") else {
        return vec!["no Cargo.toml".into()];
    };
    let mut found = Vec::new();
    let mut inside = false;
    let mut reason = false;
    for (i, line) in root.text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
            reason = false;
        } else if inside && line.starts_with('#') {
            reason = true;
        } else if inside && line.contains('=') {
            let own = line.contains("path =");
            if !reason && !own {
                found.push(format!("Cargo.toml:{}: no reason above {line}", i + 1));
            }
            if line.contains("git =") {
                found.push(format!("Cargo.toml:{}: a git source", i + 1));
            }
            if !own && !line.contains("default-features = false") {
                found.push(format!(
                    "Cargo.toml:{}: default features are not off",
                    i + 1
                ));
            }
            reason = own && reason;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn reason_and_features() {
        let good =
            "[workspace.dependencies]\n# Why.\na = { version = \"1\", default-features = false }\n";
        assert!(check(&[file("Cargo.toml", good)]).is_empty());
        let bad =
            format!("{good}b = \"1\"\n# Why.\nc = {{ git = \"x\", default-features = false }}\n");
        assert_eq!(check(&[file("Cargo.toml", &bad)]).len(), 3);
    }
}
