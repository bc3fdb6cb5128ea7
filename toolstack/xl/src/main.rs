//! `xl`: see the library of the same name.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1);
    let args: Vec<String> = args.map(|a| a.to_string_lossy().into_owned()).collect();
    xl::cmd::main(&args)
}
