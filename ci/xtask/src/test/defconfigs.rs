//! The named configurations: right and minimal, what they change for callers, and their images for the VM tests.

use super::cargo;
use super::report::Report;
use crate::{build, config, exec, setup};
use std::collections::BTreeMap;
use vm_tests::VmTest;

/// `kconfig/NAME`: the file has no mistake and no line too many, the host test of what a build's choices change holds, and
/// clippy finds nothing in the image for bare metal (only the hypervisor's own crates are checked again; the usual
/// configuration's image is `clippy/metal`).
pub fn check(name: &str, report: &mut Report) {
    let row = format!("kconfig/{name}");
    if let Err(why) = config::check_minimal(name) {
        return report.add(&row, Err(why));
    }
    let mut test = exec::cargo();
    test.args(["test", "--quiet", "-p", "hv-core", "--test", "build_config"]);
    test.env("KCONFIG_CONFIG", config::defconfig_file(name));
    let result = exec::step(&row, test);
    report.add(&row, result.map(drop).map_err(|e| format!("{e:#}")));
    if name != "default" {
        let lint = format!("kconfig/{name}/clippy");
        cargo::clippy_metal(&lint, Some(&config::defconfig_file(name)), report);
    }
}

/// Name of [`wrong_lines`].
pub const WRONG: &str = "kconfig/wrong-lines";

/// A file whose lines cannot be followed, and what the build says of each.
const MISTAKES: &[(&str, &str)] = &[
    (
        "CONFIG_NR_CPUS=9000",
        ":1: CONFIG_NR_CPUS=9000 is outside of 1 to 4095",
    ),
    ("# CONFIG_HVM is not set", ""),
    (
        "CONFIG_AMD=y",
        ":3: CONFIG_AMD=y, but it depends on `HVM`, and HVM=n",
    ),
    (
        "CONFIG_SHED_NULL=y",
        ":4: CONFIG_SHED_NULL: there is no such symbol",
    ),
    (
        "CONFIG_DEBUG=maybe",
        ":5: CONFIG_DEBUG=maybe: it must be y or n",
    ),
];

/// A build for bare metal with a wrong file fails and names each wrong line, without the help of `cargo xtask build`.
pub fn wrong_lines(report: &mut Report) {
    let build = || -> anyhow::Result<exec::Output> {
        let file = vmtest::paths::target().join("image/wrong.config");
        let lines: Vec<&str> = MISTAKES.iter().map(|(line, _)| *line).collect();
        std::fs::create_dir_all(file.parent().unwrap_or(&file))?;
        std::fs::write(&file, lines.join("\n"))?;
        let mut cargo = exec::cargo();
        cargo.args(["build", "-p", "hv-hw", "--profile", "defconfig"]);
        setup::metal_target_flags(&mut cargo);
        cargo.env("KCONFIG_CONFIG", &file);
        exec::collect(cargo, |_| {})
    };
    let verdict = match build() {
        Err(error) => Err(format!("{error:#}")),
        Ok(output) if output.ok => Err("the build accepts the file".into()),
        Ok(output) => {
            let said = |text: &str| output.lines.iter().any(|l| l.contains(text));
            match MISTAKES.iter().find(|(_, text)| !said(text)) {
                None => Ok(()),
                Some((line, _)) => Err(format!("nothing is said of {line}:\n{}", output.tail())),
            }
        }
    };
    report.add(WRONG, verdict);
}

/// Builds the images that `tests` boot, and returns those tests whose image is there.
pub fn build(tests: Vec<VmTest>, report: &mut Report) -> Vec<VmTest> {
    let mut built: BTreeMap<&str, Result<(), String>> = BTreeMap::new();
    for name in tests.iter().filter_map(|t| t.defconfig) {
        built
            .entry(name)
            .or_insert_with(|| build::for_tests(name).map_err(|e| format!("{e:#}")));
    }
    let mut ready = Vec::new();
    for test in tests {
        match test.defconfig.and_then(|name| built[name].as_ref().err()) {
            None => ready.push(test),
            Some(why) => report.add(&format!("vm/{}", test.name), Err(why.clone())),
        }
    }
    ready
}
