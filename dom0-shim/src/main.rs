//! `dom0-shim`: the services of a control domain in one program. Its own name says which: `xenstored`, or
//! `dom0-shim xenstored`.
#![forbid(unsafe_code)]

use dom0_shim::commands;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    let program = args.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let rest: Vec<String> = args.collect();
    let (command, rest) = match commands::is_command(&name) {
        true => (name, &rest[..]),
        false => match rest.split_first() {
            Some((first, rest)) if commands::is_command(first) => (first.clone(), rest),
            _ => {
                eprintln!("usage: dom0-shim {} ...", commands::names().join("|"));
                return ExitCode::FAILURE;
            }
        },
    };
    match commands::run(&command, rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{command}: {}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}
