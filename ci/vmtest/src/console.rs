//! Matching of console text.
//!
//! A reader thread appends what the machine prints; the test's thread waits for texts in order. The text before
//! the last match is never looked at again, so a line cannot satisfy two expectations.

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Buffer {
    text: Vec<u8>,
    closed: bool,
}

/// The output of one machine.
#[derive(Clone, Default)]
pub struct Console {
    shared: Arc<(Mutex<Buffer>, Condvar)>,
}

/// Why waiting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The text with this index in the list appeared; the line it stands in.
    Found(usize, String),
    /// Nothing appeared in time.
    TimedOut,
    /// The machine is gone.
    Closed,
}

impl Console {
    /// Reads `source` to its end and copies it to `log`.
    pub fn pump(&self, mut source: impl Read, mut log: impl Write) {
        let mut chunk = [0u8; 4096];
        while let Ok(n @ 1..) = source.read(&mut chunk) {
            // The log is a help for people: a full disk must not end the test.
            let _ = log.write_all(&chunk[..n]);
            self.push(&chunk[..n]);
        }
        let (buffer, changed) = &*self.shared;
        buffer.lock().expect("no panic while locked").closed = true;
        changed.notify_all();
    }

    fn push(&self, bytes: &[u8]) {
        let (buffer, changed) = &*self.shared;
        buffer
            .lock()
            .expect("no panic while locked")
            .text
            .extend_from_slice(bytes);
        changed.notify_all();
    }

    /// Waits until one of `needles` appears at or after `*from`, and moves `*from` behind it. The needle that
    /// appears first wins; at equal places, the first in the list.
    pub fn wait(&self, from: &mut usize, needles: &[&str], until: Instant) -> Outcome {
        let (buffer, changed) = &*self.shared;
        let mut held = buffer.lock().expect("no panic while locked");
        let mut looked = *from;
        let longest = needles.iter().map(|n| n.len()).max().unwrap_or(1);
        loop {
            let hits = needles.iter().enumerate();
            let hits = hits.filter_map(|(i, n)| {
                find(&held.text[looked..], n.as_bytes()).map(|at| (at + looked, i))
            });
            // A text that begins like one before it in the list decides only when it is clear that it is not that one.
            let open = |at: usize, index: usize| {
                let there = &held.text[at..];
                needles[..index]
                    .iter()
                    .any(|n| there.len() < n.len() && n.as_bytes().starts_with(there))
            };
            let over = held.closed || Instant::now() >= until;
            if let Some((at, index)) = hits.min()
                && (over || !open(at, index))
            {
                *from = at + needles[index].len();
                return Outcome::Found(index, line_at(&held.text, at));
            }
            if held.closed {
                return Outcome::Closed;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Outcome::TimedOut;
            }
            looked = held.text.len().saturating_sub(longest).max(*from);
            held = changed
                .wait_timeout(held, left.min(Duration::from_secs(1)))
                .expect("no panic while locked")
                .0;
        }
    }

    /// Whether the machine's output has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.0.lock().expect("no panic while locked").closed
    }

    /// All text so far, without escape sequences.
    pub fn text(&self) -> String {
        clean(&self.shared.0.lock().expect("no panic while locked").text)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len().max(1))
        .position(|w| w == needle)
}

/// The line around `at`, cleaned.
fn line_at(text: &[u8], at: usize) -> String {
    let start = text[..at]
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |p| p + 1);
    let end = text[at..]
        .iter()
        .position(|&b| b == b'\n')
        .map_or(text.len(), |p| at + p);
    clean(&text[start..end])
}

/// Drops escape sequences and carriage returns.
fn clean(bytes: &[u8]) -> String {
    let mut out = String::new();
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
            '\u{1b}' => {
                chars.next();
            }
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_comes_in_two_parts_is_not_taken_for_a_shorter_one() {
        let console = Console::default();
        let writer = console.clone();
        console.push(b"it cannot start: no m");
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            writer.push(b"emory\n");
        });
        let needles = ["cannot start: no memory", "cannot start"];
        let until = Instant::now() + Duration::from_secs(10);
        let found = console.wait(&mut 0, &needles, until);
        assert_eq!(
            found,
            Outcome::Found(0, "it cannot start: no memory".into())
        );
        late.join().expect("no panic");
        // Another reason, or no more text: the shorter one.
        let console = Console::default();
        console.push(b"it cannot start: no disk\n");
        assert!(matches!(
            console.wait(&mut 0, &needles, until),
            Outcome::Found(1, _)
        ));
        let console = Console::default();
        console.push(b"it cannot start: no");
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(matches!(
            console.wait(&mut 0, &needles, soon),
            Outcome::Found(1, _)
        ));
    }

    #[test]
    fn first_place_wins_and_text_is_used_once() {
        let console = Console::default();
        console.pump(
            &b"one\r\n\x1b[1;31mtwo\x1b[0m three\r\ntwo\r\n"[..],
            std::io::sink(),
        );
        let soon = Instant::now();
        let mut at = 0;
        assert_eq!(
            console.wait(&mut at, &["three", "two"], soon),
            Outcome::Found(1, "two three".into())
        );
        assert_eq!(
            console.wait(&mut at, &["two"], soon),
            Outcome::Found(0, "two".into())
        );
        assert_eq!(console.wait(&mut at, &["two"], soon), Outcome::Closed);
    }

    #[test]
    fn time_runs_out() {
        let console = Console::default();
        console.push(b"abc");
        assert_eq!(
            console.wait(&mut 0, &["d"], Instant::now()),
            Outcome::TimedOut
        );
    }

    #[test]
    fn match_across_two_reads() {
        let console = Console::default();
        console.push(b"REA");
        let other = console.clone();
        let thread = std::thread::spawn(move || other.push(b"DY"));
        let outcome = console.wait(&mut 0, &["READY"], Instant::now() + Duration::from_secs(20));
        thread.join().expect("no panic");
        assert_eq!(outcome, Outcome::Found(0, "READY".into()));
    }
}
