//! The options' types. Each says what an option means, not how it is written.

use alloc::format;
use alloc::string::String;
use x86_model::pci::Bdf;

use super::value::{bad_size, integer, size};

/// Where log output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the devices'")]
pub struct Consoles {
    pub com1: bool,
    pub com2: bool,
    pub vga: bool,
    /// Whether the command line chose; else a console that is not there is no reason to warn.
    pub given: bool,
}

impl Default for Consoles {
    /// Xen's default, `com1,vga`.
    fn default() -> Self {
        Self {
            com1: true,
            com2: false,
            vga: true,
            given: false,
        }
    }
}

/// Severity of a message; each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the levels'")]
pub enum Level {
    None,
    Error,
    Warning,
    Info,
    /// Also written `all`.
    Debug,
}

/// A print threshold and a limit up to which messages pass but only at a bounded rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevels {
    /// Always printed up to here.
    pub print: Level,
    /// Printed at a bounded rate up to here.
    pub limited: Level,
}

impl LogLevels {
    /// Everything: the default of a build for developers (`CONFIG_DEBUG`), as in Xen.
    pub const ALL: Self = Self {
        print: Level::Debug,
        limited: Level::Debug,
    };
    /// Xen's default for its own messages, `warning`.
    pub const HYPERVISOR: Self = Self {
        print: Level::Warning,
        limited: Level::Warning,
    };
    /// Xen's default for guests' messages, `none/warning`.
    pub const GUEST: Self = Self {
        print: Level::None,
        limited: Level::Warning,
    };

    /// `level` or `level/limited`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let level = |name: &str| match name {
            "none" => Ok(Level::None),
            "error" => Ok(Level::Error),
            "warning" => Ok(Level::Warning),
            "info" => Ok(Level::Info),
            "debug" | "all" => Ok(Level::Debug),
            _ => Err(format!(
                "{name:?} is not a level (none, error, warning, info, debug, all)"
            )),
        };
        let (print, limited) = match text.split_once('/') {
            Some((print, limited)) => (level(print)?, level(limited)?),
            None => (level(text)?, level(text)?),
        };
        Ok(Self {
            print,
            limited: print.max(limited),
        })
    }
}

/// Prefix of each console line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// No prefix.
    None,
    /// Date and time.
    Date,
    /// Date and time with milliseconds.
    DateMs,
    /// Seconds and microseconds since boot.
    Boot,
    /// Clock ticks.
    Raw,
}

/// Display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vga {
    /// Keep writing to the display after dom0 has started.
    pub keep: bool,
    /// The mode was asked for by name, and only the current one is supported.
    pub text_rows: Option<u8>,
}

/// How to reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reboot {
    /// ACPI, keyboard controller, triple fault, in turn.
    Default,
    /// Do not reboot.
    No,
    /// ACPI reset register.
    Acpi,
    /// Keyboard controller.
    Kbd,
    /// Triple fault.
    Triple,
    /// PCI reset register, port 0xcf9.
    Pci,
    /// PCI reset register with power cycle.
    Power,
    /// Firmware's runtime service.
    Efi,
}

/// Watchdog against a CPU that makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// On.
    pub on: bool,
    /// On even where the hardware counter looks unreliable.
    pub force: bool,
    /// Seconds without progress before the machine is stopped.
    pub timeout_s: u32,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            on: false,
            force: false,
            timeout_s: 5,
        }
    }
}

/// An amount of memory: bytes, all but some bytes, a share of the machine, or a sum of a size and a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Written with a minus sign: what is there less [`Amount::bytes`].
    pub all_but: bool,
    /// Hundredths of what is there, to be added.
    pub percent: u8,
}

impl Amount {
    /// Bytes, if `available` bytes are there.
    pub fn resolve(&self, available: u64) -> u64 {
        let base = if self.all_but {
            available.saturating_sub(self.bytes)
        } else {
            self.bytes
        };
        // Split so that the product cannot overflow.
        let share = available / 100 * u64::from(self.percent)
            + available % 100 * u64::from(self.percent) / 100;
        base.saturating_add(share)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let percent = |part: &str| {
            part.strip_suffix('%')
                .and_then(integer)
                .and_then(|n| u8::try_from(n).ok())
                .filter(|&n| n <= 100)
        };
        if text.ends_with('%') && !text.contains('+') {
            return match percent(text) {
                Some(percent) => Ok(Self {
                    bytes: 0,
                    all_but: false,
                    percent,
                }),
                None => Err(format!("{text:?} is not a share of 0% to 100%")),
            };
        }
        let (amount, share) = match text.split_once('+') {
            Some((amount, share)) => (
                amount,
                percent(share).ok_or_else(|| format!("{share:?} is not a share of 0% to 100%"))?,
            ),
            None => (text, 0),
        };
        let (digits, all_but) = match amount.strip_prefix('-') {
            Some(digits) => (digits, true),
            None => (amount, false),
        };
        Ok(Self {
            bytes: size(digits).ok_or_else(|| bad_size(digits))?,
            all_but,
            percent: share,
        })
    }
}

/// `dom0_mem=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dom0Mem {
    /// Memory at start.
    pub initial: Option<Amount>,
    /// At least that much at start.
    pub min: Option<Amount>,
    /// At most that much, at start and later.
    pub max: Option<Amount>,
}

