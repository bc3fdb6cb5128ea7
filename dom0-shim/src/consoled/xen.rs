//! The machine as the daemon reaches it: the store, Xen's devices, terminals, files.

use super::host::{Host, Log};
use super::log::{LogFile, file_name};
use super::nodes::{self, Nodes};
use super::options::Options;
use super::terminal::Pty;
use crate::shared::BoxedPage;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use xen_abi::linux::gntdev::RESERVED_CONSOLE;
use xen_abi::{DomId, domid};
use xen_sys::domctl::Control;
use xen_sys::evtchn::{EventChannels, LocalPort};
use xen_sys::foreign::ForeignMemory;
use xen_sys::gntdev::Grants;
use xen_sys::xenstore::{Client, Error, Event, Result, Transaction};

/// How long a store behind the kernel may take to answer; consoles wait meanwhile.
const STORE: Duration = Duration::from_millis(500);
/// Tokens of watches: a domain's number, or this.
const DOMAINS: &str = "domains";

/// What an event of the store means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Some domain came or went.
    Domains,
    /// A domain's console nodes changed.
    Console(DomId),
}

/// The machine.
pub struct Machine {
    store: Option<Client>,
    /// Why the store is gone.
    lost: Option<Error>,
    channels: EventChannels,
    grants: Grants,
    control: Control,
    options: Options,
    say: Box<dyn FnMut(&str)>,
    /// What was said last about a domain that could not be asked about, so that it is said once.
    said: BTreeMap<DomId, String>,
}

impl Machine {
    /// Opens everything but the store.
    ///
    /// # Errors
    /// Which device, and why not.
    pub fn open(
        options: Options,
        say: Box<dyn FnMut(&str)>,
    ) -> std::result::Result<Machine, String> {
        Ok(Machine {
            store: None,
            lost: None,
            channels: EventChannels::open().map_err(|e| format!("/dev/xen/evtchn: {e}"))?,
            grants: Grants::open(domid::value::FIRST_RESERVED.into())
                .map_err(|e| format!("/dev/xen/gntdev: {e}"))?,
            control: Control::open().map_err(|e| format!("/dev/xen/privcmd: {e}"))?,
            options,
            say,
            said: BTreeMap::new(),
        })
    }

    /// Connects to the store and asks to be told of domains.
    ///
    /// # Errors
    /// It is not there.
    pub fn connect(&mut self) -> Result<()> {
        let mut store = Client::open_within(STORE)?;
        store.watch("@introduceDomain", DOMAINS)?;
        store.watch("@releaseDomain", DOMAINS)?;
        (self.store, self.lost) = (Some(store), None);
        Ok(())
    }

    /// The store, if it is there.
    pub fn store(&self) -> Option<&Client> {
        self.store.as_ref()
    }

    /// Why the store is gone, once.
    pub fn take_lost(&mut self) -> Option<Error> {
        self.lost.take()
    }

    /// The device that says which ports fired.
    pub fn channels(&self) -> &EventChannels {
        &self.channels
    }

    /// The next news, if there are any.
    pub fn news(&mut self) -> Option<News> {
        loop {
            let event = self.ask(|store| store.event(Some(Duration::ZERO)))??;
            if let Some(news) = meaning(&event) {
                return Some(news);
            }
        }
    }

    /// Asks the store. Its refusals are ordinary; if it does not answer at all it is gone.
    fn ask<T>(&mut self, question: impl FnOnce(&mut Client) -> Result<T>) -> Option<T> {
        match question(self.store.as_mut()?) {
            Ok(value) => Some(value),
            Err(Error::Refused(_)) => None,
            Err(error) => {
                (self.store, self.lost) = (None, Some(error));
                None
            }
        }
    }

    fn read(&mut self, path: &str) -> Option<String> {
        let bytes = self.ask(|store| store.read(Transaction::NONE, path))?;
        String::from_utf8(bytes).ok()
    }
}

