//! What one VM test is made of.

use vmtest::acpi::Table;
use vmtest::machine::Firmware;

/// The line that dom0's init prints when the system is usable.
pub const READY: &str = "XENOLITH-DOM0-READY";

/// Texts that end a test at once, whatever it waits for.
pub const FATAL: &[&str] = &[
    "Kernel panic - not syncing",
    "BUG: ",
    "Oops: ",
    "(XEN) Panic on CPU",
    // The machine boots again then, and the test would begin anew.
    "(XEN) Hardware Dom0 crashed",
    "(XEN) Hardware Dom0 halted",
    "panic inside the panic path",
    "error: you need to load the kernel first",
    "Xenolith cannot start",
];

/// What ends a test that waits for Linux as dom0: a kernel that was built for guests would go on, without a word.
pub const NOT_DOM0: &str = "dom0's kernel looks for the console of a guest";

/// How much time a run may take; a run includes the levels below its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The few tests that show most: seconds to two minutes.
    Quick,
    /// What every change must pass: within half an hour on two cores.
    Normal,
    /// Everything.
    Full,
}

/// One thing that happens in a test, in order.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// This text must appear.
    See(&'static str),
    /// This text must appear, followed by a number that is no less than this.
    AtLeast(&'static str, u64),
    /// This is typed.
    Type(&'static str),
}

/// How a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The machine is killed once everything was seen.
    Kill,
    /// The machine must switch itself off.
    PowerOff,
}

/// A Debian release whose unmodified toolstack is in dom0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debian {
    /// Debian 12 with the tools of Xen 4.17, in dom0's root.
    Twelve,
    /// Debian 13 with the tools of Xen 4.20, as a root of its own in `/debian-13`.
    Thirteen,
}

/// A test.
#[derive(Clone, Debug)]
pub struct VmTest {
    /// `area/question`.
    pub name: String,
    /// From which level on it runs.
    pub level: Level,
    /// Name of the machine file.
    pub machine: &'static str,
    /// Number of CPUs.
    pub cpus: u32,
    /// Firmware.
    pub firmware: Firmware,
    /// Series of dom0's kernel.
    pub kernel: &'static str,
    /// The micro-guest that runs as dom0 instead of the kernel.
    pub guest: Option<&'static str>,
    /// Added to the hypervisor's command line.
    pub cmdline: &'static str,
    /// Added to dom0's command line.
    pub dom0_cmdline: &'static str,
    /// More QEMU arguments; `{disk}` stands for the test disk.
    pub devices: &'static [&'static str],
    /// Size of the test disk in MiB, 0 for none.
    pub disk_mib: u32,
    /// Script that dom0 runs.
    pub script: Option<&'static str>,
    /// What happens on the console, before the script's result.
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: End,
    /// Seconds on top of the machine's time-out.
    pub extra_time: u64,
    /// QEMU loads the hypervisor itself, through the PVH entry.
    pub direct: bool,
    /// How many times in a row it must pass.
    pub repeat: u32,
    /// Firmware tables in the place of the machine's own; not with `direct`, which has no GRUB to load them.
    pub tables: &'static [Table],
    /// Only makes sense with a hypervisor below.
    pub needs_xen: bool,
    /// An environment variable without which it is skipped, and what that stands for.
    pub needs_var: Option<(&'static str, &'static str)>,
    /// dom0 has our programs; with Debian's toolstack beside them, they are in `/ours`.
    pub tools: bool,
    /// dom0 is run by our init and services, and has a guest.
    pub system: bool,
    /// dom0 has Debian's toolstack, and a guest.
    pub debian: Option<Debian>,
    /// dom0, run by our init, has the micro-guests too, in `/guest/micro`.
    pub micro: bool,
    /// dom0 is a Debian 12 on a disk, as its installer leaves it, with this source tree and its programs on another one.
    pub installed: bool,
    /// The named configuration that is booted instead of the usual build.
    pub defconfig: Option<&'static str>,
}

