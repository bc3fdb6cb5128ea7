//! Compares every declaration of `xen-abi` with Xen's public C headers (Debian: libxen-dev).
//!
//! Usage: `cargo run -p abi-check [INCLUDE_DIR]`. A C program that prints the compiler's view of each structure, field and
//! constant is generated, compiled with `$CC` (or `cc`) and run; its answers are compared with the declarations. Exits
//! with 1 on any difference. What differs for 32-bit callers is asserted in a second C program, which is only compiled. Declarations that the headers cannot confirm carry their reason and are listed.
#![forbid(unsafe_code)]

mod generate;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use xen_abi::{HEADERS, compat};

use crate::generate::{Assertions, Probe, Question};

fn main() -> ExitCode {
    let include = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("/usr/include/xen"), PathBuf::from);
    match check(&include) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("abi-check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the comparison and prints its result. `Ok(false)` if something differs.
fn check(include: &Path) -> Result<bool, String> {
    if !include.join("xen.h").is_file() {
        return Err(format!(
            "no Xen headers in {} (package libxen-dev)",
            include.display()
        ));
    }
    let probe = Probe::new(HEADERS, include);
    let answers = run(&probe)?;
    let differences = compare(&probe.questions, &answers)?;
    for difference in &differences {
        println!("MISMATCH {difference}");
    }
    for (what, reason) in &probe.skipped {
        println!("skipped {what}: {reason}");
    }
    println!(
        "{} structs, {} fields, {} constants checked, {} skipped, {} mismatches",
        probe.structs,
        probe.fields,
        probe.constants,
        probe.skipped.len(),
        differences.len()
    );
    let assertions = Assertions::new(compat::HEADERS, HEADERS, compat::NOT_CALLABLE, include);
    let wrong = compile_32(&assertions)?;
    for line in &wrong {
        println!("MISMATCH {line}");
    }
    for (what, reason) in compat::NOT_CALLABLE {
        println!("skipped for 32-bit callers {what}: {reason}");
    }
    println!(
        "{} sizes and offsets checked for 32-bit callers, {} skipped, {} mismatches",
        assertions.count,
        compat::NOT_CALLABLE.len(),
        wrong.len()
    );
    Ok(differences.is_empty() && wrong.is_empty())
}

/// The assertions that do not hold, as the compiler words them.
fn compile_32(assertions: &Assertions) -> Result<Vec<String>, String> {
    in_directory(|dir| {
        let source = dir.join("compat.c");
        std::fs::write(&source, &assertions.source)
            .map_err(|e| format!("{}: {e}", source.display()))?;
        let cc = compiler();
        let output = Command::new(&cc)
            .args(["-std=gnu11", "-w", "-m32", "-ffreestanding"])
            .args(["-fmax-errors=0", "-fsyntax-only"])
            .arg(&source)
            .output()
            .map_err(|e| format!("{}: {e}", cc.display()))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let failed: Vec<String> = text
            .lines()
            .filter(|line| line.contains("error:"))
            .map(str::to_owned)
            .collect();
        if !output.status.success() && failed.is_empty() {
            return Err(format!("the compiler fails for i386: {text}"));
        }
        Ok(failed)
    })
}

/// One line per question that the compiler answers differently.
fn compare(questions: &[Question], answers: &[i128]) -> Result<Vec<String>, String> {
    if answers.len() != questions.len() {
        return Err(format!(
            "{} answers to {} questions",
            answers.len(),
            questions.len()
        ));
    }
    Ok(questions
        .iter()
        .zip(answers)
        .filter(|(question, answer)| question.expected != **answer)
        .map(|(question, answer)| {
            format!(
                "{}: declared {}, header says {answer}",
                question.what, question.expected
            )
        })
        .collect())
}

/// Compiles and runs the probe; its answers in the order of the questions.
fn run(probe: &Probe) -> Result<Vec<i128>, String> {
    in_directory(|dir| run_in(dir, probe))
}

fn compiler() -> PathBuf {
    std::env::var_os("CC").map_or_else(|| "cc".into(), PathBuf::from)
}

/// Runs `f` with a directory of its own.
fn in_directory<T>(f: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    let dir = std::env::temp_dir().join(format!("abi-check-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let result = f(&dir);
    // The directory is ours alone; failing to remove it must not hide the result.
    if let Err(error) = std::fs::remove_dir_all(&dir) {
        eprintln!("abi-check: {}: {error}", dir.display());
    }
    result
}

fn run_in(dir: &Path, probe: &Probe) -> Result<Vec<i128>, String> {
    let (source, program) = (dir.join("probe.c"), dir.join("probe"));
    std::fs::write(&source, &probe.source).map_err(|e| format!("{}: {e}", source.display()))?;
    let cc = compiler();
    let status = Command::new(&cc)
        .args(["-std=gnu11", "-w", "-m64", "-o"])
        .args([&program, &source])
        .status()
        .map_err(|e| format!("{}: {e}", cc.display()))?;
    if !status.success() {
        return Err("the probe does not compile: a declaration has no counterpart".into());
    }
    let output = Command::new(&program)
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.parse().map_err(|e| format!("answer {line:?}: {e}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_reported() {
        let ask = |expected| Question {
            what: "q".into(),
            expected,
        };
        let questions = [ask(1), ask(-2), ask(3)];
        assert_eq!(compare(&questions, &[1, -2, 3]), Ok(Vec::new()));
        assert_eq!(
            compare(&questions, &[1, 2, 3]),
            Ok(vec!["q: declared -2, header says 2".to_owned()])
        );
        assert!(compare(&questions, &[1, -2]).is_err());
    }
}
