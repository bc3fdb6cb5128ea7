//! Does a machine or a command line that cannot work end in one clear line, never in a silent reset?

use crate::row::{Level, Step, VmTest};

/// The rows. QEMU takes the last of repeated options, so these replace the machine file's.
pub fn rows() -> Vec<VmTest> {
    let refuse = |name: &str, devices, line| {
        VmTest::new(format!("refuse/{name}"), Level::Normal)
            .devices(devices)
            .steps(&[Step::See(line)])
            .needs_xen()
    };
    vec![
        refuse(
            "little-memory",
            &["-m", "60M"],
            "Xenolith cannot start: not enough memory: the machine has 59 MiB",
        ),
        refuse(
            "no-long-mode",
            &["-cpu", "qemu32"],
            "Xenolith: this CPU has no 64-bit mode. Stopped.",
        ),
        refuse(
            "no-nx",
            &["-cpu", "EPYC,-nx"],
            "Xenolith: this CPU has no no-execute pages",
        ),
        refuse(
            "no-virtualization",
            &["-cpu", "EPYC,-svm"],
            "Xenolith cannot start: the CPU has no hardware virtualization that the system could see",
        ),
    ]
}
