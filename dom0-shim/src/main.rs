//! `dom0-shim`: the services of a control domain in one program. Its own name says which: `xenstored`, or
//! `dom0-shim xenstored`.
#![forbid(unsafe_code)]

use dom0_shim::service::{self, Outcome};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    let program = args.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let rest: Vec<String> = args.collect();
    let (command, rest) = match service::is_command(&name) {
        true => (name, &rest[..]),
        false => match rest.split_first() {
            Some((first, rest)) if service::is_command(first) => (first.clone(), rest),
            _ => {
                eprintln!("usage: dom0-shim {} ...", service::COMMANDS.join("|"));
                return ExitCode::FAILURE;
            }
        },
    };
    match service::run(&command, rest) {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Failed(message) => {
            eprintln!("{command}: {}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}
