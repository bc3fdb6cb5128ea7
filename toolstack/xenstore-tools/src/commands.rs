//! All commands but `ls`. Each returns whether it succeeded after telling what is wrong, or what to tell.

use crate::escape::{escape, unescape};
use crate::options::{Command, Options};
use std::io::Write;
use xen_sys::xenstore::{Client, Error, Transaction};

/// Commands that do all their work at once or not at all; what they print comes when it is done.
pub fn in_transaction(client: &mut Client, options: &Options) -> Result<bool, String> {
    // What was read before a refusal is printed; what was written is undone by the error.
    let (mut output, mut message) = (Vec::new(), None);
    let result = client.transaction(|client, tx| {
        (output, message) = (Vec::new(), None);
        perform(client, tx, options, &mut output).map_err(|failure| {
            message = failure.message;
            failure.error
        })
    });
    print(&output)?;
    match (result, message) {
        (Ok(()), _) => Ok(true),
        (Err(_), Some(message)) => {
            if !message.is_empty() {
                eprintln!("xenstore-{}: {message}", name(options.command));
            }
            Ok(false)
        }
        (Err(error), None) => Err(error.to_string()),
    }
}

struct Failure {
    error: Error,
    /// What to tell if the store refused; nothing if empty.
    message: Option<String>,
}

fn perform(
    client: &mut Client,
    tx: Transaction,
    options: &Options,
    output: &mut Vec<u8>,
) -> Result<(), Failure> {
    let words = &options.words;
    match options.command {
        Command::Read => words.iter().try_for_each(|path| {
            let value = client
                .read(tx, path)
                .map_err(|e| refused(e, format!("couldn't read path {path}")))?;
            if options.has('p') {
                output.extend(format!("{path}: ").bytes());
            }
            match options.has('R') {
                true => output.extend(value),
                false => output.extend(format!("{}\n", escape(&value)).bytes()),
            }
            Ok(())
        }),
        Command::Exists => words.iter().try_for_each(|path| {
            client
                .read(tx, path)
                .map(drop)
                .map_err(|e| refused(e, String::new()))
        }),
        Command::List => words.iter().try_for_each(|path| {
            let names = client
                .list(tx, path)
                .map_err(|e| refused(e, format!("could not list path {path}")))?;
            for name in names {
                let prefix = if options.has('p') {
                    format!("{path}/")
                } else {
                    String::new()
                };
                output.extend(format!("{prefix}{name}\n").bytes());
            }
            Ok(())
        }),
        Command::Write => words.chunks_exact(2).try_for_each(|pair| {
            let value = if options.has('R') {
                pair[1].clone().into_bytes()
            } else {
                unescape(&pair[1])
            };
            client
                .write(tx, &pair[0], &value)
                .map_err(|e| refused(e, format!("could not write path {}", pair[0])))
        }),
        Command::Rm => words
            .iter()
            .try_for_each(|path| rm(client, tx, path, options.has('t'))),
        Command::Chmod => match &words[..] {
            [path, perms @ ..] => {
                chmod(client, tx, path, perms, options.has('u'), options.has('r'))
            }
            [] => Ok(()),
        },
        Command::Ls | Command::Watch | Command::Control => Ok(()),
    }
}

/// With `tidy`, also the nodes around it that are left without value and children.
fn rm(client: &mut Client, tx: Transaction, path: &str, tidy: bool) -> Result<(), Failure> {
    client
        .rm(tx, path)
        .map_err(|e| refused(e, format!("could not remove path {path}")))?;
    let mut at = path;
    while let Some((around, _)) = at
        .rsplit_once('/')
        .filter(|(around, _)| tidy && !around.is_empty())
    {
        let bare = client.read(tx, around).is_ok_and(|v| v.is_empty())
            && client.list(tx, around).is_ok_and(|l| l.is_empty());
        if !bare {
            break;
        }
        client
            .rm(tx, around)
            .map_err(|e| refused(e, format!("could not remove path {around}")))?;
        at = around;
    }
    Ok(())
}

fn chmod(
    client: &mut Client,
    tx: Transaction,
    path: &str,
    perms: &[String],
    upto: bool,
    recurse: bool,
) -> Result<(), Failure> {
    let told = |e: Error, path: &str| {
        refused(e, format!("Error occurred setting permissions on '{path}'"))
    };
    client
        .set_perms(tx, path, perms)
        .map_err(|e| told(e, path))?;
    let mut at = path;
    while let Some((around, _)) = at
        .rsplit_once('/')
        .filter(|(around, _)| upto && !around.is_empty())
    {
        client
            .set_perms(tx, around, perms)
            .map_err(|e| told(e, around))?;
        at = around;
    }
    let mut below = if recurse {
        vec![path.to_owned()]
    } else {
        Vec::new()
    };
    while let Some(at) = below.pop() {
        for name in client.list(tx, &at).unwrap_or_default() {
            let child = format!("{}/{name}", at.trim_end_matches('/'));
            client
                .set_perms(tx, &child, perms)
                .map_err(|e| told(e, &child))?;
            below.push(child);
        }
    }
    Ok(())
}

/// What the store refuses is told in these words; a broken connection as it is.
fn refused(error: Error, message: String) -> Failure {
    let message = match &error {
        Error::Refused(_) if message.is_empty() => Some(message),
        Error::Refused(errno) => Some(format!("{message} ({errno:?})")),
        _ => None,
    };
    Failure { error, message }
}

/// Prints the path of each event; for ever, or as many as asked for.
pub fn watch(client: &mut Client, options: &Options) -> Result<bool, String> {
    for path in &options.words {
        client
            .watch(path, path)
            .map_err(|e| format!("Unable to add watch on {path}: {e}"))?;
    }
    let mut left = options.number;
    while left != Some(0) {
        if let Some(event) = client.event(None).map_err(|e| e.to_string())? {
            print(format!("{}\n", event.path).as_bytes())?;
            left = left.map(|n| n - 1);
        }
    }
    Ok(true)
}

/// A command for the daemon.
pub fn control(client: &mut Client, options: &Options) -> Result<bool, String> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    let answer = client.control(&words).map_err(|e| e.to_string())?;
    print(format!("{}\n", answer.trim_end()).as_bytes())?;
    Ok(true)
}

/// Prints at once, so that a reader at the other end of a pipe sees each line when it comes.
pub fn print(bytes: &[u8]) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|e| e.to_string())
}

fn name(command: Command) -> String {
    format!("{command:?}").to_lowercase()
}
