//! The hypervisor's command line: Xen's names, syntax and meaning. Unknown or malformed options never stop the boot: each
//! becomes a [`Warning`] that names it, and the default stays. Pure; the caller owns the result and prints the warnings.

mod apicv;
mod build;
mod grants;
mod list;
mod serial;
mod table;
#[cfg(test)]
mod tests;
mod types;
mod value;
mod words;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use apicv::Apicv;
pub use build::Build;
pub use serial::{Baud, Parity, SerialSetup};
pub use table::{Effect, OPTIONS, Spec};
pub use types::*;

use crate::console::input::Switch;
use crate::grant::Limits;
use value::Arg;

/// Every option of the command line, typed, at its default where not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where log output goes.
    pub console: Consoles,
    /// Settings of the first serial port.
    pub com1: SerialSetup,
    /// Settings of the second serial port.
    pub com2: SerialSetup,
    /// Which hypervisor messages are printed.
    pub loglvl: LogLevels,
    /// Which messages on behalf of guests are printed.
    pub guest_loglvl: LogLevels,
    /// Prefix of each console line.
    pub console_timestamps: Timestamps,
    /// Who gets what is typed, and how that is changed.
    pub conswitch: Switch,
    /// Wait for every character to leave the serial port.
    pub sync_console: bool,
    /// Keep what dom0 prints in the console ring.
    pub console_to_ring: bool,
    /// Size of the console ring in bytes; `None` chooses by the machine's size.
    pub conring_size: Option<u64>,
    /// Display mode and whether to keep writing to it once dom0 runs.
    pub vga: Vga,
    /// Halt instead of rebooting after a fatal error.
    pub noreboot: bool,
    /// How to reboot.
    pub reboot: Reboot,
    /// Watchdog against a stuck CPU.
    pub watchdog: Watchdog,
    /// Memory of dom0.
    pub dom0_mem: Dom0Mem,
    /// Virtual CPUs of dom0.
    pub dom0_max_vcpus: VcpuRange,
    /// Pin each vCPU of dom0 to the CPU of the same number.
    pub dom0_vcpus_pin: bool,
    /// How dom0 is built.
    pub dom0: Dom0Mode,
    /// Use at most that many CPUs.
    pub maxcpus: Option<u32>,
    /// Use the boot CPU only.
    pub nosmp: bool,
    /// Use sibling threads; `None` is the default (yes), but unlike `Some(true)` it may be overridden by a policy.
    pub smt: Option<bool>,
    /// Version of Xen that guests and toolstacks are told, major and minor.
    pub xen_version: (u16, u16),
    /// How application processors are started.
    pub ap_bringup: ApBringup,
    /// With the pauses that old CPUs need between the messages that start them.
    pub ap_delays: bool,
    /// What the processor may do for guests' local APICs.
    pub apicv: Apicv,
    /// TLB flushes to measure at boot; 0 for none.
    pub ipi_bench: u32,
    /// What goes wrong on purpose in the start of CPUs, by APIC ID.
    pub ap_fault: [Option<(u32, ApFault)>; 4],
    /// Switch local APICs to x2APIC mode.
    pub x2apic: bool,
    /// Destination mode; `None` lets `x2apic_phys`, the firmware's wish and then the build's default decide, in
    /// [`x86_model::interrupt::mode::decide`].
    pub x2apic_mode: Option<X2apicMode>,
    /// The older spelling of `x2apic-mode`.
    pub x2apic_phys: Option<bool>,
    /// Detail of local APIC and IO-APIC messages.
    pub apic_verbosity: Verbosity,
    /// Use no IO-APIC.
    pub noapic: bool,
    /// Use of ACPI.
    pub acpi: Acpi,
    /// IOMMU use.
    pub iommu: Iommu,
    /// `ivrs_ioapic[..]`: sources of IO-APICs that the firmware's table has wrong.
    pub ivrs_ioapics: [Option<IoApicSource>; 8],
    /// Bounds of grant tables.
    pub grants: Limits,
    /// The scheduler.
    pub sched: Scheduler,
    /// Time slice in milliseconds.
    pub sched_tslice_ms: Option<u32>,
    /// Trace buffers that are there from the start.
    pub trace: TraceSetup,
    /// Text after `--`, meant for dom0's own command line.
    pub dom0_extra: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            console: Consoles::default(),
            com1: SerialSetup::at(0x3f8, 4),
            com2: SerialSetup::at(0x2f8, 3),
            loglvl: LogLevels::HYPERVISOR,
            guest_loglvl: LogLevels::GUEST,
            console_timestamps: Timestamps::None,
            conswitch: Switch::default(),
            sync_console: false,
            console_to_ring: false,
            conring_size: None,
            vga: Vga::default(),
            noreboot: false,
            reboot: Reboot::Default,
            watchdog: Watchdog::default(),
            dom0_mem: Dom0Mem::default(),
            dom0_max_vcpus: VcpuRange::default(),
            dom0_vcpus_pin: false,
            dom0: Dom0Mode::default(),
            maxcpus: None,
            nosmp: false,
            smt: None,
            xen_version: (4, 17),
            ap_bringup: ApBringup::Parallel,
            ap_delays: false,
            apicv: Apicv::all(true),
            ipi_bench: 0,
            ap_fault: [None; 4],
            x2apic: true,
            x2apic_mode: None,
            x2apic_phys: None,
            apic_verbosity: Verbosity::Quiet,
            noapic: false,
            acpi: Acpi::default(),
            iommu: Iommu::default(),
            ivrs_ioapics: [None; 8],
            grants: Limits::default(),
            sched: Scheduler::Credit2,
            sched_tslice_ms: None,
            trace: TraceSetup::default(),
            dom0_extra: String::new(),
        }
    }
}

