//! `xl help`.

use super::args::COMMON;
use super::{Command, Failure, Opt, Outcome, commands, lookup, output};

/// Shows the list, or one command's help.
pub(super) fn show(name: Option<&String>) -> Outcome {
    match name {
        None => output::print(&all()),
        Some(name) => match lookup(name) {
            Some(command) => output::print(&one(command)),
            None => Err(Failure::new(format!("'{name}': command not implemented"))),
        },
    }
}

/// The list of commands.
pub(super) fn all() -> String {
    let mut text = String::from(
        "Usage: xl [-v] [-f] [-N] [-t] [-T] [--json] <command> [args]\n\nxl full list of subcommands:\n\n",
    );
    for command in commands() {
        text.push_str(&format!(" {:<19} {}\n", command.name, command.help));
    }
    text
}

/// What one command takes.
pub(super) fn one(command: &Command) -> String {
    let mut text = format!(
        "Usage: xl [-v]{}{} {} {}\n\n{}.\n\nOptions:\n\n",
        " [-f]",
        if command.dry_run { " [-N]" } else { "" },
        command.name,
        command.usage,
        command.help
    );
    for option in command.options.iter().chain(COMMON) {
        text.push_str(&line(option));
    }
    text
}

fn line(option: &Opt) -> String {
    let short = option.short.map(|c| format!("-{c}"));
    let names: Vec<String> = short
        .into_iter()
        .chain(option.long.iter().map(|l| format!("--{l}")))
        .collect();
    let value = option.value.map_or(String::new(), |v| format!(" {v}"));
    format!(
        "{:<30} {}\n",
        format!("{}{value}", names.join(", ")),
        option.help
    )
}