impl Dom0Mem {
    /// Reads a list of `size`, `min:size`, `max:size`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut new = Self::default();
        for item in text.split(',') {
            if let Some(rest) = item.strip_prefix("min:") {
                new.min = Some(Amount::parse(rest)?);
            } else if let Some(rest) = item.strip_prefix("max:") {
                new.max = Some(Amount::parse(rest)?);
            } else {
                new.initial = Some(Amount::parse(item)?);
            }
        }
        Ok(new)
    }
}

/// `dom0_max_vcpus=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuRange {
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}

impl Default for VcpuRange {
    /// As many as there are CPUs.
    fn default() -> Self {
        Self {
            min: 1,
            max: u32::MAX,
        }
    }
}

impl VcpuRange {
    /// Number of vCPUs on a machine with `cpus` CPUs: theirs, moved into the range; at least 1.
    pub fn resolve(&self, cpus: u32) -> u32 {
        cpus.max(self.min).min(self.max).max(1)
    }

    /// `n`, `min-max`, `min-` or `-max`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            integer(part)
                .and_then(|n| u32::try_from(n).ok())
                .filter(|&n| n > 0)
                .ok_or_else(|| format!("{part:?} is not a number of CPUs"))
        };
        let range = match text.split_once('-') {
            None => {
                let n = number(text)?;
                Self { min: n, max: n }
            }
            Some((min, max)) => Self {
                min: if min.is_empty() { 1 } else { number(min)? },
                max: if max.is_empty() {
                    u32::MAX
                } else {
                    number(max)?
                },
            },
        };
        if range.min > range.max {
            return Err(format!("{text:?}: the lower end is above the upper"));
        }
        Ok(range)
    }
}

/// `tbuf_size=` and `tevt_mask=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSetup {
    /// Pages of each CPU's trace buffer; 0 makes none.
    pub pages: u32,
    /// Events that are recorded from the start; 0 waits until a tool switches tracing on.
    pub events: u32,
}

/// `dom0=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dom0Mode {
    /// Print each step of building dom0.
    pub verbose: bool,
    /// Map unknown device memory on first touch.
    pub pf_fixup: bool,
    /// dom0 may have its devices' interrupts as event channels.
    pub hvm_pirq: bool,
    /// Answer reads of unknown MSRs with 0 instead of a fault.
    pub msr_relaxed: bool,
}

impl Default for Dom0Mode {
    fn default() -> Self {
        Self {
            verbose: false,
            pf_fixup: true,
            msr_relaxed: false,
            hvm_pirq: false,
        }
    }
}

/// How application processors are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApBringup {
    /// All at once.
    Parallel,
    /// One after the other.
    Serial,
}

/// What a starting CPU does wrong on purpose, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApFault {
    /// Hangs before it has trap handlers.
    Deaf,
    /// Hangs later.
    Hang,
    /// Panics.
    Panic,
    /// Reports when it was given up.
    Late,
}

pub use x86_model::interrupt::mode::X2apicMode;

/// Detail of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the levels'")]
pub enum Verbosity {
    Quiet,
    Verbose,
    Debug,
}

/// Use of ACPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acpi {
    /// Not used at all.
    pub off: bool,
    /// Used only to find CPUs.
    pub ht: bool,
    /// IO-APIC entries not used.
    pub noirq: bool,
    /// Used although the machine is known for a broken one.
    pub force: bool,
    /// A line per processor and table.
    pub verbose: bool,
}

/// One `ivrs_ioapic[<id>]=[<segment>:]<bus>:<device>.<function>`, numbers in hexadecimal but for the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApicSource {
    /// ACPI id of the IO-APIC.
    pub id: u8,
    /// The function that its interrupts come from.
    pub source: Bdf,
}

impl IoApicSource {
    /// Reads index and value.
    pub fn parse(index: Option<&str>, value: &str) -> Result<Self, String> {
        let id = index
            .and_then(super::value::integer)
            .and_then(|n| u8::try_from(n).ok())
            .ok_or("needs the IO-APIC's ACPI id, 0 to 255, in brackets")?;
        let source = pci_address(value)
            .ok_or_else(|| format!("{value:?} is not [segment:]bus:device.function"))?;
        Ok(Self { id, source })
    }
}

/// `[segment:]bus:device.function` in hexadecimal, within the fields' ranges.
fn pci_address(text: &str) -> Option<Bdf> {
    let hex = |t: &str, most: u16| {
        let digits = (1..=4).contains(&t.len()) && t.bytes().all(|c| c.is_ascii_hexdigit());
        u16::from_str_radix(t, 16)
            .ok()
            .filter(|&n| digits && n <= most)
    };
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (segment, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    Some(Bdf {
        segment: hex(segment, u16::MAX)?,
        bus: hex(bus, 0xff)? as u8,
        devfn: (hex(device, 0x1f)? << 3 | hex(function, 7)?) as u8,
    })
}

/// `iommu=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iommu {
    /// Use an IOMMU if there is one.
    pub on: bool,
    /// Refuse to boot without.
    pub required: bool,
    /// Interrupt remapping.
    pub intremap: bool,
    /// Interrupt posting (Intel).
    pub intpost: bool,
    /// Queued invalidation (Intel).
    pub qinval: bool,
    /// Messages.
    pub verbosity: Verbosity,
}

impl Default for Iommu {
    fn default() -> Self {
        Self {
            on: true,
            required: false,
            intremap: true,
            intpost: false,
            qinval: true,
            verbosity: Verbosity::Quiet,
        }
    }
}

/// The scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Weighted fair shares.
    Credit2,
    /// One vCPU per CPU, never moved.
    Null,
}
