//! Do our programs work in dom0?

use crate::row::{Level, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    vec![
        VmTest::new("tools/xenstore", Level::Normal)
            .script("xenstore")
            .direct()
            .tools()
            .needs_xen()
            .extra_time(60),
        VmTest::new("tools/debian-xl", Level::Normal)
            .script("debian-xl")
            .direct()
            .debian()
            .needs_xen()
            .extra_time(180),
        VmTest::new("tools/xl-read", Level::Normal)
            .script("xl-read")
            .direct()
            .tools()
            .needs_xen()
            .extra_time(90),
        VmTest::new("tools/xl-beside-debian", Level::Normal)
            .script("xl-beside-debian")
            .direct()
            .tools()
            .debian()
            .needs_xen()
            .extra_time(240),
        VmTest::new("tools/guest-debian-xl", Level::Normal)
            .script("guest")
            .dom0_cmdline("xt.xl=debian")
            .cmdline("dom0_mem=900M")
            .direct()
            .system()
            .debian()
            .needs_xen()
            .extra_time(300),
    ]
}
