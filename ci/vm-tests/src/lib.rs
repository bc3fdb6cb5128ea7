//! The VM tests: which machine boots what, and what must be seen. One file per area.
//!
//! Rows are data; `cargo xtask test` runs them. A row asks one question and its name says which.
#![forbid(unsafe_code)]

mod bochs;
mod boot;
mod defconfigs;
mod devices;
mod iommu;
mod power;
mod refuse;
mod row;
mod scale;
mod screen;
mod smp;
mod tools;

use anyhow::{Context, Result};

pub use row::{Debian, End, FATAL, Level, NOT_DOM0, READY, Step, VmTest};

/// Every test, in the order in which they are run: what the others stand on comes first.
pub fn all() -> Vec<VmTest> {
    let mut rows = boot::rows();
    rows.extend(refuse::rows());
    rows.extend(defconfigs::rows());
    rows.extend(screen::rows());
    rows.extend(power::rows());
    rows.extend(smp::rows());
    rows.extend(scale::rows());
    rows.extend(devices::rows());
    rows.extend(iommu::rows());
    rows.extend(tools::rows());
    rows.extend(bochs::rows());
    rows
}

/// The test called `name`.
pub fn find(name: &str) -> Result<VmTest> {
    let known = || {
        all()
            .into_iter()
            .map(|t| t.name)
            .collect::<Vec<_>>()
            .join(" ")
    };
    all()
        .into_iter()
        .find(|t| t.name == name)
        .with_context(|| format!("no VM test `{name}`; there are: {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use vmtest::machine::Machine;
    use vmtest::paths;

    #[test]
    fn names_are_unique_and_rows_refer_to_what_exists() {
        let mut names = BTreeSet::new();
        for row in all() {
            assert!(names.insert(row.name.clone()), "{} twice", row.name);
            if let Some(name) = row.defconfig {
                let path = paths::root().join(format!("hypervisor/configs/{name}_defconfig"));
                assert!(path.exists(), "{} is missing", path.display());
            }
            Machine::load(row.machine).expect("the row's machine exists");
            if let Some(guest) = row.guest {
                let path = paths::root().join(format!("ci/guests/{guest}/main.rs"));
                assert!(path.exists(), "{} is missing", path.display());
            }
            if let Some(script) = row.script {
                let path = paths::root().join(format!("ci/vm-tests/dom0/{script}.sh"));
                assert!(path.exists(), "{} is missing", path.display());
            }
            assert!(
                row.script.is_some() || !row.steps.is_empty(),
                "{} looks at nothing",
                row.name
            );
            let tables = row.tables.is_empty() || !row.direct;
            assert!(tables, "{}: nothing loads its tables", row.name);
        }
    }
}
