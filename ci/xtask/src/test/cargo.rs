//! Checks that Cargo runs: format, lints, host tests.

use super::Peer;
use super::report::Report;
use crate::{exec, micro, setup, ui};
use std::path::Path;
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

/// Clippy over the image for bare metal, with the usual configuration or that of a file.
pub fn clippy_metal(name: &str, config: Option<&Path>, report: &mut Report) {
    if let Some(reason) = setup::missing_component("clippy", "clippy") {
        return report.skip(name, &reason);
    }
    let mut cargo = exec::cargo();
    cargo.args(["clippy", "-p", "hv-image", "--quiet"]);
    setup::metal_target_flags(&mut cargo);
    cargo.args(["--", "-D", "warnings"]);
    if let Some(file) = config {
        cargo.env("KCONFIG_CONFIG", file);
    }
    simple(report, name, cargo, "see above");
}

fn simple(report: &mut Report, name: &str, command: Command, hint: &str) {
    let result = exec::step(name, command);
    report.add(name, result.map(drop).map_err(|e| format!("{e:#}; {hint}")));
}

/// The first lines that a failed test printed, by its own report.
fn said(lines: &[String], name: &str) -> String {
    const MOST: usize = 12;
    let head = format!("---- {name} stdout ----");
    let block = lines.iter().skip_while(|l| **l != head).skip(1);
    let text: Vec<&str> = block
        .take_while(|l| !l.starts_with("---- ") && *l != "failures:" && *l != "stack backtrace:")
        .map(String::as_str)
        .filter(|l| !l.trim().is_empty())
        .take(MOST)
        .collect();
    if text.is_empty() {
        return "it printed nothing; see above".into();
    }
    text.join("\n")
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
    let mut passed = 0;
    let mut ignored = Vec::new();
    let mut failed = Vec::new();
    for line in &output.lines {
        if let Some(counts) = line.strip_prefix("test result: ") {
            passed += number_before(counts, " passed");
        } else if let Some((name, why)) = line
            .strip_prefix("test ")
            .and_then(|l| l.split_once(" ... ignored"))
        {
            let why = why.trim_start_matches([',', ' ']);
            ignored.push((
                name.to_owned(),
                if why.is_empty() {
                    "no reason given"
                } else {
                    why
                }
                .to_owned(),
            ));
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
        report.add(&format!("host/{name}"), Err(said(&output.lines, name)));
    }
    if !output.ok && failed.is_empty() {
        report.add(
            "host",
            Err("cargo test failed before or outside a test; see above".into()),
        );
    }
    for (name, why) in ignored {
        report.skip(&format!("host/{name}"), &why);
    }
}

/// The declarations of `xen-abi` against Xen's own headers.
pub fn abi_check(report: &mut Report) {
    let mut cargo = exec::cargo();
    cargo.args(["run", "--quiet", "--package", "abi-check"]);
    let result = exec::step("abi", cargo);
    if let Some(summary) = result.as_ref().ok().and_then(|o| o.lines.last()) {
        ui::say(summary);
    }
    report.add("abi", result.map(drop).map_err(|e| format!("{e:#}")));
}

/// One micro-guest; with the peer, its facts come from a live run there instead of the recording.
pub fn micro_guest(guest: &str, peer: Option<Peer>, report: &mut Report) {
    let name = format!("micro/{guest}");
    let mut args = vec![guest];
    if peer == Some(Peer::Xen) {
        args.extend(["--peer", "xen"]);
    }
    let step = ui::step(&name);
    let output = match exec::collect(micro::runner(&args), |line| step.detail(line)) {
        Ok(output) => output,
        Err(error) => return report.add(&name, Err(format!("{error:#}"))),
    };
    step.end(if output.ok { "ok" } else { "FAIL" }, "");
    if peer.is_some() {
        println!("{}", output.tail());
    }
    let skipped = output
        .lines
        .last()
        .is_some_and(|l| l.ends_with(" 1 skipped"));
    match output.ok {
        true if skipped => report.skip(&name, "the guest finds nothing to test on this machine"),
        true => report.add(&name, Ok(())),
        false => report.add(&name, Err(format!("\n{}", output.tail()))),
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

    #[test]
    fn what_a_failed_test_printed_is_found() {
        let text = "test a ... ok\ntest b::c ... FAILED\n\nfailures:\n\n---- b::c stdout ----\n\nthread 'b::c' panicked at x.rs:1:2:\nleft\nstack backtrace:\n   0: main\n\n---- d stdout ----\nother\n\nfailures:\n    b::c\n";
        let lines: Vec<String> = text.lines().map(String::from).collect();
        assert_eq!(
            super::said(&lines, "b::c"),
            "thread 'b::c' panicked at x.rs:1:2:\nleft"
        );
        assert_eq!(super::said(&lines, "d"), "other");
        assert_eq!(super::said(&lines, "e"), "it printed nothing; see above");
    }
}
