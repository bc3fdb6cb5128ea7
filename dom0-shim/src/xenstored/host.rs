//! What the store needs of the machine around it.

use xen_abi::{DomId, Errno};

/// What a domain is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DomainState {
    /// It exists and has not shut down.
    Running,
    /// It has shut down or crashed, and still exists.
    Shutdown,
    /// It is being destroyed, or does not exist.
    Gone,
}

/// Where a domain's ring is, as far as the store moves it: requests read, replies written.
pub type Indices = (u32, u32);

/// Rings, event channels and the hypervisor, or a stand-in for them.
pub trait Host {
    /// Maps a domain's ring page and binds its event channel. For the control domain the page is its kernel's.
    ///
    /// # Errors
    /// Why that cannot be.
    fn connect(&mut self, domid: DomId, gfn: u64, port: u32) -> Result<(), Errno>;

    /// Binds the event channel of a connected domain anew.
    ///
    /// # Errors
    /// Why that cannot be; the old binding is gone in any case.
    fn rebind(&mut self, domid: DomId, port: u32) -> Result<(), Errno>;

    /// Empties a connected domain's ring and tells the domain so if it waits for that.
    fn reset_ring(&mut self, domid: DomId);

    /// Where a connected domain's ring is.
    fn indices(&self, domid: DomId) -> Option<Indices>;

    /// Lets go of a domain's page and event channel.
    fn disconnect(&mut self, domid: DomId);

    /// What the hypervisor says of a domain.
    fn state(&mut self, domid: DomId) -> DomainState;

    /// One line for the administrator.
    fn log(&mut self, line: &str);
}
