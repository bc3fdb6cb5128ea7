//! Counting results, and the closing line.

/// Results so far.
#[derive(Default)]
pub struct Report {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<(String, String)>,
}

impl Report {
    /// A result with its reason if it is a failure.
    pub fn add(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("pass {name}");
            }
            Err(reason) => {
                println!("FAIL {name}: {reason}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// A test that did not run, with the reason.
    pub fn skip(&mut self, name: &str, reason: &str) {
        println!("skip {name}: {reason}");
        self.skipped.push((name.to_owned(), reason.to_owned()));
    }

    /// Many passed tests at once.
    pub fn add_passed(&mut self, name: &str, count: usize) {
        println!("pass {name}: {count} tests");
        self.passed += count;
    }

    /// Prints the failures again and the closing line; true if nothing failed and something ran.
    pub fn close(&self) -> bool {
        println!();
        self.skipped
            .iter()
            .for_each(|(name, reason)| println!("skipped: {name}: {reason}"));
        self.failed
            .iter()
            .for_each(|name| println!("failed: {name}"));
        if self.passed + self.failed.len() + self.skipped.len() == 0 {
            println!("no test has that name; `cargo xtask test --list` lists them");
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        );
        self.failed.is_empty() && self.passed > 0
    }
}
