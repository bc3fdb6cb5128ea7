//! From a config, facts about the host and a built image to a list of steps, pure.

use crate::build::{self, Image, PAGE, special};
use crate::cfg::cpuid::Edit;
use crate::cfg::domain::DomainConfig;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use xen_abi::domctl::{cdf, emu, misc};
use xen_abi::hvm::params::index;
use xen_sys::xen::NewDomain;

/// What must be known of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Node of each CPU.
    pub nodes: Vec<u32>,
    /// The hypervisor offers grant tables of version 2.
    pub grant_v2: bool,
    /// Number of the domain's pool.
    pub pool: u32,
}

/// A value that may only be known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// Known.
    Is(u64),
    /// Port of the connection to xenstored.
    StorePort,
    /// Port of the console.
    ConsolePort,
}

/// A step. Each has its counterpart in `execute`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the domain.
    Create(NewDomain),
    /// Write its part of the store.
    Skeleton,
    /// Make its vCPUs.
    Vcpus(u32),
    /// Say where a vCPU runs.
    Pin {
        /// Which.
        vcpu: u32,
        /// Only there.
        hard: Option<Vec<u32>>,
        /// Rather there.
        soft: Option<Vec<u32>>,
    },
    /// Limit its memory: KiB.
    MaxMemory(u64),
    /// Make the ports of store and console.
    Ports,
    /// Set a parameter: its name and number.
    Param(&'static str, u32, Later),
    /// Choose the kind of TSC.
    Tsc(u32),
    /// Set its clock ahead.
    TimeOffset(i64),
    /// Give memory for address-translation tables: bytes.
    Paging(u64),
    /// Change what CPUID says.
    Cpuid(Vec<Edit>),
    /// Set pages aside; 0 gives back what is left.
    Claim(u64),
    /// Give memory: frames.
    Populate(Range<u64>),
    /// Wait until the kernel is unpacked, which goes on meanwhile; what follows needs it.
    Unpacked,
    /// Tell the memory map.
    Map,
    /// Write a part of the image: its number.
    Write(usize, String),
    /// Set the state of the vCPUs.
    Start,
    /// Grant console and store pages.
    Grants,
    /// Set its share of CPU time.
    Weight(Option<u16>, Option<u16>),
    /// Complete its part of the store, and tell xenstored of it.
    Introduce,
    /// Make the console.
    Console,
    /// Add a disk: its number in the config.
    Disk(usize, String),
    /// Add an interface, likewise.
    Vif(usize),
    /// Keep the config for later commands.
    Keep,
    /// Wait until xenconsoled has made a terminal for it.
    Terminal,
    /// Let it run.
    Unpause,
}

/// KiB that a domain's limit is above its memory, for the pages that are no RAM.
const SLACK: u64 = 1024;

/// Makes the plan.
pub fn plan(config: &DomainConfig, host: &HostFacts, image: &Image<'_>, paused: bool) -> Vec<Step> {
    let mut steps = domain(config, host);
    steps.extend(self::image(config, image, paused));
    steps
}

