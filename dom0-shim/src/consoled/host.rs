//! What the daemon needs of the machine around it.

use super::nodes::Nodes;
use crate::shared::BoxedPage;
use std::io;
use xen_abi::DomId;
use xen_sys::evtchn::LocalPort;

/// A terminal for one guest, never waiting.
pub trait Terminal {
    /// Its path, for `console/tty`.
    fn path(&self) -> &str;

    /// Gives it output; how many bytes it took, perhaps none.
    ///
    /// # Errors
    /// It does not work any more.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Takes what was typed; how many bytes, perhaps none.
    ///
    /// # Errors
    /// It does not work any more.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Bytes of output that nobody has read yet.
    fn unread(&self) -> usize;
}

/// Where a copy of a guest's output is kept.
pub trait Log {
    /// Adds bytes. What cannot be written is lost: a full disk must not stop a guest's console.
    fn write(&mut self, bytes: &[u8]);

    /// Begins the file anew if it was moved away.
    fn reopen(&mut self);
}

/// The store, Xen, terminals and files, or a stand-in for them.
pub trait Host {
    /// What terminals are here.
    type Terminal: Terminal;

    /// Domains that the store has a directory of.
    fn domains(&mut self) -> Vec<DomId>;

    /// Whether the hypervisor still has the domain and it is not being destroyed.
    fn exists(&mut self, domid: DomId) -> bool;

    /// What the store says of a domain's console.
    fn nodes(&mut self, domid: DomId) -> Option<Nodes>;

    /// The domain's name; its number in words if it has none.
    fn name(&mut self, domid: DomId) -> String;

    /// Asks to be told when the console nodes change.
    fn watch(&mut self, domid: DomId);

    /// Takes that back.
    fn unwatch(&mut self, domid: DomId);

    /// Tells everyone where the terminal is.
    fn publish(&mut self, domid: DomId, terminal: &str);

    /// Maps a console page.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn map(&mut self, domid: DomId, nodes: &Nodes) -> io::Result<BoxedPage>;

    /// Binds the port that a domain holds ready.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn bind(&mut self, domid: DomId, port: u32) -> io::Result<LocalPort>;

    /// Closes a port.
    fn unbind(&mut self, port: LocalPort);

    /// Sends an event.
    fn notify(&mut self, port: LocalPort);

    /// Lets a port fire again.
    fn unmask(&mut self, port: LocalPort);

    /// Makes a terminal.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn terminal(&mut self) -> io::Result<Self::Terminal>;

    /// Opens the log of a guest of that name; `None` if there is to be none.
    fn log_of(&mut self, name: &str) -> Option<Box<dyn Log>>;

    /// One line for the administrator.
    fn say(&mut self, line: &str);
}