impl Options {
    /// Reads a command line, up to a NUL if it has one. Later options override earlier ones.
    pub fn parse(line: &[u8]) -> (Self, Vec<Warning>) {
        let mut options = Self::default();
        let warnings = options.read(line);
        (options, warnings)
    }

    /// Reads a command line on top of what is set already.
    fn read(&mut self, line: &[u8]) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let (words, rest) = words::split(line);
        for word in &words {
            if let Err(why) = self.apply(word) {
                warnings.push(Warning {
                    option: String::from(word.as_str()),
                    why,
                });
            }
        }
        self.dom0_extra = rest;
        warnings
    }

    fn apply(&mut self, word: &str) -> Result<(), Why> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let (name, index) = match name.strip_suffix(']').and_then(|n| n.split_once('[')) {
            Some((name, index)) => (name, Some(index)),
            None => (name, None),
        };
        // A name that itself starts with "no" (noreboot, no-real-mode) is found before the prefix is taken off.
        let (spec, negated) = match table::find(name) {
            Some(spec) => (spec, false),
            None => name
                .strip_prefix("no-")
                .and_then(table::find)
                .map(|spec| (spec, true))
                .ok_or_else(|| Why::Unknown {
                    similar: table::similar(name),
                })?,
        };
        match spec.effect {
            Effect::Set(set) => {
                // Brackets mean something for a few options, which ask for them.
                let arg = Arg {
                    index,
                    negated,
                    value,
                };
                if index.is_some() && !spec.syntax.starts_with('[') {
                    return Err(Why::Malformed(String::from("takes no brackets")));
                }
                set(self, arg).map_err(Why::Malformed)
            }
            Effect::Silent => Ok(()),
            Effect::None(reason) => Err(Why::NoEffect(reason)),
        }
    }

    /// Number of CPUs to use of `present` ones, at least 1.
    pub fn cpu_limit(&self, present: u32) -> u32 {
        match self.maxcpus {
            _ if self.nosmp => 1,
            Some(n) => present.min(n).max(1),
            None => present,
        }
    }
}

/// An option that was not, or not wholly, applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The option as written.
    pub option: String,
    /// Why.
    pub why: Why,
}

/// Why an option was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No such option; perhaps this one was meant.
    Unknown {
        /// A known name that differs in a letter or two.
        similar: Option<&'static str>,
    },
    /// The value cannot be used; the text says what is wrong with which part.
    Malformed(String),
    /// Known to Xen; here it changes nothing, for the reason given.
    NoEffect(&'static str),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text came from outside: keep control characters off the console.
        write!(f, "command line: \"{}\": ", self.option.escape_debug())?;
        match &self.why {
            Why::Unknown { similar: None } => f.write_str("unknown option, ignored"),
            Why::Unknown {
                similar: Some(name),
            } => write!(f, "unknown option, ignored (did you mean \"{name}\"?)"),
            Why::Malformed(what) => f.write_str(what),
            Why::NoEffect(reason) => write!(f, "no effect: {reason}"),
        }
    }
}
