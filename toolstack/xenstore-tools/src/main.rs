//! `xenstore`: reads and changes xenstore from the command line.
//!
//! One program for all commands: `xenstore read ..`, or `read` being the program's own name behind `xenstore-`. Options,
//! output and exit codes are those of Xen's clients.
#![forbid(unsafe_code)]

mod commands;
mod escape;
mod ls;
mod options;

use options::{Command, Options};
use std::process::ExitCode;
use xen_sys::xenstore::Client;

fn main() -> ExitCode {
    let mut args = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    let program = args.next().unwrap_or_else(|| "xenstore".into());
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    let rest: Vec<String> = args.collect();
    let result = Options::parse(&name, &rest).and_then(run);
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<ExitCode, String> {
    let mut client = Client::open().map_err(|e| e.to_string())?;
    let done = match options.command {
        Command::Watch => commands::watch(&mut client, &options),
        Command::Control => commands::control(&mut client, &options),
        Command::Ls => ls::run(&mut client, &options),
        _ => commands::in_transaction(&mut client, &options),
    }?;
    Ok(if done {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
