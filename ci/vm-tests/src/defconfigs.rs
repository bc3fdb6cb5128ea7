//! Does the build of each named configuration boot, and do its choices show?

use crate::row::{Level, READY, Step, VmTest};

/// What a build says of units that it has no driver for.
const NO_REMAPPING: &str = "Interrupt remapping disabled: the build has no driver for these units";

/// The rows, one for each file in `hypervisor/configs`.
pub fn rows() -> Vec<VmTest> {
    let row = |name: &'static str, steps: &[Step]| {
        VmTest::new(format!("defconfig/{name}"), Level::Quick)
            .defconfig(name)
            .direct()
            .steps(steps)
            .needs_xen()
    };
    vec![
        row(
            "default",
            &[
                Step::See(", debug=n"),
                Step::See("Console ring: 128 KiB"),
                Step::See("Switched to APIC driver x2apic_mixed (default)"),
                Step::See("Using scheduler: credit2"),
                Step::See("*** Serial input to DOM0 (type 'CTRL-a' three times"),
                Step::See(READY),
                Step::See("This is dom0."),
                // The configuration by debug key, the other keys, and back to a dom0 that lives.
                Step::Type("\u{1}\u{1}\u{1}"),
                Step::See("*** Serial input to Xen"),
                Step::Type("k"),
                Step::See("(XEN) CONFIG_NR_CPUS=512"),
                Step::See("(XEN) # CONFIG_DEBUG is not set"),
                Step::Type("*"),
                Step::See("vector 0x"),
                Step::See("d0: Alive"),
                Step::See("run queues of credit2"),
                Step::Type("\u{1}\u{1}\u{1}"),
                Step::See("*** Serial input to DOM0"),
                Step::Type("\necho alive-$((6*7))\n"),
                Step::See("alive-42"),
            ],
        ),
        row(
            "debug",
            &[
                Step::See(", debug=y"),
                Step::See("The order of locks is checked"),
                Step::See("Switched to APIC driver x2apic_cluster (default)"),
                // The built-in command line asks for time stamps.
                Step::See("(XEN) [    0."),
                Step::See("dom0 kernel: PVH entry at"),
                Step::See(READY),
            ],
        )
        .machine("iommu-amd")
        .extra_time(60),
        row(
            "amd_minimal",
            &[
                Step::See("console=vga: the screen is not built in (CONFIG_VGA)"),
                Step::See("Console ring: 16 KiB"),
                Step::See(NO_REMAPPING),
                Step::See("Switched to APIC driver x2apic_phys (default)"),
                Step::See("2 of 3 CPUs are used (limit of this build)"),
                Step::See("Using scheduler: null"),
                Step::See("xen:events: Using 2-level ABI"),
                Step::See(READY),
            ],
        )
        .machine("iommu-intel")
        .cpus(3)
        .cmdline("console=com1,vga")
        .dom0_cmdline("loglevel=7"),
        row(
            "intel_minimal",
            &[Step::See(NO_REMAPPING), Step::See(
                "Xenolith cannot start: no virtualization in this build for this CPU: it has AMD-V, and CONFIG_AMD is off",
            )],
        )
        .machine("iommu-amd"),
    ]
}

#[cfg(test)]
mod tests {
    use super::rows;
    use vmtest::paths;

    #[test]
    fn every_configuration_has_a_row() {
        let dir = paths::root().join("hypervisor/configs");
        for entry in std::fs::read_dir(dir).expect("the directory is there") {
            let name = entry.expect("readable").file_name();
            let name = name.to_string_lossy();
            if let Some(name) = name.strip_suffix("_defconfig") {
                assert!(rows().iter().any(|r| r.defconfig == Some(name)), "{name}");
            }
        }
    }
}
