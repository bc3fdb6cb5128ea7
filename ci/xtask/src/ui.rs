//! Progress for people: a spinner with the latest output line on a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Something that takes a while.
pub struct Step {
    bar: Option<ProgressBar>,
    what: String,
    start: Instant,
}

/// Announces the start of `what`.
pub fn step(what: &str) -> Step {
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    });
    if bar.is_none() {
        eprintln!("     {what} ...");
    }
    Step {
        bar,
        what: what.to_owned(),
        start: Instant::now(),
    }
}

impl Step {
    /// Shows what is going on within the step; terminals only.
    pub fn detail(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(line.trim().to_owned());
        }
    }

    /// The step is over: `verdict` is a short word, `text` says more or is empty.
    pub fn end(self, verdict: &str, text: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let more = if text.is_empty() {
            String::new()
        } else {
            format!(": {text}")
        };
        eprintln!(
            "{verdict:>4} {}{more} ({:.1} s)",
            self.what,
            self.start.elapsed().as_secs_f32()
        );
    }
}

/// A plain line.
pub fn say(line: &str) {
    eprintln!("     {line}");
}
