//! A look at source files for the lints: which there are, and their code without comments and strings.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use vmtest::paths;

/// A text file of the source tree.
pub struct Source {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// The extension, or the empty string.
    pub fn extension(&self) -> &str {
        Path::new(&self.path)
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or("")
    }

    /// The text of a Rust file with comments, strings and character literals blanked; lines keep their numbers.
    pub fn code(&self) -> String {
        blank(&self.text)
    }
}

/// All text files, without what is built or fetched.
pub fn files() -> Result<Vec<Source>> {
    let root = paths::root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path: PathBuf = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_symlink() || name == ".git" || name == "target" || name == "Cargo.lock" {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            let short = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            found.push(Source { path: short, text });
        }
    }
    Ok(())
}

/// Replaces comments, strings and character literals by blanks.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    let mut last = ' ';
    while i < chars.len() {
        let rest = &chars[i..];
        let end = if rest.starts_with(&['/', '/']) {
            i + rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            i + block_comment(rest)
        } else if let Some(len) =
            raw_string(rest).filter(|_| !last.is_alphanumeric() && last != '_')
        {
            i + len
        } else if rest[0] == '"' {
            i + plain_string(rest)
        } else if let Some(len) = char_literal(rest) {
            i + len
        } else {
            last = rest[0];
            out.push(last);
            i += 1;
            continue;
        };
        out.extend(
            chars[i..end]
                .iter()
                .map(|&c| if c == '\n' { '\n' } else { ' ' }),
        );
        last = ' ';
        i = end;
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut i) = (0, 0);
    while i < rest.len() {
        if rest[i..].starts_with(&['/', '*']) {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(&['*', '/']) {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    i
}

fn raw_string(rest: &[char]) -> Option<usize> {
    let skip = if rest.starts_with(&['b', 'r']) || rest.starts_with(&['c', 'r']) {
        2
    } else {
        1
    };
    if rest[skip - 1] != 'r' {
        return None;
    }
    let hashes = rest[skip..].iter().take_while(|&&c| c == '#').count();
    let start = skip + hashes;
    if rest.get(start) != Some(&'"') {
        return None;
    }
    let body = &rest[start + 1..];
    let close = |w: &[char]| w[0] == '"' && w[1..].iter().all(|&c| c == '#');
    let end = body.windows(hashes + 1).position(close)?;
    Some(start + 1 + end + hashes + 1)
}

fn plain_string(rest: &[char]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// `'x'`, `'\n'`, `'\u{1b}'`; a lifetime is none.
fn char_literal(rest: &[char]) -> Option<usize> {
    if rest[0] != '\'' {
        return None;
    }
    if rest.get(1) == Some(&'\\') {
        let end = rest[3..].iter().position(|&c| c == '\'')?;
        return Some(3 + end + 1);
    }
    (rest.get(2) == Some(&'\'')).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::blank;

    #[test]
    fn comments_and_strings_go() {
        let text = "a // unsafe\nb /* x /* unsafe */ y */ c \"un\\\"safe\" d r#\"unsafe \" x\"# e 'u' '\\'' f<'a>()";
        let code = blank(text);
        assert_eq!(code.lines().count(), 2);
        assert!(!code.contains("unsafe") && !code.contains("safe"));
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>(),
            ["a", "b", "c", "d", "e", "f<'a>()"]
        );
    }
}
