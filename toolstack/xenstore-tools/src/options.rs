//! The command line.

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Chmod,
    Control,
    Exists,
    List,
    Ls,
    Read,
    Rm,
    Watch,
    Write,
}

/// Name, command, letters of its options (`n` takes a number), what is said about it.
const COMMANDS: &[(&str, Command, &str, &str)] = &[
    (
        "chmod",
        Command::Chmod,
        "sur",
        "[-h] [-u] [-r] [-s] key <mode [modes...]>",
    ),
    ("control", Command::Control, "", "<command> [...]"),
    ("exists", Command::Exists, "ps", "[-h] [-p] [-s] key [...]"),
    ("list", Command::List, "ps", "[-h] [-p] [-s] key [...]"),
    ("ls", Command::Ls, "fps", "[-h] [-f] [-p] [-s] [path]"),
    (
        "read",
        Command::Read,
        "psR",
        "[-h] [-p] [-s] [-R] key [...]",
    ),
    ("rm", Command::Rm, "st", "[-h] [-s] [-t] key [...]"),
    ("watch", Command::Watch, "n", "[-h] [-n NR] key"),
    (
        "write",
        Command::Write,
        "sR",
        "[-h] [-s] [-R] key value [...]",
    ),
];
/// Long names of the letters.
const LONG: &[(&str, char)] = &[
    ("help", 'h'),
    ("flat", 'f'),
    ("prefix", 'p'),
    ("tidy", 't'),
    ("upto", 'u'),
    ("recurse", 'r'),
    ("number", 'n'),
    ("raw", 'R'),
];

/// A whole command line.
#[derive(PartialEq, Eq, Debug)]
pub struct Options {
    pub command: Command,
    letters: String,
    /// `-n`: how many events.
    pub number: Option<u64>,
    /// What is left.
    pub words: Vec<String>,
}

impl Options {
    /// Whether this letter was given.
    pub fn has(&self, letter: char) -> bool {
        self.letters.contains(letter)
    }

    /// Reads a command line of the program of this name. The error is what to tell.
    pub fn parse(program: &str, args: &[String]) -> Result<Options, String> {
        let (name, args) = match (program.strip_prefix("xenstore-"), args) {
            (Some(name), args) => (name, args),
            (None, [name, rest @ ..]) => (name.as_str(), rest),
            (None, []) => return Err(usage_of_all()),
        };
        let row = COMMANDS.iter().find(|(n, ..)| *n == name);
        let (_, command, allowed, usage) =
            row.ok_or_else(|| format!("unknown mode {name}; {}", usage_of_all()))?;
        let usage = || format!("usage: xenstore {name} {usage}");
        let mut options = Options {
            command: *command,
            letters: String::new(),
            number: None,
            words: Vec::new(),
        };
        // A command for the daemon has its own options.
        let mut plain = *command == Command::Control;
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let letters = match arg.strip_prefix("--") {
                _ if plain || arg == "-" || !arg.starts_with('-') => {
                    options.words.push(arg.clone());
                    continue;
                }
                Some("") => {
                    plain = true;
                    continue;
                }
                Some(long) => {
                    let (long, value) = long
                        .split_once('=')
                        .map_or((long, None), |(l, v)| (l, Some(v)));
                    let found = LONG.iter().find(|(n, _)| *n == long).ok_or_else(usage)?;
                    format!("{}{}", found.1, value.unwrap_or_default())
                }
                None => arg[1..].to_owned(),
            };
            for (at, letter) in letters.char_indices() {
                if !allowed.contains(letter) {
                    return Err(usage());
                }
                options.letters.push(letter);
                if letter == 'n' {
                    let rest = &letters[at + 1..];
                    let value = if rest.is_empty() {
                        args.next().ok_or_else(usage)?
                    } else {
                        rest
                    };
                    options.number = Some(value.parse().map_err(|_| usage())?);
                    break;
                }
            }
        }
        let words = options.words.len();
        let enough = match command {
            Command::Ls => words <= 1,
            Command::Write => words > 0 && words.is_multiple_of(2),
            Command::Chmod => words >= 2,
            _ => words > 0,
        };
        if enough { Ok(options) } else { Err(usage()) }
    }
}

fn usage_of_all() -> String {
    let names: Vec<&str> = COMMANDS.iter().map(|(n, ..)| *n).collect();
    format!("usage: xenstore {} ...; -h tells more", names.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(program: &str, line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(program, &args)
    }

    #[test]
    fn names_letters_and_words() {
        let options = parse("xenstore-read", "-pR /a --raw /b").unwrap();
        assert_eq!((options.command, options.words.len()), (Command::Read, 2));
        assert!(options.has('p') && options.has('R') && !options.has('s'));
        assert_eq!(parse("xenstore", "watch -n 3 /a").unwrap().number, Some(3));
        assert_eq!(parse("xenstore", "watch -n3 /a").unwrap().number, Some(3));
        assert_eq!(
            parse("xenstore", "write -- -x -y").unwrap().words,
            ["-x", "-y"]
        );
    }

    #[test]
    fn wrong_lines() {
        for line in [
            "read",
            "write /a",
            "read -z /a",
            "watch -n",
            "watch -n x /a",
            "rm -p /a",
            "nonsense",
            "read --nope /a",
            "ls /a /b",
            "",
        ] {
            assert!(
                parse("xenstore", line)
                    .unwrap_err()
                    .contains("usage: xenstore "),
                "{line}"
            );
        }
    }
}
