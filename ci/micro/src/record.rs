//! The recorded behaviour of the peer: one text file of facts for each guest.

use std::path::PathBuf;

use crate::report::{Outcome, Report};

fn path(guest: &str) -> PathBuf {
    crate::root()
        .join("ci/micro/reference/xen-4.17")
        .join(format!("{guest}.facts"))
}

/// Reads the recording of `guest`, if there is one.
pub(crate) fn load(guest: &str) -> Result<Option<Report>, String> {
    match std::fs::read_to_string(path(guest)) {
        Ok(text) => Ok(Some(Report::parse(&text, "recording without a result"))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{}: {e}", path(guest).display())),
    }
}

/// Stores a run that ended with a result; a crash is not a reference for anything.
pub(crate) fn save(guest: &str, report: &Report) -> Result<(), String> {
    if matches!(report.outcome, Outcome::Crash(_) | Outcome::Error(_)) {
        return Err(format!(
            "{guest} ended with {}: not recorded",
            report.outcome
        ));
    }
    let mut text = String::new();
    for (key, value) in &report.facts {
        // Repeated keys are numbered when they are read again.
        let key = key.split_once('#').map_or(key.as_str(), |(head, _)| head);
        text += &format!("FACT {key} {value}\n");
    }
    text += &format!("TEST {guest}: {}\n", report.outcome);
    let path = path(guest);
    std::fs::create_dir_all(path.parent().ok_or("no parent")?)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|e| format!("{}: {e}", path.display()))
}
