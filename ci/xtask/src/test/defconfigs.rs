//! The named configurations: right and minimal, what they change for callers, and their images for the VM tests.

use super::report::Report;
use crate::{build, config, exec};
use std::collections::BTreeMap;
use vm_tests::VmTest;

/// `kconfig/NAME`: the file has no mistake and no line too many, and the host test of what a build's choices change holds.
pub fn check(name: &str, report: &mut Report) {
    let row = format!("kconfig/{name}");
    if let Err(why) = config::check_minimal(name) {
        return report.add(&row, Err(why));
    }
    let mut cargo = exec::cargo();
    cargo.args(["test", "--quiet", "-p", "hv-core", "--test", "build_config"]);
    cargo.env("KCONFIG_CONFIG", config::defconfig_file(name));
    let result = exec::step(&row, cargo);
    report.add(&row, result.map(drop).map_err(|e| format!("{e:#}")));
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
