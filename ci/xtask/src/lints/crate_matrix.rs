//! Who may import whom: each crate names only what stands to its left in
//! `xen-abi` <- `x86-model` <- `hv-hw` <- `hv-core` <- `hv-image`; all dependencies come from the one table.

use crate::source::Source;
use toml::{Table, Value};

/// A crate and those of ours that it may name.
const MATRIX: &[(&str, &[&str])] = &[
    ("xen-abi", &[]),
    ("x86-model", &["xen-abi"]),
    // Their build scripts get the build's choices from `kconfig`.
    ("hv-hw", &["xen-abi", "x86-model", "kconfig"]),
    ("kernel-image", &[]),
    (
        "hv-core",
        &["xen-abi", "x86-model", "kernel-image", "hv-hw", "kconfig"],
    ),
    (
        "hv-image",
        &["xen-abi", "x86-model", "hv-hw", "hv-core", "kconfig"],
    ),
    ("kconfig", &[]),
    ("xen-sys", &["xen-abi"]),
    ("xl", &["xen-sys", "xen-abi", "x86-model", "kernel-image"]),
    ("xenstore-tools", &["xen-sys", "xen-abi"]),
    ("dom0-shim", &["xen-sys", "xen-abi"]),
    ("abi-check", &["xen-abi"]),
    ("fuzz", &["xen-abi", "x86-model", "hv-hw", "hv-core"]),
    ("micro", &[]),
    ("vmtest", &[]),
    ("vm-tests", &["vmtest"]),
    // For the formats that the image reads (symbol table, module bundle), and the descriptor that `bench posted-msi` measures.
    (
        "xtask",
        &["vmtest", "vm-tests", "hv-hw", "kconfig", "x86-model"],
    ),
];
/// Test guests, wherever below `ci/guests`.
const GUESTS: &[&str] = &["xen-abi", "x86-model", "rt", "guest-rt"];

/// The rule.
pub fn check(files: &[Source]) -> Vec<String> {
    let manifests: Vec<(&Source, Table)> = files
        .iter()
        .filter(|f| f.path.ends_with("/Cargo.toml"))
        .filter_map(|f| f.text.parse().ok().map(|t| (f, t)))
        .collect();
    let ours: Vec<String> = manifests.iter().filter_map(|(_, t)| name(t)).collect();
    let mut found = Vec::new();
    for (file, table) in &manifests {
        let Some(name) = name(table) else { continue };
        let guest = file.path.starts_with("ci/guests/");
        let row = MATRIX.iter().find(|(n, _)| *n == name).map(|(_, may)| *may);
        let Some(may) = row.or(guest.then_some(GUESTS)) else {
            found.push(format!(
                "{}: crate {name} has no row in the import matrix",
                file.path
            ));
            continue;
        };
        for (section, dep, value) in dependencies(table) {
            let own_table = value.get("workspace").and_then(Value::as_bool) == Some(true);
            if !own_table && !guest {
                found.push(format!(
                    "{}: {dep} does not come from the workspace's table",
                    file.path
                ));
            }
            // Tests may look further: what they import does not ship.
            if section != "dev-dependencies" && ours.contains(&dep) && !may.contains(&dep.as_str())
            {
                found.push(format!("{}: {name} must not import {dep}", file.path));
            }
        }
    }
    found
}

fn name(table: &Table) -> Option<String> {
    Some(table.get("package")?.get("name")?.as_str()?.to_owned())
}

fn dependencies(table: &Table) -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    let mut sections = vec![table.clone()];
    if let Some(Value::Table(targets)) = table.get("target") {
        sections.extend(targets.values().filter_map(|t| t.as_table().cloned()));
    }
    for section in sections {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            if let Some(Value::Table(deps)) = section.get(kind) {
                found.extend(
                    deps.iter()
                        .map(|(n, v)| (kind.to_owned(), n.clone(), v.clone())),
                );
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::check;

    #[test]
    fn a_step_to_the_right_is_found() {
        let hw = file(
            "hypervisor/hw/Cargo.toml",
            "[package]\nname='hv-hw'\n[dependencies]\nhv-core={workspace=true}",
        );
        let core = file(
            "hypervisor/core/Cargo.toml",
            "[package]\nname='hv-core'\n[dependencies]\nhv-hw={workspace=true}",
        );
        assert_eq!(
            check(&[hw, core]),
            ["hypervisor/hw/Cargo.toml: hv-hw must not import hv-core"]
        );
    }

    #[test]
    fn own_versions_and_unknown_crates_are_found() {
        let abi = file(
            "xen-abi/Cargo.toml",
            "[package]\nname='xen-abi'\n[dependencies]\nlibc='1'",
        );
        assert_eq!(check(&[abi]).len(), 1);
        assert_eq!(
            check(&[file("x/Cargo.toml", "[package]\nname='x'")]).len(),
            1
        );
    }
}