/// The part that needs no image: a domain with memory.
pub fn domain(config: &DomainConfig, host: &HostFacts) -> Vec<Step> {
    let c = config;
    let mut flags = cdf::HVM | cdf::HAP;
    if !c.oos {
        flags |= cdf::OOS_OFF;
    }
    let best = if host.grant_v2 { 2 } else { 1 };
    let mut steps = vec![
        Step::Create(NewDomain {
            handle: c.uuid.unwrap_or_default(),
            flags,
            vcpus: c.maxvcpus,
            event_channels: c.limits.event_channels,
            grant_frames: c.limits.grant_frames,
            maptrack_frames: c.limits.maptrack_frames,
            grant_version: c.limits.grant_version.map_or(best, |v| v.min(best)),
            pool: host.pool,
            emulation: emu::LAPIC | if config.pirqs { emu::USE_PIRQ } else { 0 },
            misc: misc_flags(c),
        }),
        Step::Skeleton,
        Step::Vcpus(c.maxvcpus),
    ];
    for vcpu in 0..c.maxvcpus {
        // One list is for all vCPUs; of several each vCPU has its own, and the rest none.
        let of = |lists: &[crate::cfg::pins::CpuList]| match lists {
            [all] => Some(all.cpus(&host.nodes)),
            _ => lists.get(vcpu as usize).map(|l| l.cpus(&host.nodes)),
        };
        let (hard, soft) = (of(&c.cpus), of(&c.cpus_soft));
        if hard.is_some() || soft.is_some() {
            steps.push(Step::Pin { vcpu, hard, soft });
        }
    }
    steps.push(Step::MaxMemory(c.maxmem + SLACK));
    steps.push(Step::Ports);
    let timer = u64::from(c.time.timer_mode.unwrap_or(1));
    steps.push(Step::Param(
        "TIMER_MODE",
        index::TIMER_MODE,
        Later::Is(timer),
    ));
    steps.push(Step::Tsc(c.time.tsc_mode));
    if c.time.rtc_offset != 0 {
        steps.push(Step::TimeOffset(c.time.rtc_offset.into()));
    }
    // Xen's rule: a page for each MiB, and 1 MiB for each vCPU.
    let usual = 4 * (256 * u64::from(c.maxvcpus) + (c.maxmem >> 10));
    let paging = c.shadow_memory.unwrap_or(usual).next_multiple_of(4);
    steps.push(Step::Paging(paging << 10));
    if !c.cpuid.is_empty() {
        steps.push(Step::Cpuid(c.cpuid.clone()));
    }
    let frames = build::frames(c.memory << 10, c.maxvcpus);
    let pages: u64 = frames.iter().map(|r| r.end - r.start).sum();
    steps.push(Step::Claim(pages));
    steps.extend(frames.into_iter().map(Step::Populate));
    steps.push(Step::Claim(0));
    steps.push(Step::Unpacked);
    steps
}

