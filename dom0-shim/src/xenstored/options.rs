//! The daemon's command line: the options of xenstored that make sense here, under their names.

use super::quota::{Quota, Quotas};
use crate::cli;
use std::path::PathBuf;

/// What the command line says.
#[derive(Debug)]
pub struct Options {
    /// Stay in the foreground.
    pub no_fork: bool,
    /// Do without Xen.
    pub no_domain_init: bool,
    /// Where to write the process number.
    pub pid_file: Option<PathBuf>,
    /// Print the process number.
    pub output_pid: bool,
    /// Log every request.
    pub verbose: bool,
    /// Where the log goes instead of standard error.
    pub trace_file: Option<PathBuf>,
    /// Where the state is kept; nowhere if `None`.
    pub state_file: Option<PathBuf>,
    /// Where the socket is.
    pub socket: PathBuf,
    /// Limits.
    pub quotas: Quotas,
}

const NAME: &str = "xenstored";
const OPTIONS: &[cli::Row] = &[
    (
        "no-domain-init",
        'D',
        "",
        "do without Xen: serve the socket only",
    ),
    ("pid-file", 'F', "<file>", "write the process number there"),
    ("help", 'H', "", "print this"),
    ("no-fork", 'N', "", "stay in the foreground"),
    ("output-pid", 'P', "", "print the process number"),
    ("trace-file", 'T', "<file>", "write the log there"),
    ("entry-nb", 'E', "<nb>", "nodes per domain"),
    ("entry-size", 'S', "<size>", "bytes per node"),
    ("watch-nb", 'W', "<nb>", "watches per domain"),
    ("transaction", 't', "<nb>", "open transactions per domain"),
    ("perm-nb", 'A', "<nb>", "permission entries per node"),
    ("path-max", 'M', "<chars>", "bytes of a path"),
    ("quota", 'Q', "<what>=<nb>", "any limit by its name"),
    (
        "state-file",
        's',
        "<file>",
        "keep the state there over a restart; \"none\" keeps none",
    ),
    ("verbose", 'V', "", "log every request"),
];

impl Options {
    /// Reads the words after the program's name. The error is what to tell.
    ///
    /// # Errors
    /// An unknown option, or a value that is missing or wrong; also the help, if it is asked for.
    pub fn parse(
        args: &[String],
        environment: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Options, String> {
        let run = environment("XENSTORED_RUNDIR").unwrap_or_else(|| "/run/xenstored".into());
        let mut options = Options {
            no_fork: false,
            no_domain_init: false,
            pid_file: None,
            output_pid: false,
            verbose: false,
            trace_file: None,
            state_file: Some(run.join("state")),
            socket: environment("XENSTORED_PATH").unwrap_or_else(|| run.join("socket")),
            quotas: Quotas::default(),
        };
        cli::only_options(NAME, OPTIONS, args, |(_, letter, ..), value| {
            options.take(*letter, value)
        })?;
        Ok(options)
    }

    /// `None` if the value is wrong.
    fn take(&mut self, letter: char, value: &str) -> Option<Result<(), String>> {
        let mut limit = |quota: Quota| {
            value
                .parse()
                .ok()
                .map(|n| self.quotas.set(quota.name(), n))
                .filter(|ok| *ok)
                .map(drop)
        };
        match letter {
            'D' => self.no_domain_init = true,
            'F' => self.pid_file = Some(value.into()),
            'H' => return Some(Err(cli::help(NAME, OPTIONS))),
            'N' => self.no_fork = true,
            'P' => self.output_pid = true,
            'T' => self.trace_file = Some(value.into()),
            'E' => limit(Quota::Nodes)?,
            'S' => limit(Quota::NodeSize)?,
            'W' => limit(Quota::Watches)?,
            't' => limit(Quota::Transactions)?,
            'A' => limit(Quota::Permissions)?,
            'M' => limit(Quota::PathLength)?,
            'Q' => {
                let (name, number) = value.split_once('=')?;
                self.quotas.set(name, number.parse().ok()?).then_some(())?;
            }
            's' => self.state_file = Some(value).filter(|v| *v != "none").map(PathBuf::from),
            _ => self.verbose = true,
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args, |_| None)
    }

    #[test]
    fn as_debian_starts_it() {
        let options =
            parse("--pid-file=/run/xen/xenstored.pid -N -E 5000 -Q outstanding=40").unwrap();
        assert_eq!(
            options.pid_file.as_deref(),
            Some("/run/xen/xenstored.pid".as_ref())
        );
        assert!(options.no_fork && !options.no_domain_init);
        assert_eq!(
            (
                options.quotas.limit(Quota::Nodes),
                options.quotas.limit(Quota::Outstanding)
            ),
            (5000, 40)
        );
        assert_eq!(options.socket, PathBuf::from("/run/xenstored/socket"));
        assert_eq!(parse("--state-file none").unwrap().state_file, None);
        let args = ["-D".to_owned()];
        let moved =
            Options::parse(&args, |n| (n == "XENSTORED_RUNDIR").then(|| "/x".into())).unwrap();
        assert_eq!(
            (moved.socket, moved.state_file),
            ("/x/socket".into(), Some("/x/state".into()))
        );
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        for (line, text) in [
            ("--nonsense", "unknown option --nonsense"),
            ("stray", "unknown option stray"),
            ("-E", "--entry-nb needs <nb>"),
            ("-E x", "--entry-nb needs <nb>, not \"x\""),
            ("-Q nonsense=1", "--quota needs <what>=<nb>"),
            ("--no-fork=1", "--no-fork takes no value"),
            ("-H", "usage: xenstored"),
        ] {
            assert!(parse(line).unwrap_err().starts_with(text), "{line}");
        }
    }
}
