//! Why a command failed: one line, and the exit code.

use serde::Serialize;
use std::fmt;

/// What commands return.
pub type Result<T> = std::result::Result<T, Failure>;
/// What handlers return.
pub type Outcome = Result<()>;

/// A failure as the user gets to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code, not 0.
    pub code: u8,
    /// One line that names the cause and says what to do; empty if all has been said.
    pub message: String,
}

#[derive(Serialize)]
struct Report<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: u8,
    message: &'a str,
}

impl Failure {
    /// Exit code 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::with_code(1, message)
    }

    /// A command line that cannot be understood: exit code 2.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::with_code(2, message)
    }

    /// With an exit code.
    pub fn with_code(code: u8, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }

    /// An exit code without a word.
    pub fn silent(code: u8) -> Failure {
        Failure::with_code(code, "")
    }

    /// Puts what was being done in front.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Failure {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Tells it on standard error.
    pub(super) fn report(&self, json: bool) {
        if self.message.is_empty() {
            return;
        }
        if !json {
            eprintln!("xl: {}", self.message);
            return;
        }
        let report = Report {
            error: Body {
                code: self.code,
                message: &self.message,
            },
        };
        match serde_json::to_string(&report) {
            Ok(text) => eprintln!("{text}"),
            Err(_) => eprintln!("xl: {}", self.message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<xen_sys::xenstore::Error> for Failure {
    fn from(error: xen_sys::xenstore::Error) -> Failure {
        Failure::new(format!("xenstore: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::new(format!("JSON: {error}"))
    }
}
