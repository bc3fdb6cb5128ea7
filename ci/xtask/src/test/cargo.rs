//! Checks that Cargo runs: format, lints, host tests.

use super::report::Report;
use crate::{exec, setup, ui};
use std::process::Command;

/// `cargo fmt --check`.
pub fn fmt(report: &mut Report) {
    if let Some(reason) = setup::missing_component("rustfmt", "fmt") {
        return report.skip("fmt", &reason);
    }
    let mut cargo = exec::cargo();
    cargo.args(["fmt", "--all", "--", "--check"]);
    simple(report, "fmt", cargo, "run `cargo fmt --all`");
}

/// Clippy over everything that builds for the host.
pub fn clippy_host(report: &mut Report) {
    if let Some(reason) = setup::missing_component("clippy", "clippy") {
        return report.skip("clippy/host", &reason);
    }
    let mut cargo = exec::cargo();
    cargo.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]);
    simple(report, "clippy/host", cargo, "see above");
}

/// Clippy over the image for bare metal.
pub fn clippy_metal(report: &mut Report) {
    if let Some(reason) = setup::missing_component("clippy", "clippy") {
        return report.skip("clippy/metal", &reason);
    }
    let mut cargo = exec::cargo();
    cargo.args(["clippy", "-p", "hv-image", "--quiet"]);
    setup::metal_target_flags(&mut cargo);
    cargo.args(["--", "-D", "warnings"]);
    simple(report, "clippy/metal", cargo, "see above");
}

fn simple(report: &mut Report, name: &str, command: Command, hint: &str) {
    let result = exec::step(name, command);
    report.add(name, result.map(drop).map_err(|e| format!("{e:#}; {hint}")));
}

/// `cargo test` over the workspace; every test counts.
pub fn host_tests(report: &mut Report) {
    let mut cargo = exec::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    let step = ui::step("host tests");
    let output = match exec::collect(cargo, |line| step.detail(line)) {
        Ok(output) => output,
        Err(error) => return report.add("host", Err(format!("{error:#}"))),
    };
    let (mut passed, mut ignored) = (0, 0);
    let mut failed = Vec::new();
    for line in &output.lines {
        if let Some(counts) = line.strip_prefix("test result: ") {
            passed += number_before(counts, " passed");
            ignored += number_before(counts, " ignored");
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|l| l.strip_suffix(" ... FAILED"))
        {
            failed.push(name.to_owned());
        }
    }
    step.end(if output.ok { "ok" } else { "FAIL" }, "");
    if !output.ok {
        println!("{}", output.tail());
    }
    report.add_passed("host", passed);
    for name in &failed {
        report.add(&format!("host/{name}"), Err("see above".into()));
    }
    if !output.ok && failed.is_empty() {
        report.add(
            "host",
            Err("cargo test failed before or outside a test; see above".into()),
        );
    }
    for _ in 0..ignored {
        report.skip(
            "host",
            "the test is marked #[ignore]: too long for every run",
        );
    }
}

/// The number in front of `word`, 0 if there is none.
fn number_before(text: &str, word: &str) -> usize {
    let Some(end) = text.find(word) else { return 0 };
    text[..end]
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::number_before;

    #[test]
    fn counts_of_the_test_harness() {
        let line =
            "ok. 13 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(number_before(line, " passed"), 13);
        assert_eq!(number_before(line, " failed"), 2);
        assert_eq!(number_before(line, " ignored"), 1);
        assert_eq!(number_before(line, " absent"), 0);
    }
}
