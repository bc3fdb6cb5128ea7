//! The command table and the way from a command line to a command.
//!
//! A command is a row: name, options, help, handler. A family of commands is a file with a `ROWS` table. The command line is
//! read by our own code ([`args`]), not by `clap`: Xen's rules (options anywhere, shortest unambiguous name, exit codes, first
//! `key=value` words of `create`) are few, exact and unlike that library's.

pub mod args;
pub mod console;
pub mod context;
pub mod create;
#[cfg(test)]
mod create_tests;
mod details;
mod device_change;
mod device_list;
pub mod domain_arg;
pub mod dump;
mod exits;
pub mod failure;
#[cfg(test)]
mod fixture;
mod help;
pub mod host;
mod info;
mod last_words;
mod later;
mod life;
mod list;
mod memory;
mod names;
pub mod output;
mod poke;
mod pool;
mod top;
mod vcpu;

pub use args::{Args, Opt};
pub use context::Context;
pub use failure::{Failure, Outcome};

use std::process::ExitCode;

/// A command.
pub struct Command {
    /// As typed.
    pub name: &'static str,
    /// Besides `-h`, `--help` and `--json`, which all commands take.
    pub options: &'static [Opt],
    /// What follows the options, as shown to the user.
    pub usage: &'static str,
    /// One line for the list of commands.
    pub help: &'static str,
    /// How many words must follow the options.
    pub min: usize,
    /// Whether it can do all but the last step (`-N`).
    pub dry_run: bool,
    /// What does it.
    pub run: fn(&Context, &Args) -> Outcome,
}

/// All commands, by family.
pub const FAMILIES: &[&[Command]] = &[
    console::ROWS,
    device_change::ROWS,
    device_list::ROWS,
    create::ROWS,
    life::ROWS,
    dump::ROWS,
    exits::ROWS,
    info::ROWS,
    list::ROWS,
    memory::ROWS,
    names::ROWS,
    poke::ROWS,
    pool::ROWS,
    top::ROWS,
    vcpu::ROWS,
    later::ROWS,
];

/// All commands.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The command of this name, or the only one that begins with it.
pub fn lookup(name: &str) -> Option<&'static Command> {
    if let Some(exact) = commands().find(|c| c.name == name) {
        return Some(exact);
    }
    let mut found = commands().filter(|c| c.name.starts_with(name));
    match (found.next(), found.next()) {
        (Some(only), None) if !name.is_empty() => Some(only),
        _ => None,
    }
}

/// Runs a command line without the program's name.
pub fn main(args: &[String]) -> ExitCode {
    let (context, result) = run(args);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(context.json);
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: &[String]) -> (Context, Outcome) {
    if args
        .first()
        .is_some_and(|a| a == crate::domain::monitor::COMMAND)
    {
        return (Context::default(), crate::domain::monitor::main(&args[1..]));
    }
    let (mut context, rest) = match Context::parse(args) {
        Ok(parsed) => parsed,
        Err(failure) => return (Context::default(), Err(failure)),
    };
    let Some((name, rest)) = rest.split_first() else {
        let shown = output::print(&help::all());
        return (context, shown.and(Err(Failure::silent(1))));
    };
    if name == "help" {
        let shown = help::show(rest.first());
        return (context, shown);
    }
    let Some(command) = lookup(name) else {
        let message = format!("'{name}': command not implemented; 'xl help' lists the commands");
        return (context, Err(Failure::new(message)));
    };
    if later::ROWS.iter().any(|c| c.name == command.name) {
        let shown = match rest.first().map(String::as_str) {
            Some("-h" | "--help") => output::print(&help::one(command)),
            _ => Err(Failure::new(format!(
                "'xl {}' is not built yet",
                command.name
            ))),
        };
        context.json |= rest.iter().any(|a| a == "--json");
        return (context, shown);
    }
    let parsed = match Args::parse(command.options, rest) {
        Ok(parsed) => parsed,
        Err(message) => {
            let message = format!("'xl {}': {message}; see 'xl help {0}'", command.name);
            return (context, Err(Failure::usage(message)));
        }
    };
    context.json |= parsed.has("json");
    if parsed.has("help") {
        return (context, output::print(&help::one(command)));
    }
    if parsed.words.len() < command.min {
        let (plural, name, min) = (
            if command.min > 1 { "s" } else { "" },
            command.name,
            command.min,
        );
        let message = format!("'xl {name}' requires at least {min} argument{plural}.");
        return (context, Err(Failure::usage(message)));
    }
    if context.dry_run && !command.dry_run {
        let message = format!("command '{}' does not support -N (dry run)", command.name);
        return (context, Err(Failure::new(message)));
    }
    let result = (command.run)(&context, &parsed);
    (context, result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn code(line: &str) -> u8 {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        run(&args).1.err().map_or(0, |f| f.code)
    }

    #[test]
    fn names_are_unique_and_found() {
        let names: HashSet<&str> = commands().map(|c| c.name).collect();
        assert_eq!(names.len(), commands().count());
        assert!(names.iter().all(|n| lookup(n).unwrap().name == *n));
    }

    #[test]
    fn an_unambiguous_beginning_is_enough() {
        assert_eq!(lookup("migrate-r").unwrap().name, "migrate-receive");
        // Also a command of its own.
        assert_eq!(lookup("migrate").unwrap().name, "migrate");
        assert!(lookup("mi-").is_none() && lookup("pci").is_none() && lookup("").is_none());
    }

    #[test]
    fn exit_codes() {
        for (line, expected) in [
            ("", 1),
            ("help", 0),
            ("help migrate", 0),
            ("-z", 1),
            ("nonsense", 1),
            ("migrate -h", 0),
            ("migrate a b", 1),
            ("-N migrate a b", 1),
            ("--json -vvf migrate a b", 1),
        ] {
            assert_eq!(code(line), expected, "xl {line}");
        }
    }
}
