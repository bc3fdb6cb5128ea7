//! Does dom0 find the screen that the boot loader left, and have its console there?

use crate::row::{Level, READY, Step, VmTest};

/// The rows. The kernel says which driver took the screen; drawing itself is looked at by people.
pub fn rows() -> Vec<VmTest> {
    let screen = |name: &str, line| {
        VmTest::new(format!("screen/{name}"), Level::Normal)
            .dom0_cmdline("console=tty0 console=hvc0")
            .steps(&[Step::See(line), Step::See(READY)])
            .needs_xen()
    };
    vec![
        screen("bios", "fb0: VESA VGA frame buffer device"),
        screen("efi", "fb0: EFI VGA frame buffer device")
            .efi()
            .extra_time(60),
    ]
}
