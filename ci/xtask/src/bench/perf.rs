//! Hardware counters by the `perf` program, where it is installed and the machine has any.

use std::process::{Command, Stdio};

const EVENT: &str = "L1-dcache-load-misses";

/// The value in `perf stat -x,`'s line for the event; `None` if it was not counted.
fn value(report: &str) -> Option<u64> {
    let line = report.lines().find(|l| l.contains(EVENT))?;
    line.split(',').next()?.parse().ok()
}

fn stat(program: &str, args: &[String]) -> Option<u64> {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x,", "-e", EVENT, "--", program])
        .args(args);
    let out = perf.stdin(Stdio::null()).output().ok()?;
    out.status
        .success()
        .then(|| value(&String::from_utf8_lossy(&out.stderr)))?
}

/// Whether the event can be counted here.
pub fn available() -> bool {
    stat("true", &[]).is_some()
}

/// First-level data-cache misses while this program runs with these arguments.
pub fn misses(args: &[String]) -> Option<u64> {
    let me = std::env::current_exe().ok()?;
    stat(me.to_str()?, args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_absence() {
        assert_eq!(
            value("\n1234,,L1-dcache-load-misses,10,100.00,,\n"),
            Some(1234)
        );
        assert_eq!(
            value("<not supported>,,L1-dcache-load-misses,0,100.00,,"),
            None
        );
        assert_eq!(value(""), None);
    }
}
