//! The daemon's command line.

use super::glue::Manner;
use crate::cli;
use std::path::PathBuf;

const NAME: &str = "devd";
const OPTIONS: &[cli::Row] = &[
    ("help", 'h', "", "print this"),
    ("foreground", 'F', "", "stay in the foreground"),
    ("pidfile", 'p', "<file>", "write the process number there"),
    ("make-bridges", 'b', "", "make bridges that are not there"),
    (
        "always",
        'a',
        "",
        "serve devices also if they name a script",
    ),
];

/// What the command line says.
#[derive(Debug)]
pub struct Options {
    /// Stay in the foreground.
    pub foreground: bool,
    /// Where to write the process number.
    pub pid_file: Option<PathBuf>,
    /// How devices are served.
    pub manner: Manner,
}

impl Options {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    /// What to tell: an unknown option, a wrong value; also the help, if asked for.
    pub fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options {
            foreground: false,
            pid_file: None,
            manner: Manner {
                make_bridges: false,
                always: false,
            },
        };
        cli::only_options(NAME, OPTIONS, args, |(_, letter, ..), value| {
            match letter {
                'h' => return Some(Err(cli::help(NAME, OPTIONS))),
                'F' => options.foreground = true,
                'p' => options.pid_file = Some(value.into()),
                'b' => options.manner.make_bridges = true,
                _ => options.manner.always = true,
            }
            Some(Ok(()))
        })?;
        Ok(options)
    }
}
