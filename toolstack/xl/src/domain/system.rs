//! What the execution of a plan touches, as a trait: the real system, or one that fails where a test says so.

use crate::cfg::cpuid::Edit;
use crate::cmd::failure::Result;
use std::io;
use std::ops::Range;
use xen_abi::DomId;
use xen_sys::xen::NewDomain;
use xen_sys::xenstore::Client;

/// The hypervisor, other domains' memory, files, scripts and time. Errors of the hypervisor come as they are; the caller
/// says what was being done.
pub trait System {
    /// Makes a domain.
    fn create(&mut self, new: &NewDomain) -> io::Result<DomId>;
    /// Ends a domain.
    fn destroy(&mut self, domid: DomId) -> io::Result<()>;
    /// Stops it.
    fn pause(&mut self, domid: DomId) -> io::Result<()>;
    /// Lets it run.
    fn unpause(&mut self, domid: DomId) -> io::Result<()>;
    /// Makes vCPUs.
    fn vcpus(&mut self, domid: DomId, count: u32) -> io::Result<()>;
    /// Says where a vCPU runs.
    fn pin(
        &mut self,
        domid: DomId,
        vcpu: u32,
        hard: Option<&[u32]>,
        soft: Option<&[u32]>,
    ) -> io::Result<()>;
    /// Limits memory: KiB.
    fn max_memory(&mut self, domid: DomId, kib: u64) -> io::Result<()>;
    /// Makes a port for dom0 in the domain.
    fn port(&mut self, domid: DomId) -> io::Result<u32>;
    /// Sets a parameter.
    fn param(&mut self, domid: DomId, index: u32, value: u64) -> io::Result<()>;
    /// Chooses the kind of TSC.
    fn tsc(&mut self, domid: DomId, mode: u32) -> io::Result<()>;
    /// Sets the clock ahead.
    fn time_offset(&mut self, domid: DomId, seconds: i64) -> io::Result<()>;
    /// Gives memory for tables: bytes.
    fn paging(&mut self, domid: DomId, bytes: u64) -> io::Result<()>;
    /// Changes what CPUID says.
    ///
    /// # Errors
    /// If the hypervisor does not take it.
    fn cpuid(&mut self, domid: DomId, edits: &[Edit]) -> Result<()>;
    /// Sets pages aside.
    fn claim(&mut self, domid: DomId, pages: u64) -> io::Result<()>;
    /// Gives memory.
    fn populate(&mut self, domid: DomId, frames: Range<u64>) -> io::Result<()>;
    /// Tells the memory map.
    fn map(&mut self, domid: DomId, map: &[(u64, u64, u32)]) -> io::Result<()>;
    /// Writes into its memory, which is new: zero, and written once.
    fn write(&mut self, domid: DomId, address: u64, bytes: &[u8]) -> io::Result<()>;
    /// Its hardware state.
    fn context(&mut self, domid: DomId) -> io::Result<Vec<u8>>;
    /// Sets parts of it.
    fn set_context(&mut self, domid: DomId, records: &[u8]) -> io::Result<()>;
    /// Writes the start of its grant table.
    fn grants(&mut self, domid: DomId, entries: &[u8]) -> io::Result<()>;
    /// Sets its share of CPU time.
    fn weight(&mut self, domid: DomId, weight: Option<u16>, cap: Option<u16>) -> io::Result<()>;
    /// The store.
    ///
    /// # Errors
    /// If it is out of reach.
    fn store(&mut self) -> Result<&mut Client>;
    /// Waits until a node's value is what is wanted (`None`: it is not there), at most so many seconds; whether it came.
    ///
    /// # Errors
    /// If the store is out of reach.
    fn wait(
        &mut self,
        path: &str,
        wanted: &dyn Fn(Option<&str>) -> bool,
        seconds: u64,
    ) -> Result<bool>;
    /// Runs a hotplug script for a back end, if scripts are to be run. Whether one was run.
    ///
    /// # Errors
    /// If it fails.
    fn script(&mut self, script: &str, action: &str, backend: &str) -> Result<bool>;
    /// The number of a block device; `None` for other files.
    fn block_device(&mut self, path: &str) -> io::Result<Option<(u32, u32)>>;
    /// Writes a file as a whole.
    fn save(&mut self, path: &str, text: &str) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&mut self, path: &str) -> io::Result<()>;
    /// Seconds since 1970.
    fn now(&mut self) -> f64;
}