fn meaning(event: &Event) -> Option<News> {
    match event.token.as_str() {
        DOMAINS => Some(News::Domains),
        number => number.parse().ok().map(|n| News::Console(DomId(n))),
    }
}

fn console(domid: DomId) -> String {
    format!("/local/domain/{}/console", domid.0)
}

impl Host for Machine {
    type Terminal = Pty;

    fn domains(&mut self) -> Vec<DomId> {
        let names = self.ask(|store| store.list(Transaction::NONE, "/local/domain"));
        names
            .unwrap_or_default()
            .iter()
            .filter_map(|n| n.parse().ok().map(DomId))
            .collect()
    }

    fn exists(&mut self, domid: DomId) -> bool {
        match self.control.status(domid) {
            Ok(status) => {
                self.said.remove(&domid);
                status.is_some_and(|s| !s.dying)
            }
            Err(error) => {
                let text = format!("{domid}: the hypervisor does not tell its state: {error}");
                if self.said.insert(domid, text.clone()) != Some(text.clone()) {
                    self.say(&text);
                }
                // Better to keep a console that is over than to lose one that is not.
                true
            }
        }
    }

    fn nodes(&mut self, domid: DomId) -> Option<Nodes> {
        nodes::nodes(|name| self.read(&format!("{}/{name}", console(domid))))
    }

    fn name(&mut self, domid: DomId) -> String {
        let name = self.read(&format!("/local/domain/{}/name", domid.0));
        name.filter(|n| !n.is_empty())
            .unwrap_or_else(|| format!("domain-{}", domid.0))
    }

    fn watch(&mut self, domid: DomId) {
        self.ask(|store| store.watch(&console(domid), &domid.0.to_string()));
    }

    fn unwatch(&mut self, domid: DomId) {
        self.ask(|store| store.unwatch(&console(domid), &domid.0.to_string()));
        if self.options.verbose {
            self.say(&format!("{domid}: it is gone"));
        }
    }

    fn publish(&mut self, domid: DomId, terminal: &str) {
        let path = format!("{}/tty", console(domid));
        if self.options.verbose {
            self.say(&format!("{domid}: its terminal is {terminal}"));
        }
        self.ask(|store| store.write(Transaction::NONE, &path, terminal.as_bytes()));
    }

    fn map(&mut self, domid: DomId, nodes: &Nodes) -> io::Result<BoxedPage> {
        match self.grants.map(domid, RESERVED_CONSOLE) {
            Ok(page) => Ok(Box::new(page)),
            // A toolstack that granted nothing: the page as the guest's memory, which a control domain may map.
            Err(error) => match ForeignMemory::open().and_then(|m| m.page(domid, nodes.ring_ref)) {
                Ok(page) => Ok(Box::new(page)),
                Err(_) => Err(error),
            },
        }
    }

    fn bind(&mut self, domid: DomId, port: u32) -> io::Result<LocalPort> {
        self.channels.bind_interdomain(domid, port)
    }

    fn unbind(&mut self, port: LocalPort) {
        // It fails only if the port is closed already, which is what is wanted.
        let _ = self.channels.unbind(port);
    }

    fn notify(&mut self, port: LocalPort) {
        // It fails only if the other side is gone, which the hypervisor tells in its own way.
        let _ = self.channels.notify(port);
    }

    fn unmask(&mut self, port: LocalPort) {
        // As above.
        let _ = self.channels.unmask(&[port]);
    }

    fn terminal(&mut self) -> io::Result<Pty> {
        Pty::new()
    }

    fn log_of(&mut self, name: &str) -> Option<Box<dyn Log>> {
        if !self.options.guest_logs {
            return None;
        }
        let path = self.options.log_dir.join(file_name(name));
        match LogFile::open(path.clone(), self.options.guest_style) {
            Ok(log) => Some(Box::new(log)),
            Err(error) => {
                self.say(&format!("no log of {name}: {}: {error}", path.display()));
                None
            }
        }
    }

    fn say(&mut self, line: &str) {
        (self.say)(line);
    }
}