/// The rest: what is in the memory, and the devices.
pub fn image(config: &DomainConfig, image: &Image<'_>, paused: bool) -> Vec<Step> {
    let c = config;
    let mut steps = vec![Step::Map];
    for (number, chunk) in image.chunks.iter().enumerate() {
        steps.push(Step::Write(number, format!("{chunk:?}")));
    }
    let pages = [
        ("STORE_PFN", index::STORE_PFN, special::XENSTORE),
        ("BUFIOREQ_PFN", index::BUFIOREQ_PFN, special::BUFFERED_IOREQ),
        ("IOREQ_PFN", index::IOREQ_PFN, special::IOREQ),
        ("CONSOLE_PFN", index::CONSOLE_PFN, special::CONSOLE),
        (
            "PAGING_RING_PFN",
            index::PAGING_RING_PFN,
            special::PAGING_RING,
        ),
        (
            "MONITOR_RING_PFN",
            index::MONITOR_RING_PFN,
            special::MONITOR_RING,
        ),
        (
            "SHARING_RING_PFN",
            index::SHARING_RING_PFN,
            special::SHARING_RING,
        ),
        ("IDENT_PT", index::IDENT_PT, special::IDENTITY * PAGE),
    ];
    for (name, number, value) in pages {
        steps.push(Step::Param(name, number, Later::Is(value)));
    }
    steps.push(Step::Param(
        "CONSOLE_EVTCHN",
        index::CONSOLE_EVTCHN,
        Later::ConsolePort,
    ));
    steps.push(Step::Param(
        "STORE_EVTCHN",
        index::STORE_EVTCHN,
        Later::StorePort,
    ));
    steps.push(Step::Start);
    steps.push(Step::Grants);
    if c.cpu_weight.is_some() || c.cap.is_some() {
        steps.push(Step::Weight(c.cpu_weight, c.cap));
    }
    steps.push(Step::Introduce);
    for (number, disk) in c.disks.iter().enumerate() {
        steps.push(Step::Disk(number, disk.vdev.clone()));
    }
    steps.push(Step::Console);
    steps.extend((0..c.vifs.len()).map(Step::Vif));
    steps.push(Step::Keep);
    steps.push(Step::Terminal);
    if !paused {
        steps.push(Step::Unpause);
    }
    steps
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(new) => write!(
                f,
                "create a PVH domain for {} vCPUs, event channels up to {}, grant tables up to version {}, in pool {}",
                new.vcpus, new.event_channels, new.grant_version, new.pool
            ),
            Step::Skeleton => f.write_str("write its part of xenstore"),
            Step::Vcpus(n) => write!(f, "make {n} vCPUs"),
            Step::Pin { vcpu, hard, soft } => {
                write!(f, "run vCPU {vcpu}")?;
                if let Some(cpus) = hard {
                    write!(f, " only on CPUs {cpus:?}")?;
                }
                if let Some(cpus) = soft {
                    write!(f, " rather on CPUs {cpus:?}")?;
                }
                Ok(())
            }
            Step::MaxMemory(kib) => write!(f, "limit its memory to {kib} KiB"),
            Step::Ports => f.write_str("make the event channels of xenstore and console"),
            Step::Param(name, number, value) => {
                write!(f, "set parameter {number} ({name}) to ")?;
                match value {
                    Later::Is(value) => write!(f, "{value:#x}"),
                    Later::StorePort => f.write_str("the port of xenstore"),
                    Later::ConsolePort => f.write_str("the port of the console"),
                }
            }
            Step::Tsc(mode) => write!(f, "choose TSC mode {mode}"),
            Step::TimeOffset(seconds) => write!(f, "set its clock {seconds} s ahead"),
            Step::Paging(bytes) => write!(f, "give {} KiB for its tables", bytes >> 10),
            Step::Cpuid(edits) => write!(
                f,
                "change what CPUID says in {} registers",
                edits
                    .iter()
                    .map(|e| (e.leaf, e.subleaf, e.register))
                    .collect::<BTreeSet<_>>()
                    .len()
            ),
            Step::Claim(0) => f.write_str("give back what is left of the claim"),
            Step::Claim(pages) => write!(f, "claim {pages} pages"),
            Step::Populate(frames) => write!(
                f,
                "populate {} pages from {:#x} on",
                frames.end - frames.start,
                frames.start * PAGE
            ),
            Step::Unpacked => f.write_str("wait until the kernel is unpacked"),
            Step::Map => f.write_str("tell the memory map"),
            Step::Write(_, what) => write!(f, "write {what}"),
            Step::Start => f.write_str("set the state in which its vCPUs start"),
            Step::Grants => f.write_str("grant the pages of console and xenstore"),
            Step::Weight(weight, cap) => {
                write!(
                    f,
                    "set its share of CPU time: weight {weight:?}, cap {cap:?}"
                )
            }
            Step::Introduce => f.write_str("complete its part of xenstore and introduce it"),
            Step::Console => f.write_str("add the console"),
            Step::Disk(_, name) => write!(f, "add disk {name}"),
            Step::Vif(number) => write!(f, "add network interface {number}"),
            Step::Keep => f.write_str("keep the config"),
            Step::Terminal => f.write_str("wait for its terminal"),
            Step::Unpause => f.write_str("let it run"),
        }
    }
}
fn misc_flags(c: &DomainConfig) -> u32 {
    [
        (c.msr_relaxed, misc::MSR_RELAXED),
        (!c.assisted_xapic, misc::NO_ASSISTED_XAPIC),
        (!c.assisted_x2apic, misc::NO_ASSISTED_X2APIC),
    ]
    .into_iter()
    .filter(|&(wanted, _)| wanted)
    .fold(0, |flags, (_, flag)| flags | flag)
}
