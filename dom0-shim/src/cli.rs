//! Command lines of the services, in the style of `getopt_long`.

/// An option: long name, letter (a space if there is none), what follows (nothing if empty), help.
pub type Row = (&'static str, char, &'static str, &'static str);

/// Goes through the words after the program's name; `take` gets each option's row and value, and answers with `None` if
/// the value is wrong. Returns the words that are no options.
///
/// # Errors
/// One line for the user: an unknown option, a missing or wrong value; or what `take` says.
pub fn walk(
    name: &str,
    rows: &[Row],
    args: &[String],
    mut take: impl FnMut(&Row, &str) -> Option<Result<(), String>>,
) -> Result<Vec<String>, String> {
    let mut plain = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            plain.extend(args.cloned());
            break;
        }
        if !arg.starts_with('-') {
            plain.push(arg.clone());
            continue;
        }
        let (long, mut value) = match arg
            .strip_prefix("--")
            .map(|l| l.split_once('=').map_or((l, None), |(n, v)| (n, Some(v))))
        {
            Some(long) => long,
            None => (arg.strip_prefix('-').unwrap_or_default(), None),
        };
        let short = long.chars().next().filter(|_| !arg.starts_with("--"));
        let row = rows
            .iter()
            .find(|(l, letter, ..)| short.map_or(*l == long, |s| s == *letter));
        let row = row.ok_or_else(|| format!("unknown option {arg}\n{}", help(name, rows)))?;
        let (option, letter, takes, _) = row;
        if short.is_some() && long.len() > letter.len_utf8() {
            value = Some(&long[letter.len_utf8()..]);
        }
        let value = match (takes.is_empty(), value) {
            (true, Some(_)) => return Err(format!("--{option} takes no value")),
            (true, None) => "",
            (false, Some(value)) => value,
            (false, None) => args
                .next()
                .ok_or_else(|| format!("--{option} needs {takes}"))?,
        };
        take(row, value).ok_or_else(|| format!("--{option} needs {takes}, not {value:?}"))??;
    }
    Ok(plain)
}

/// As [`walk`], for programs that take options only.
///
/// # Errors
/// As [`walk`]; also a word that is no option.
pub fn only_options(
    name: &str,
    rows: &[Row],
    args: &[String],
    take: impl FnMut(&Row, &str) -> Option<Result<(), String>>,
) -> Result<(), String> {
    match walk(name, rows, args, take)?.first() {
        Some(word) => Err(format!("unknown option {word}\n{}", help(name, rows))),
        None => Ok(()),
    }
}

/// The options in words.
pub fn help(name: &str, rows: &[Row]) -> String {
    rows.iter().fold(
        format!("usage: {name} <options>\n"),
        |text, (long, letter, takes, what)| {
            let short = match letter {
                ' ' => "   ".to_owned(),
                letter => format!("-{letter},"),
            };
            let option = format!("{short} --{long} {takes}");
            format!("{text}  {option:<28} {what}\n")
        },
    )
}
