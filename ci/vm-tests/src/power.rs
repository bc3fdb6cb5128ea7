//! Do `poweroff` and `reboot` in dom0 do to the machine what they say?

use crate::row::{Level, READY, Step, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    vec![
        VmTest::new("power/poweroff", Level::Normal)
            .steps(&[Step::See("This is dom0."), Step::Type("poweroff\n")])
            .powers_off(),
        VmTest::new("power/poweroff-pc", Level::Full)
            .machine("pc")
            .steps(&[Step::See("This is dom0."), Step::Type("poweroff\n")])
            .powers_off(),
        VmTest::new("power/debug-key", Level::Normal)
            .direct()
            .steps(&[
                Step::See("This is dom0."),
                Step::Type("\u{1}\u{1}\u{1}R"),
                Step::See("(XEN) 'R' pressed -> rebooting machine"),
                Step::See(READY),
            ])
            .needs_xen()
            .extra_time(60),
        VmTest::new("power/reboot", Level::Normal)
            .steps(&[
                Step::See("This is dom0."),
                Step::Type("reboot\n"),
                Step::See(READY),
            ])
            .extra_time(90),
    ]
}
