//! Options before the command.

use super::{Failure, failure::Result};

/// What holds for the whole command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Number of `-v`.
    pub verbose: u8,
    /// `-f`: even if another `xl` seems to be at work.
    pub force: bool,
    /// `-N`: all but the last step.
    pub dry_run: bool,
    /// `-t`: progress on one line, by carriage returns.
    pub carriage_returns: bool,
    /// `-T`: times and process number in messages.
    pub timestamps: bool,
    /// `--json`, also among a command's own options: output and errors as JSON.
    pub json: bool,
}

impl Context {
    /// Reads the options before the command; returns what is left.
    pub(super) fn parse(args: &[String]) -> Result<(Context, &[String])> {
        let mut context = Context::default();
        let mut at = 0;
        while let Some(arg) = args.get(at).filter(|a| a.len() > 1 && a.starts_with('-')) {
            at += 1;
            match arg.as_str() {
                "--" => break,
                "--json" => context.json = true,
                "--help" | "-h" => {
                    // As if it were the command.
                    return Ok((context, HELP.get_or_init(|| vec!["help".into()])));
                }
                long if long.starts_with("--") => return Err(unknown(long)),
                letters => {
                    for letter in letters[1..].chars() {
                        match letter {
                            'v' => context.verbose = context.verbose.saturating_add(1),
                            'f' => context.force = true,
                            'N' => context.dry_run = true,
                            't' => context.carriage_returns = true,
                            'T' => context.timestamps = true,
                            _ => return Err(unknown(arg)),
                        }
                    }
                }
            }
        }
        Ok((context, &args[at..]))
    }
}

static HELP: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();

fn unknown(option: &str) -> Failure {
    Failure::new(format!("unknown global option '{option}'; see 'xl help'"))
}
