//! What a config file says, with Xen's defaults filled in.

use super::cpuid::Edit;
use super::disk::Disk;
use super::pins::CpuList;
use super::vif::Vif;

/// A domain to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// Name, not empty.
    pub name: String,
    /// Identity; `None`: one is made up.
    pub uuid: Option<[u8; 16]>,
    /// Pool of CPUs, by name or number.
    pub pool: Option<String>,
    /// Program that finds the kernel on the first disk.
    pub bootloader: Option<BootLoader>,
    /// Kernel file; empty only if there is such a program.
    pub kernel: String,
    /// RAM disk file.
    pub ramdisk: Option<String>,
    /// Kernel command line.
    pub cmdline: String,
    /// KiB to start with.
    pub memory: u64,
    /// KiB at most; at least `memory`.
    pub maxmem: u64,
    /// KiB for address-translation tables, if not the usual.
    pub shadow_memory: Option<u64>,
    /// Number of vCPUs that are online at the start.
    pub vcpus: u32,
    /// Number of vCPUs at most; at least `vcpus`.
    pub maxvcpus: u32,
    /// Where they may run: one list for all, or one per vCPU.
    pub cpus: Vec<CpuList>,
    /// Where they should run.
    pub cpus_soft: Vec<CpuList>,
    /// What CPUID says differently to it.
    pub cpuid: Vec<Edit>,
    /// Share of CPU time.
    pub cpu_weight: Option<u16>,
    /// Per cent of a CPU at most; 0: no limit.
    pub cap: Option<u16>,
    /// What happens when it stops.
    pub actions: Actions,
    /// Disks in order.
    pub disks: Vec<Disk>,
    /// Network interfaces in order.
    pub vifs: Vec<Vif>,
    /// Limits.
    pub limits: Limits,
    /// Clock and timers.
    pub time: Time,
    /// `nomigrate`.
    pub no_migrate: bool,
    /// `driver_domain`.
    pub driver_domain: bool,
    /// `msr_relaxed`.
    pub msr_relaxed: bool,
    /// `assisted_xapic`.
    pub assisted_xapic: bool,
    /// `assisted_x2apic`.
    pub assisted_x2apic: bool,
    /// `hvm_pirq`.
    pub pirqs: bool,
    /// `oos`.
    pub oos: bool,
}

/// A program that finds a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootLoader {
    /// With or without a directory.
    pub program: String,
    /// Words for it.
    pub args: Vec<String>,
}

/// Limits of a domain; `None`: the hypervisor's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of its grant table.
    pub grant_frames: Option<u32>,
    /// Pages of its table of mapped grants.
    pub maptrack_frames: Option<u32>,
    /// Version of its grant table.
    pub grant_version: Option<u32>,
    /// Highest event channel.
    pub event_channels: u32,
}

/// Clock and timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Its clock shows local time.
    pub localtime: bool,
    /// Seconds that it is ahead.
    pub rtc_offset: i32,
    /// Number of `tsc_mode`.
    pub tsc_mode: u32,
    /// Number of `timer_mode`.
    pub timer_mode: Option<u32>,
}

/// What to do with a domain that stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Free everything.
    Destroy,
    /// Build it again.
    Restart,
    /// Keep the old one under another name, and build it again.
    RenameRestart,
    /// Keep it.
    Preserve,
    /// Write its memory to a file, then destroy it.
    CoredumpDestroy,
    /// Write its memory to a file, then build it again.
    CoredumpRestart,
    /// Let it start again within its own memory.
    SoftReset,
}

impl Action {
    /// As written.
    pub const NAMES: &'static [(&'static str, Action)] = &[
        ("destroy", Action::Destroy),
        ("restart", Action::Restart),
        ("rename-restart", Action::RenameRestart),
        ("preserve", Action::Preserve),
        ("coredump-destroy", Action::CoredumpDestroy),
        ("coredump-restart", Action::CoredumpRestart),
        ("soft-reset", Action::SoftReset),
    ];

    /// From what is written.
    pub fn from_name(name: &str) -> Option<Action> {
        Self::NAMES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, a)| *a)
    }

    /// As written.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, a)| *a == self);
        found.map_or("destroy", |(n, _)| n)
    }
}

/// By reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actions {
    /// It powered off.
    pub poweroff: Action,
    /// It asked to be started anew.
    pub reboot: Action,
    /// Its watchdog bit.
    pub watchdog: Action,
    /// It crashed.
    pub crash: Action,
    /// It asked to be reset in place.
    pub soft_reset: Action,
}

impl Default for Actions {
    fn default() -> Actions {
        Actions {
            poweroff: Action::Destroy,
            reboot: Action::Restart,
            watchdog: Action::Destroy,
            crash: Action::Destroy,
            soft_reset: Action::SoftReset,
        }
    }
}

/// Whether a domain can be called so: commands take digits for a number, and the store takes slashes for directories.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.contains('/')
        && !name.bytes().all(|b| b.is_ascii_digit())
}

/// As text with hyphens.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// From text with or without hyphens.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut uuid = [0; 16];
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}
