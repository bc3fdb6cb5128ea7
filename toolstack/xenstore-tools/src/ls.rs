//! `ls`: the tree below a node, one line for each.

use crate::commands::print;
use crate::escape::escape;
use crate::options::Options;
use xen_abi::Errno;
use xen_sys::xenstore::{Client, Error, Transaction};

/// Columns of a line when the output is no terminal.
const WIDTH: usize = 80;
/// Where permissions begin, if the line is not longer.
const PERMS_AT: usize = 60;
/// What a shortened value costs besides its text.
const FRAME: usize = " = \"...\"".len();

struct Style {
    flat: bool,
    perms: bool,
    width: usize,
    perms_at: usize,
}

/// The command.
pub fn run(client: &mut Client, options: &Options) -> Result<bool, String> {
    let flat = options.has('f');
    let columns = || {
        rustix::termios::tcgetwinsize(std::io::stdout())
            .ok()
            .map(|s| usize::from(s.ws_col))
            .filter(|c| *c > 0)
    };
    let width = if flat {
        usize::MAX / 2
    } else {
        columns().map_or(WIDTH, |c| c.saturating_sub(2).max(FRAME + 2))
    };
    let style = Style {
        flat,
        perms: options.has('p'),
        width,
        perms_at: if flat { 0 } else { PERMS_AT.min(width) },
    };
    let root = options.words.first().map_or("/", |w| w);
    let names = client
        .list(Transaction::NONE, root)
        .map_err(|e| format!("xs_directory ({root}): {e}"))?;
    // What is still to be shown, with its depth; children right after their parent.
    let mut left: Vec<(String, String, usize)> = below(root, names, 0);
    while let Some((path, name, depth)) = left.pop() {
        let line = line(client, &style, &path, &name, depth)?;
        print(line.as_bytes())?;
        match client.list(Transaction::NONE, &path) {
            Ok(names) => left.extend(below(&path, names, depth + 1)),
            // It went meanwhile.
            Err(Error::Refused(Errno::ENOENT)) => {}
            Err(error) => return Err(format!("xs_directory ({path}): {error}")),
        }
    }
    Ok(true)
}

fn below(path: &str, names: Vec<String>, depth: usize) -> Vec<(String, String, usize)> {
    let prefix = path.trim_end_matches('/');
    names
        .into_iter()
        .rev()
        .map(|n| (format!("{prefix}/{n}"), n, depth))
        .collect()
}

fn line(
    client: &mut Client,
    style: &Style,
    path: &str,
    name: &str,
    depth: usize,
) -> Result<String, String> {
    let mut line = if style.flat {
        path.to_owned()
    } else {
        let room = style.width.saturating_sub(FRAME + depth);
        format!("{}{}", " ".repeat(depth), &name[..name.len().min(room)])
    };
    // The whole path does not count as part of the line's width.
    let mut used = if style.flat { 0 } else { line.len() };
    match client.read(Transaction::NONE, path) {
        Err(Error::Refused(_)) => line.push_str(":\n"),
        Err(error) => return Err(error.to_string()),
        Ok(value) if style.width < used + value.len() + FRAME => {
            let text = escape(&value);
            let room = style.width.saturating_sub(FRAME + used);
            line.push_str(&format!(" = \"{}\\...\"", &text[..text.len().min(room)]));
        }
        Ok(value) => {
            let text = format!(" = \"{}\"", escape(&value));
            used += text.len();
            line.push_str(&text);
            if style.perms {
                line.push(' ');
                used += 1;
                (used..style.perms_at)
                    .for_each(|at| line.push(if at % 2 == 1 { '.' } else { ' ' }));
            }
        }
    }
    if style.perms {
        match client.perms(Transaction::NONE, path) {
            Ok(perms) => line.push_str(&format!("  ({})", perms.join(","))),
            Err(error) => eprintln!("could not access permissions for {name}: {error}"),
        }
    }
    line.push('\n');
    Ok(line)
}
