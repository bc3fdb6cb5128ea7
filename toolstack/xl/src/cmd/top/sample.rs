//! One look at the system.

use super::super::failure::Result;
use super::super::host::Host;
use super::super::list;
use std::path::Path;
use std::time::Instant;
use xen_abi::DomId;

/// Everything, at one moment.
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Time of day in s.
    pub clock: u64,
    /// Of the hypervisor.
    pub version: String,
    /// In KiB.
    pub memory: u64,
    /// In KiB.
    pub free: u64,
    pub cpus: u32,
    pub mhz: u32,
    /// In the order of their numbers.
    pub domains: Vec<Domain>,
}

/// A domain.
#[derive(Clone, Default, Debug)]
pub struct Domain {
    pub domid: u16,
    pub name: String,
    pub state: &'static str,
    pub reason: Option<&'static str>,
    /// ns.
    pub cpu_time: u64,
    /// In KiB.
    pub memory: u64,
    /// In KiB; `None`: no limit.
    pub max_memory: Option<u64>,
    pub ssidref: u32,
    /// ns of each vCPU.
    pub vcpus: Vec<u64>,
    pub networks: Vec<Traffic>,
    pub disks: Vec<Requests>,
}

/// Bytes through a network interface, as the domain sees them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Traffic {
    pub devid: u32,
    pub sent: u64,
    pub received: u64,
}

/// Requests of a disk.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Requests {
    pub devid: u32,
    /// Times that all were in use.
    pub out_of: u64,
    pub reads: u64,
    pub writes: u64,
    pub sectors_read: u64,
    pub sectors_written: u64,
}

/// What this kernel knows of the devices that it serves.
pub trait Kernel {
    /// A file of sysfs as a number.
    fn number(&self, path: &str) -> Option<u64>;
    /// The names in a directory.
    fn names(&self, path: &str) -> Vec<String>;
}

/// The kernel below this program.
pub struct Linux;

impl Kernel for Linux {
    fn number(&self, path: &str) -> Option<u64> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(Path::new(path)).into_iter().flatten();
        let names = entries.flatten().map(|e| e.file_name());
        names.filter_map(|n| n.into_string().ok()).collect()
    }
}

impl Sample {
    /// Looks.
    pub fn take(host: &mut Host, kernel: &dyn Kernel) -> Result<Sample> {
        let machine = host.xen.physinfo()?;
        let version = host.xen.version()?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut domains = Vec::new();
        for d in host.xen.domains()? {
            let domid = d.id();
            let limit = d.0.max_pages.saturating_mul(4);
            let times = (0..d.vcpus()).map(|v| {
                // It may have ended meanwhile.
                host.xen.vcpu(domid, v).map_or(0, |v| v.cpu_time)
            });
            let vcpus = times.collect();
            domains.push(Domain {
                domid: domid.0,
                name: host.name(domid),
                state: list::state(&d),
                reason: d.shutdown_reason().map(list::reason_name),
                cpu_time: d.0.cpu_time,
                memory: d.memory_kib(),
                max_memory: (limit < u64::MAX >> 12).then_some(limit),
                ssidref: d.0.ssidref,
                vcpus,
                networks: networks(kernel, domid),
                disks: disks(kernel, domid),
            });
        }
        Ok(Sample {
            at: Instant::now(),
            clock: now.map_or(0, |n| n.as_secs()),
            version: format!("{}.{}{}", version.major, version.minor, version.extra),
            memory: machine.total_pages.saturating_mul(4),
            free: machine.free_pages.saturating_mul(4),
            cpus: machine.nr_cpus,
            mhz: machine.cpu_khz / 1000,
            domains,
        })
    }
}

/// The ends of its interfaces are interfaces here, called `vifDOMID.DEVID`.
fn networks(kernel: &dyn Kernel, domid: DomId) -> Vec<Traffic> {
    let prefix = format!("vif{}.", domid.0);
    let names = kernel.names("/sys/class/net");
    let ids = names
        .iter()
        .filter_map(|n| n.strip_prefix(&prefix)?.parse().ok());
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    let traffic = |devid| {
        let base = format!("/sys/class/net/{prefix}{devid}/statistics");
        let bytes = |name| kernel.number(&format!("{base}/{name}")).unwrap_or(0);
        // What is received here was sent there.
        Traffic {
            devid,
            sent: bytes("rx_bytes"),
            received: bytes("tx_bytes"),
        }
    };
    ids.into_iter().map(traffic).collect()
}

/// The ends of its disks are devices here, called `vbd-DOMID-DEVID`.
fn disks(kernel: &dyn Kernel, domid: DomId) -> Vec<Requests> {
    let directory = "/sys/bus/xen-backend/devices";
    let prefix = format!("vbd-{}-", domid.0);
    let names = kernel.names(directory);
    let ids = names
        .iter()
        .filter_map(|n| n.strip_prefix(&prefix)?.parse().ok());
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    let requests = |devid| {
        let base = format!("{directory}/{prefix}{devid}/statistics");
        let count = |name| kernel.number(&format!("{base}/{name}")).unwrap_or(0);
        Requests {
            devid,
            out_of: count("oo_req"),
            reads: count("rd_req"),
            writes: count("wr_req"),
            sectors_read: count("rd_sect"),
            sectors_written: count("wr_sect"),
        }
    };
    ids.into_iter().map(requests).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::Fixture;
    use super::super::super::host::Host;
    use super::{Kernel, Requests, Sample, Traffic};

    struct Sysfs;

    impl Kernel for Sysfs {
        fn number(&self, path: &str) -> Option<u64> {
            match path {
                "/sys/class/net/vif3.0/statistics/rx_bytes" => Some(100),
                "/sys/class/net/vif3.0/statistics/tx_bytes" => Some(200),
                "/sys/bus/xen-backend/devices/vbd-3-51712/statistics/rd_req" => Some(7),
                "/sys/bus/xen-backend/devices/vbd-3-51712/statistics/wr_sect" => Some(9),
                _ => None,
            }
        }

        fn names(&self, path: &str) -> Vec<String> {
            let names: &[&str] = match path {
                "/sys/class/net" => &["lo", "vif3.0", "vif33.0", "vif3.x", "vif0.0"],
                _ => &["vbd-3-51712", "vbd-33-1", "vif-3-0"],
            };
            names.iter().map(|n| n.to_string()).collect()
        }
    }

    #[test]
    fn devices_of_a_domain_are_found_and_seen_from_its_side() {
        let _f = Fixture::new();
        let sample = Sample::take(&mut Host::open().unwrap(), &Sysfs).unwrap();
        let web = &sample.domains[1];
        let traffic = Traffic {
            devid: 0,
            sent: 100,
            received: 200,
        };
        assert_eq!(web.networks, [traffic]);
        let requests = Requests {
            devid: 51712,
            reads: 7,
            sectors_written: 9,
            ..Requests::default()
        };
        assert_eq!(web.disks, [requests]);
        assert_eq!(
            (sample.memory, sample.free, sample.cpus),
            (4_194_304, 1_048_576, 4)
        );
        assert_eq!(sample.domains[0].vcpus[1], 1_250_000_000);
    }
}
