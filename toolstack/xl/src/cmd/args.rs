//! Options and words of one command, after the rules of `getopt_long`: options may stand anywhere, `--` ends them, short ones
//! may be joined, a long one may be shortened while only one fits.

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// `-x`.
    pub short: Option<char>,
    /// `--name`; the first one (or the short one, if there is none) is what [`Args`] is asked by.
    pub long: &'static [&'static str],
    /// What it takes, as shown to the user; `None`: nothing.
    pub value: Option<&'static str>,
    /// One line.
    pub help: &'static str,
}

impl Opt {
    /// An option without a value.
    pub const fn flag(
        short: Option<char>,
        long: &'static [&'static str],
        help: &'static str,
    ) -> Opt {
        Opt {
            short,
            long,
            value: None,
            help,
        }
    }

    /// An option with a value.
    pub const fn with(
        short: Option<char>,
        long: &'static [&'static str],
        value: &'static str,
        help: &'static str,
    ) -> Opt {
        Opt {
            short,
            long,
            value: Some(value),
            help,
        }
    }

    /// Name under which [`Args`] keeps it.
    fn key(&self) -> String {
        match (self.long.first(), self.short) {
            (Some(long), _) => (*long).to_owned(),
            (None, Some(short)) => short.to_string(),
            (None, None) => String::new(),
        }
    }
}

/// What all commands take.
pub const COMMON: &[Opt] = &[
    Opt::flag(Some('h'), &["help"], "show this help"),
    Opt::flag(None, &["json"], "print JSON, errors too"),
];

/// A command line, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    options: Vec<(String, Option<String>)>,
    /// What is left, in order.
    pub words: Vec<String>,
}

impl Args {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with which option.
    pub fn parse(allowed: &[Opt], line: &[String]) -> Result<Args, String> {
        let mut args = Args::default();
        let mut rest = line.iter();
        while let Some(arg) = rest.next() {
            if arg == "--" {
                args.words.extend(rest.cloned());
                break;
            }
            if let Some(long) = arg.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let option = find_long(allowed, name)?;
                let value = match (option.value, value) {
                    (None, Some(_)) => return Err(format!("option '--{name}' takes no value")),
                    (None, None) => None,
                    (Some(_), Some(value)) => Some(value),
                    (Some(_), None) => Some(
                        rest.next()
                            .cloned()
                            .ok_or(format!("option '--{name}' needs a value"))?,
                    ),
                };
                args.options.push((option.key(), value));
            } else if arg.len() > 1 && arg.starts_with('-') {
                let letters = &arg[1..];
                for (at, letter) in letters.char_indices() {
                    let option = allowed
                        .iter()
                        .chain(COMMON)
                        .find(|o| o.short == Some(letter))
                        .ok_or(format!("unknown option '-{letter}'"))?;
                    if option.value.is_none() {
                        args.options.push((option.key(), None));
                        continue;
                    }
                    let joined = &letters[at + letter.len_utf8()..];
                    let value = if joined.is_empty() {
                        rest.next()
                            .cloned()
                            .ok_or(format!("option '-{letter}' needs a value"))?
                    } else {
                        joined.to_owned()
                    };
                    args.options.push((option.key(), Some(value)));
                    break;
                }
            } else {
                args.words.push(arg.clone());
            }
        }
        Ok(args)
    }

    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| n == name)
    }

    /// The value of an option; the last one counts.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|(n, _)| n == name)?;
        found.1.as_deref()
    }

    /// A word.
    pub fn word(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(String::as_str)
    }
}

fn find_long(allowed: &[Opt], name: &str) -> Result<Opt, String> {
    let all = || allowed.iter().chain(COMMON);
    if let Some(exact) = all().find(|o| o.long.contains(&name)) {
        return Ok(*exact);
    }
    let mut found = all().filter(|o| o.long.iter().any(|l| l.starts_with(name)));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(*only),
        (Some(_), Some(_)) => Err(format!("option '--{name}' is ambiguous")),
        _ => Err(format!("unknown option '--{name}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &[Opt] = &[
        Opt::flag(Some('p'), &[], ""),
        Opt::flag(Some('q'), &["quiet"], ""),
        Opt::with(Some('f'), &["defconfig", "config"], "FILE", ""),
        Opt::flag(None, &["quick"], ""),
    ];

    fn parse(line: &str) -> Result<Args, String> {
        let line: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Args::parse(SOME, &line)
    }

    #[test]
    fn options_anywhere() {
        let args = parse("a -pq b --def=x -fy -f z --config last -- -p").unwrap();
        assert_eq!(args.words, ["a", "b", "-p"]);
        assert!(args.has("p") && args.has("quiet") && !args.has("quick"));
        assert_eq!(args.value("defconfig"), Some("last"));
        assert_eq!(parse("-").unwrap().words, ["-"]);
        assert!(parse("--js -h").unwrap().has("json"));
    }

    #[test]
    fn errors_name_the_option() {
        for (line, name) in [
            ("-z", "'-z'"),
            ("-pz", "'-z'"),
            ("--nope", "'--nope'"),
            ("--qui", "ambiguous"),
            ("--quiet=1", "takes no value"),
            ("-f", "needs a value"),
            ("--config", "needs a value"),
        ] {
            assert!(parse(line).unwrap_err().contains(name), "{line}");
        }
    }
}
