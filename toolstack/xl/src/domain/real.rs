//! The real system.

use super::system::System;
use crate::cfg::cpuid::{self, Edit};
use crate::cmd::Failure;
use crate::cmd::failure::Result;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use xen_abi::sysctl::cpu_policy;
use xen_abi::{DomId, Errno};
use xen_sys::bits::BitSet;
use xen_sys::foreign::ForeignMemory;
use xen_sys::loopdev;
use xen_sys::xen::{NewDomain, Weight, Xen};
use xen_sys::xenstore::{Client, Transaction};

/// Devices and connections.
pub struct Real {
    /// The hypervisor.
    pub xen: Xen,
    memory: ForeignMemory,
    store: Client,
}

impl Real {
    /// Opens everything.
    ///
    /// # Errors
    /// If this is not a control domain, or xenstored does not run.
    pub fn open() -> Result<Real> {
        let missing = |e: io::Error| {
            Failure::new(format!(
                "/dev/xen/privcmd: {e}; is this the control domain, and is the module xen-privcmd loaded?"
            ))
        };
        Ok(Real {
            xen: Xen::open().map_err(missing)?,
            memory: ForeignMemory::open().map_err(missing)?,
            store: crate::cmd::domain_arg::store()?,
        })
    }
}

impl Real {
    /// Connects to xenstored again, which may take a moment to come back.
    ///
    /// # Errors
    /// If it has not come back in the given time.
    pub fn reconnect(&mut self, patience: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            match crate::cmd::domain_arg::store() {
                Ok(store) => {
                    self.store = store;
                    return Ok(());
                }
                Err(failure) if start.elapsed() >= patience => return Err(failure),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

fn set(numbers: Option<&[u32]>, bound: u32) -> Option<BitSet> {
    let mut set = BitSet::new(bound);
    numbers?.iter().for_each(|n| set.insert(*n));
    Some(set)
}

impl System for Real {
    fn create(&mut self, new: &NewDomain) -> io::Result<DomId> {
        self.xen.create(new)
    }

    fn destroy(&mut self, domid: DomId) -> io::Result<()> {
        match self.xen.destroy(domid) {
            Err(e) if xen_sys::errno_of(&e) == Some(Errno::ESRCH as i32) => Ok(()),
            other => other,
        }
    }

    fn pause(&mut self, domid: DomId) -> io::Result<()> {
        self.xen.pause(domid)
    }

    fn unpause(&mut self, domid: DomId) -> io::Result<()> {
        self.xen.unpause(domid)
    }

    fn vcpus(&mut self, domid: DomId, count: u32) -> io::Result<()> {
        self.xen.make_vcpus(domid, count)
    }

    fn pin(
        &mut self,
        domid: DomId,
        vcpu: u32,
        hard: Option<&[u32]>,
        soft: Option<&[u32]>,
    ) -> io::Result<()> {
        let bound = self.xen.cpu_bound()?;
        let (hard, soft) = (set(hard, bound), set(soft, bound));
        self.xen
            .set_affinity(domid, vcpu, hard.as_ref(), soft.as_ref(), false)
            .map(drop)
    }

    fn max_memory(&mut self, domid: DomId, kib: u64) -> io::Result<()> {
        self.xen.set_max_memory(domid, kib)
    }

    fn port(&mut self, domid: DomId) -> io::Result<u32> {
        self.xen.alloc_unbound(domid, DomId::DOM0)
    }

    fn param(&mut self, domid: DomId, index: u32, value: u64) -> io::Result<()> {
        self.xen.set_param(domid, index, value)
    }

    fn tsc(&mut self, domid: DomId, mode: u32) -> io::Result<()> {
        self.xen.set_tsc_mode(domid, mode)
    }

    fn time_offset(&mut self, domid: DomId, seconds: i64) -> io::Result<()> {
        self.xen.set_time_offset(domid, seconds)
    }

    fn paging(&mut self, domid: DomId, bytes: u64) -> io::Result<()> {
        self.xen.set_paging_pool(domid, bytes)
    }

    fn cpuid(&mut self, domid: DomId, edits: &[Edit]) -> Result<()> {
        let mut guests = self.xen.cpu_policy(cpu_policy::HVM_DEFAULT)?;
        let host = self.xen.cpu_policy(cpu_policy::HOST)?;
        cpuid::apply(edits, &mut guests, &host).map_err(Failure::new)?;
        Ok(self.xen.set_cpu_policy(domid, &guests)?)
    }

    fn claim(&mut self, domid: DomId, pages: u64) -> io::Result<()> {
        self.xen.claim(domid, pages)
    }

    fn populate(&mut self, domid: DomId, frames: Range<u64>) -> io::Result<()> {
        self.xen.populate(domid, frames)
    }

    fn map(&mut self, domid: DomId, map: &[(u64, u64, u32)]) -> io::Result<()> {
        self.xen.set_memory_map(domid, map)
    }

    fn write(&mut self, domid: DomId, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_fresh(domid, address, bytes)
    }

    fn context(&mut self, domid: DomId) -> io::Result<Vec<u8>> {
        self.xen.context(domid)
    }

    fn set_context(&mut self, domid: DomId, records: &[u8]) -> io::Result<()> {
        self.xen.set_context(domid, records)
    }

    fn grants(&mut self, domid: DomId, entries: &[u8]) -> io::Result<()> {
        self.memory.write_grants(domid, entries)
    }

    fn weight(&mut self, domid: DomId, weight: Option<u16>, cap: Option<u16>) -> io::Result<()> {
        let scheduler = self.xen.scheduler()?;
        let old = self.xen.weight(domid, scheduler)?;
        let share = Weight {
            weight: weight.unwrap_or(old.weight),
            cap: cap.unwrap_or(old.cap),
        };
        self.xen.set_weight(domid, scheduler, share)
    }

    fn store(&mut self) -> Result<&mut Client> {
        Ok(&mut self.store)
    }

    fn wait(
        &mut self,
        path: &str,
        wanted: &dyn Fn(Option<&str>) -> bool,
        seconds: u64,
    ) -> Result<bool> {
        let until = Instant::now() + Duration::from_secs(seconds);
        // The first event comes at once.
        self.store.watch(path, "xl-wait")?;
        let found = loop {
            let value = self.store.read(Transaction::NONE, path).ok();
            let value = value.map(|v| String::from_utf8_lossy(&v).into_owned());
            if wanted(value.as_deref()) {
                break true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                break false;
            };
            self.store.event(Some(left))?;
        };
        self.store.unwatch(path, "xl-wait")?;
        Ok(found)
    }

    fn script(&mut self, script: &str, action: &str, backend: &str) -> Result<bool> {
        if !Path::new(script).exists() {
            return Ok(false);
        }
        let kind = backend.split('/').nth(1).unwrap_or_default();
        let mut command = Command::new(script);
        command
            .arg(action)
            .env("script", script)
            .env("XENBUS_TYPE", kind)
            .env("XENBUS_PATH", backend)
            .env("XENBUS_BASE_PATH", "backend")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        if kind == "vif" {
            let mut numbers = backend.rsplit('/');
            let (devid, domid) = (numbers.next(), numbers.next());
            let name = format!("vif{}.{}", domid.unwrap_or(""), devid.unwrap_or(""));
            command
                .arg("type_if=vif")
                .env("vif", &name)
                .env("netdev", &name);
        }
        let output = command
            .output()
            .map_err(|e| Failure::new(format!("{script}: {e}")))?;
        if output.status.success() {
            return Ok(true);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("no message").to_owned();
        let message = format!("{script} {action} {backend} failed: {last}");
        Err(Failure::new(message))
    }

    fn block_device(&mut self, path: &str) -> io::Result<Option<(u32, u32)>> {
        Ok(loopdev::block_device(Path::new(path))?.map(|n| (n.major, n.minor)))
    }

    fn save(&mut self, path: &str, text: &str) -> io::Result<()> {
        if let Some(dir) = Path::new(path).parent() {
            std::fs::create_dir_all(dir)?;
        }
        let new = format!("{path}.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, path)
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn now(&mut self) -> f64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    }
}
