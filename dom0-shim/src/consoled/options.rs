//! The daemon's command line: that of Xen 4.17's xenconsoled, and a few more.

use super::guest::Overflow;
use super::log::Style;
use crate::cli;
use std::path::PathBuf;

const NAME: &str = "xenconsoled";
/// Guests' logs are on, unlike Xen's: the last words of a guest that died are wanted when it is too late to ask for them.
const LOGS: &str = "all";
const LOG_SIZE: u64 = 16 << 20;
const OPTIONS: &[cli::Row] = &[
    ("help", 'h', "", "print this"),
    ("version", 'V', "", "print the version"),
    ("verbose", 'v', "", "log what comes and goes"),
    ("interactive", 'i', "", "stay in the foreground"),
    (
        "log",
        'l',
        "<which>",
        "keep logs: none, guest, hv or all (the default)",
    ),
    ("log-dir", 'r', "<dir>", "where the logs are kept"),
    (
        "log-size",
        ' ',
        "<MiB>",
        "size at which a log becomes .1 and begins anew; 0: never",
    ),
    ("pid-file", 'p', "<file>", "write the process number there"),
    (
        "timestamp",
        't',
        "<which>",
        "the time in each line of logs: none, guest, hv or all",
    ),
    (
        "overflow-data",
        'o',
        "<what>",
        "output that nobody reads: discard the oldest, or keep and let the guest wait",
    ),
    (
        "replace-escape",
        'e',
        "",
        "escape characters become dots in logs",
    ),
];

/// What the command line says.
#[derive(Debug)]
pub struct Options {
    /// Stay in the foreground.
    pub foreground: bool,
    /// Log what comes and goes.
    pub verbose: bool,
    /// Keep guests' logs.
    pub guest_logs: bool,
    /// Keep the hypervisor's log.
    pub hypervisor_log: bool,
    /// Where.
    pub log_dir: PathBuf,
    /// How guests' logs are written.
    pub guest_style: Style,
    /// How the hypervisor's log is written.
    pub hypervisor_style: Style,
    /// Where to write the process number.
    pub pid_file: PathBuf,
    /// What happens to output that nobody reads.
    pub overflow: Overflow,
}

impl Options {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    /// What to tell: an unknown option, a wrong value; also help and version, if asked for.
    pub fn parse(
        args: &[String],
        environment: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Options, String> {
        let style = Style {
            timestamps: false,
            replace_escape: false,
            most: LOG_SIZE,
        };
        // The variable is Xen's.
        let trace = environment("XENCONSOLED_TRACE").map(|v| v.to_string_lossy().into_owned());
        let (guest_logs, hypervisor_log) =
            which(trace.as_deref().unwrap_or(LOGS)).unwrap_or((true, true));
        let mut options = Options {
            foreground: false,
            verbose: false,
            guest_logs,
            hypervisor_log,
            log_dir: "/var/log/xen/console".into(),
            guest_style: style,
            hypervisor_style: style,
            pid_file: "/run/xen/xenconsoled.pid".into(),
            overflow: Overflow::Discard,
        };
        cli::only_options(NAME, OPTIONS, args, |(long, ..), value| {
            options.take(long, value)
        })?;
        Ok(options)
    }

    fn take(&mut self, option: &str, value: &str) -> Option<Result<(), String>> {
        match option {
            "help" => return Some(Err(cli::help(NAME, OPTIONS))),
            "version" => return Some(Err(format!("version {}", env!("CARGO_PKG_VERSION")))),
            "verbose" => self.verbose = true,
            "interactive" => self.foreground = true,
            "log" => (self.guest_logs, self.hypervisor_log) = which(value)?,
            "log-dir" => self.log_dir = value.into(),
            "log-size" => {
                let mib: u32 = value.parse().ok()?;
                let most = if mib == 0 {
                    u64::MAX
                } else {
                    u64::from(mib) << 20
                };
                (self.guest_style.most, self.hypervisor_style.most) = (most, most);
            }
            "pid-file" => self.pid_file = value.into(),
            "timestamp" => {
                (
                    self.guest_style.timestamps,
                    self.hypervisor_style.timestamps,
                ) = which(value)?;
            }
            "overflow-data" => {
                self.overflow = match value {
                    "discard" => Overflow::Discard,
                    "keep" => Overflow::Keep,
                    _ => return None,
                }
            }
            _ => {
                self.guest_style.replace_escape = true;
                self.hypervisor_style.replace_escape = true;
            }
        }
        Some(Ok(()))
    }
}

/// Guests, hypervisor.
fn which(value: &str) -> Option<(bool, bool)> {
    Some(match value {
        "none" => (false, false),
        "guest" => (true, false),
        "hv" => (false, true),
        "all" => (true, true),
        _ => return None,
    })
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
        let options = parse("--pid-file=/run/xen/xenconsoled.pid").unwrap();
        assert!(options.guest_logs && options.hypervisor_log && !options.foreground);
        let options =
            parse("-i --log=none -t guest -o keep --replace-escape --log-dir /x --log-size=2")
                .unwrap();
        assert!(options.foreground && !options.guest_logs && !options.hypervisor_log);
        assert!(options.guest_style.timestamps && !options.hypervisor_style.timestamps);
        assert!(options.guest_style.replace_escape && options.overflow == Overflow::Keep);
        assert_eq!(
            (options.log_dir, options.guest_style.most),
            ("/x".into(), 2 << 20)
        );
        let traced =
            Options::parse(&[], |n| (n == "XENCONSOLED_TRACE").then(|| "guest".into())).unwrap();
        assert!(traced.guest_logs && !traced.hypervisor_log);
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        for (line, text) in [
            ("--log=some", "--log needs <which>, not \"some\""),
            ("-o lose", "--overflow-data needs <what>"),
            ("-h", "usage: xenconsoled"),
            ("--nonsense", "unknown option --nonsense"),
            ("stray", "unknown option stray"),
        ] {
            assert!(parse(line).unwrap_err().starts_with(text), "{line}");
        }
    }
}