impl VmTest {
    /// A test that boots the 6.1 kernel on a two-CPU q35 machine with BIOS, and looks at nothing yet.
    pub fn new(name: impl Into<String>, level: Level) -> Self {
        Self {
            name: name.into(),
            level,
            machine: "q35",
            cpus: 2,
            firmware: Firmware::Bios,
            kernel: "6.1",
            guest: None,
            cmdline: "",
            dom0_cmdline: "",
            devices: &[],
            disk_mib: 0,
            script: None,
            steps: Vec::new(),
            end: End::Kill,
            extra_time: 0,
            direct: false,
            repeat: 1,
            tables: &[],
            needs_xen: false,
            needs_var: None,
            tools: false,
            system: false,
            debian: None,
            micro: false,
            installed: false,
            defconfig: None,
        }
    }

    /// With this many CPUs.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// With our programs in dom0.
    pub fn tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// With our init, services and a guest in dom0.
    pub fn system(mut self) -> Self {
        self.system = true;
        self
    }

    /// With a Debian 12 on a disk as dom0.
    pub fn installed(mut self) -> Self {
        self.installed = true;
        self
    }

    /// With the micro-guests in dom0.
    pub fn micro(mut self) -> Self {
        self.micro = true;
        self
    }

    /// With Debian 12's toolstack and a guest in dom0.
    pub fn debian(mut self) -> Self {
        self.debian = Some(Debian::Twelve);
        self
    }

    /// With Debian 13's toolstack and a guest in dom0.
    pub fn debian_13(mut self) -> Self {
        self.debian = Some(Debian::Thirteen);
        self
    }

    /// With this dom0 kernel.
    pub fn kernel(mut self, series: &'static str) -> Self {
        self.kernel = series;
        self
    }

    /// With this micro-guest as dom0.
    pub fn guest(mut self, name: &'static str) -> Self {
        self.guest = Some(name);
        self
    }

    /// On this machine.
    pub fn machine(mut self, name: &'static str) -> Self {
        self.machine = name;
        self
    }

    /// With EFI firmware.
    pub fn efi(mut self) -> Self {
        self.firmware = Firmware::Efi;
        self
    }

    /// With these devices.
    pub fn devices(mut self, args: &'static [&'static str]) -> Self {
        self.devices = args;
        self
    }

    /// With a test disk of this size.
    pub fn disk(mut self, mib: u32) -> Self {
        self.disk_mib = mib;
        self
    }

    /// With this script in dom0.
    pub fn script(mut self, name: &'static str) -> Self {
        self.script = Some(name);
        self
    }

    /// With this on dom0's command line.
    pub fn dom0_cmdline(mut self, line: &'static str) -> Self {
        self.dom0_cmdline = line;
        self
    }

    /// With this on the hypervisor's command line.
    pub fn cmdline(mut self, line: &'static str) -> Self {
        self.cmdline = line;
        self
    }

    /// With these events on the console.
    pub fn steps(mut self, steps: &[Step]) -> Self {
        self.steps = steps.to_vec();
        self
    }

    /// Must switch itself off at the end.
    pub fn powers_off(mut self) -> Self {
        self.end = End::PowerOff;
        self
    }

    /// May take longer.
    pub fn extra_time(mut self, seconds: u64) -> Self {
        self.extra_time = seconds;
        self
    }

    /// Loaded by QEMU instead of GRUB.
    pub fn direct(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Must pass this many times in a row.
    pub fn repeat(mut self, times: u32) -> Self {
        self.repeat = times;
        self
    }

    /// With these firmware tables.
    pub fn tables(mut self, tables: &'static [Table]) -> Self {
        self.tables = tables;
        self
    }

    /// Boots the build of a named configuration.
    pub fn defconfig(mut self, name: &'static str) -> Self {
        self.defconfig = Some(name);
        self
    }

    /// Is skipped unless this environment variable is set; `what` says what is missing then.
    pub fn needs_var(mut self, name: &'static str, what: &'static str) -> Self {
        self.needs_var = Some((name, what));
        self
    }

    /// Is skipped without a hypervisor.
    pub fn needs_xen(mut self) -> Self {
        self.needs_xen = true;
        self
    }
}
