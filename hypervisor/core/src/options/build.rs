//! What a build sets before the boot loader's command line is read.

use alloc::vec::Vec;

use hv_hw::config;

use super::{LogLevels, Options, Scheduler, Warning};

/// The choices of a build that concern the command line.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// All messages by default (`CONFIG_DEBUG`).
    pub debug: bool,
    /// Scheduler by default.
    pub sched: Scheduler,
    /// Read before the boot loader's line (`CONFIG_CMDLINE`).
    pub line: &'static str,
    /// The boot loader's line is not read (`CONFIG_CMDLINE_OVERRIDE`).
    pub override_loader: bool,
}

impl Build {
    /// This build.
    pub const THIS: Self = Self {
        debug: cfg!(CONFIG_DEBUG),
        sched: if cfg!(CONFIG_SCHED_NULL_DEFAULT) {
            Scheduler::Null
        } else {
            Scheduler::Credit2
        },
        line: config::CMDLINE,
        override_loader: cfg!(CONFIG_CMDLINE_OVERRIDE),
    };

    /// The options of a boot of this build whose boot loader passed `line`.
    pub fn options(&self, line: &[u8]) -> (Options, Vec<Warning>) {
        let mut options = Options {
            sched: self.sched,
            ..Options::default()
        };
        if self.debug {
            options.loglvl = LogLevels::ALL;
            options.guest_loglvl = LogLevels::ALL;
        }
        let mut warnings = options.read(self.line.as_bytes());
        if !self.override_loader {
            warnings.extend(options.read(line));
        }
        (options, warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Level;

    const PLAIN: Build = Build {
        debug: false,
        sched: Scheduler::Credit2,
        line: "",
        override_loader: false,
    };

    #[test]
    fn a_plain_build_has_xens_defaults() {
        assert_eq!(PLAIN.options(b"").0, Options::default());
    }

    #[test]
    fn a_debug_build_prints_all_unless_told_less() {
        let debug = Build {
            debug: true,
            ..PLAIN
        };
        let (o, _) = debug.options(b"guest_loglvl=none");
        assert_eq!(o.loglvl.print, Level::Debug);
        assert_eq!(o.guest_loglvl.print, Level::None);
    }

    #[test]
    fn the_loaders_line_comes_after_the_builds() {
        let built = Build {
            line: "noreboot maxcpus=2 nonsense",
            sched: Scheduler::Null,
            ..PLAIN
        };
        let (o, warnings) = built.options(b"maxcpus=3 -- dom0");
        assert!(o.noreboot);
        assert_eq!(o.maxcpus, Some(3));
        assert_eq!(o.sched, Scheduler::Null);
        assert_eq!(o.dom0_extra, "dom0");
        assert_eq!(warnings.len(), 1);
        let alone = Build {
            override_loader: true,
            ..built
        };
        let (o, _) = alone.options(b"maxcpus=3 -- dom0");
        assert_eq!((o.maxcpus, &*o.dom0_extra), (Some(2), ""));
    }
}
