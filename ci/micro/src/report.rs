//! What one guest printed: facts in order, and its result.

use std::fmt;

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Skip(String),
    Error(String),
    Failure(String),
    /// No result line: the text says what happened instead.
    Crash(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => write!(f, "SUCCESS"),
            Self::Skip(why) => write!(f, "SKIP {why}"),
            Self::Error(why) => write!(f, "ERROR {why}"),
            Self::Failure(why) => write!(f, "FAILURE {why}"),
            Self::Crash(why) => write!(f, "CRASH {why}"),
        }
    }
}

/// Facts, failed checks and result of one run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) failed_checks: Vec<String>,
    pub(crate) outcome: Outcome,
    pub(crate) console: String,
}

impl Report {
    /// Reads the console text of a finished run; `silence` describes a run without a result line.
    pub(crate) fn parse(console: &str, silence: &str) -> Self {
        let mut report = Self {
            facts: Vec::new(),
            failed_checks: Vec::new(),
            outcome: Outcome::Crash(silence.into()),
            console: console.into(),
        };
        for line in console.lines() {
            let line = line.trim_end_matches('\r');
            if let Some(fact) = line.strip_prefix("FACT ") {
                let (key, value) = fact.split_once(' ').unwrap_or((fact, ""));
                report
                    .facts
                    .push((report.unique(key), value.trim_end().into()));
            } else if let Some(what) = line.strip_prefix("CHECK failed: ") {
                report.failed_checks.push(what.into());
            } else if let Some(result) = line.strip_prefix("TEST ") {
                let result = result.split_once(": ").map_or("", |(_, result)| result);
                let (word, why) = result.split_once(' ').unwrap_or((result, ""));
                report.outcome = match word {
                    "SUCCESS" => Outcome::Success,
                    "SKIP" => Outcome::Skip(why.into()),
                    "ERROR" => Outcome::Error(why.into()),
                    "FAILURE" => Outcome::Failure(why.into()),
                    _ => Outcome::Crash(format!("odd result line: {line}")),
                };
            }
        }
        report
    }

    /// `key`, or `key#2`, `key#3` ... for a repeated one.
    fn unique(&self, key: &str) -> String {
        let same = |k: &str| k == key || k.rsplit_once('#').is_some_and(|(head, _)| head == key);
        match self.facts.iter().filter(|(k, _)| same(k)).count() {
            0 => key.into(),
            n => format!("{key}#{}", n + 1),
        }
    }

    /// The value of a fact.
    pub(crate) fn fact(&self, key: &str) -> Option<&str> {
        self.facts
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value.as_str())
    }

    /// Prints failed checks, and the end of the console after a crash.
    pub(crate) fn print_problem(&self, verbose: bool) {
        for what in &self.failed_checks {
            println!("    failed: {what}");
        }
        if matches!(self.outcome, Outcome::Crash(_)) {
            let lines: Vec<_> = self.console.lines().collect();
            let from = if verbose {
                0
            } else {
                lines.len().saturating_sub(15)
            };
            for line in &lines[from..] {
                println!("    | {line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_checks_and_result_are_read() {
        let report = Report::parse(
            "noise\nFACT a 1 2\r\nFACT a 3\nCHECK failed: x\nTEST g: FAILURE x\n",
            "silent",
        );
        assert_eq!(
            report.facts,
            [("a".into(), "1 2".into()), ("a#2".into(), "3".into())]
        );
        assert_eq!(report.failed_checks, ["x"]);
        assert_eq!(report.outcome, Outcome::Failure("x".into()));
        assert_eq!(report.fact("a#2"), Some("3"));
    }

    #[test]
    fn silence_is_a_crash() {
        assert_eq!(
            Report::parse("FACT a 1\n", "time-out").outcome,
            Outcome::Crash("time-out".into())
        );
    }
}
