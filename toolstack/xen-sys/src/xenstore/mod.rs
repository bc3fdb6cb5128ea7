//! A client of xenstored, over its socket or the kernel's device.
//!
//! One request at a time; watch events that arrive meanwhile are kept until they are asked for.

#![forbid(unsafe_code)]

mod stream;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use stream::Stream;
use xen_abi::io::xs_wire::{SockMsg, error_from_name, kind, limit};
use xen_abi::{DomId, Errno};

/// Why a request failed.
#[derive(Debug)]
pub enum Error {
    /// The connection does not work.
    Io(io::Error),
    /// The store says no.
    Refused(Errno),
    /// The store does not keep to the protocol.
    Protocol(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::Refused(errno) => write!(f, "xenstored answers {errno:?}"),
            Error::Protocol(what) => write!(f, "xenstored does not keep to the protocol: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

/// What all requests return.
pub type Result<T> = std::result::Result<T, Error>;

/// A transaction of one client, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction(u32);

impl Transaction {
    /// Outside any transaction.
    pub const NONE: Transaction = Transaction(0);
}

/// A change that a watch is told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What changed; relative if the watch is.
    pub path: String,
    /// The watch's token.
    pub token: String,
}

/// How long a store behind the kernel's device may take for its first answer. The kernel keeps requests for as long as there is no
/// store at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    events: VecDeque<Event>,
    last_request: u32,
}

impl Client {
    /// Connects: to the socket if the daemon runs here, else through the kernel.
    ///
    /// # Errors
    /// If neither is there, or nobody answers the kernel within seconds.
    pub fn open() -> io::Result<Client> {
        Client::open_within(PATIENCE)
    }

    /// The same for those that have other things to do than to wait.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn open_within(patience: Duration) -> io::Result<Client> {
        let (stream, refused) = Stream::open()?;
        let mut client = Client::of(stream);
        // Who listens on a socket is there; of the kernel's device nobody knows.
        if let Some(refused) = refused
            && !client.answers(patience)?
        {
            let seconds = patience.as_secs();
            let text = format!(
                "cannot reach xenstored: {refused}, and it does not answer the kernel in {seconds} s; is it running?"
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(client)
    }

    fn of(stream: Stream) -> Client {
        Client {
            stream,
            events: VecDeque::new(),
            last_request: 0,
        }
    }

    /// Whether the store answers a question that everybody may ask.
    fn answers(&mut self, patience: Duration) -> io::Result<bool> {
        self.request(kind::GET_DOMAIN_PATH, Transaction::NONE, b"0\0")
            .map_err(io::Error::other)?;
        if !self.stream.readable(Some(patience))? {
            return Ok(false);
        }
        match self.reply(kind::GET_DOMAIN_PATH) {
            Err(Error::Refused(_)) | Ok(_) => Ok(true),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Connects to a store made for tests.
    pub fn fake(store: &crate::fake::FakeStore) -> Client {
        Client::of(Stream::Fake(store.clone()))
    }

    /// A node's value.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(&mut self, tx: Transaction, path: &str) -> Result<Vec<u8>> {
        self.ask(kind::READ, tx, &[path.as_bytes(), b"\0"])
    }

    /// Names of a node's children, however many.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list(&mut self, tx: Transaction, path: &str) -> Result<Vec<String>> {
        let all = match self.ask(kind::DIRECTORY, tx, &[path.as_bytes(), b"\0"]) {
            Err(Error::Refused(Errno::E2BIG)) => self.long_list(tx, path)?,
            other => other?,
        };
        strings(&all)
    }

    /// Puts the parts of a list together; begins again if the node changes meanwhile.
    fn long_list(&mut self, tx: Transaction, path: &str) -> Result<Vec<u8>> {
        let (mut all, mut generation) = (Vec::new(), Vec::new());
        loop {
            let offset = all.len().to_string();
            let reply = self.ask(
                kind::DIRECTORY_PART,
                tx,
                &[path.as_bytes(), b"\0", offset.as_bytes(), b"\0"],
            )?;
            let at = reply
                .iter()
                .position(|b| *b == 0)
                .ok_or(Error::Protocol("a list without generation"))?;
            if !all.is_empty() && generation != reply[..at] {
                all.clear();
                generation.clear();
                continue;
            }
            generation = reply[..at].to_vec();
            let part = &reply[at + 1..];
            if part.is_empty() {
                return Err(Error::Protocol("a part of a list with nothing in it"));
            }
            // The last part ends with an empty name.
            let last = part == b"\0" || part.ends_with(b"\0\0");
            all.extend_from_slice(if last { &part[..part.len() - 1] } else { part });
            if last {
                return Ok(all);
            }
        }
    }

    /// Sets a node's value; makes it if need be.
    ///
    /// # Errors
    /// [`Error`].
    pub fn write(&mut self, tx: Transaction, path: &str, value: &[u8]) -> Result<()> {
        self.ask(kind::WRITE, tx, &[path.as_bytes(), b"\0", value])
            .map(drop)
    }

    /// Makes a node unless it is there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn mkdir(&mut self, tx: Transaction, path: &str) -> Result<()> {
        self.ask(kind::MKDIR, tx, &[path.as_bytes(), b"\0"])
            .map(drop)
    }

    /// Removes a node and all below it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn rm(&mut self, tx: Transaction, path: &str) -> Result<()> {
        self.ask(kind::RM, tx, &[path.as_bytes(), b"\0"]).map(drop)
    }

    /// Entries such as `r5`, the owner's first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn perms(&mut self, tx: Transaction, path: &str) -> Result<Vec<String>> {
        strings(&self.ask(kind::GET_PERMS, tx, &[path.as_bytes(), b"\0"])?)
    }

    /// Replaces the entries.
    ///
    /// # Errors
    /// [`Error`].
    pub fn set_perms(&mut self, tx: Transaction, path: &str, perms: &[String]) -> Result<()> {
        let perms: Vec<u8> = perms
            .iter()
            .flat_map(|p| [p.as_bytes(), b"\0"].concat())
            .collect();
        self.ask(kind::SET_PERMS, tx, &[path.as_bytes(), b"\0", &perms])
            .map(drop)
    }

    /// Runs `body` in a transaction, again as long as others interfere. What it returns comes back once it is committed;
    /// its error undoes everything.
    ///
    /// # Errors
    /// `body`'s, or [`Error`].
    pub fn transaction<T>(
        &mut self,
        mut body: impl FnMut(&mut Client, Transaction) -> Result<T>,
    ) -> Result<T> {
        loop {
            let id = self.ask(kind::TRANSACTION_START, Transaction::NONE, &[b"\0"])?;
            let id = str::from_utf8(id.strip_suffix(b"\0").unwrap_or(&id))
                .ok()
                .and_then(|t| t.parse().ok());
            let tx = Transaction(id.ok_or(Error::Protocol("a transaction without number"))?);
            let result = body(self, tx);
            let end: &[u8] = if result.is_ok() { b"T\0" } else { b"F\0" };
            match (result, self.ask(kind::TRANSACTION_END, tx, &[end])) {
                (Ok(_), Err(Error::Refused(Errno::EAGAIN))) => {}
                (Ok(value), end) => return end.map(|_| value),
                (Err(error), _) => return Err(error),
            }
        }
    }

    /// Asks to be told of changes at or below a path. The first event comes at once.
    ///
    /// # Errors
    /// [`Error`].
    pub fn watch(&mut self, path: &str, token: &str) -> Result<()> {
        self.ask(
            kind::WATCH,
            Transaction::NONE,
            &[path.as_bytes(), b"\0", token.as_bytes(), b"\0"],
        )
        .map(drop)
    }

    /// Takes a watch back. Events of it may still be waiting.
    ///
    /// # Errors
    /// [`Error`].
    pub fn unwatch(&mut self, path: &str, token: &str) -> Result<()> {
        self.ask(
            kind::UNWATCH,
            Transaction::NONE,
            &[path.as_bytes(), b"\0", token.as_bytes(), b"\0"],
        )
        .map(drop)
    }

    /// The next event, waiting for it at most that long, or for ever. `None` if the time is over.
    ///
    /// # Errors
    /// [`Error`].
    pub fn event(&mut self, wait: Option<Duration>) -> Result<Option<Event>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        if !self.stream.readable(wait)? {
            return Ok(None);
        }
        let (header, payload) = self.stream.receive()?;
        if header.kind != kind::WATCH_EVENT {
            return Err(Error::Protocol("a reply that nobody asked for"));
        }
        event(&payload).map(Some)
    }

    /// Connects a domain to the store. `gfn` is its ring page, `port` its port of the event channel.
    ///
    /// # Errors
    /// [`Error`].
    pub fn introduce(&mut self, domid: DomId, gfn: u64, port: u32) -> Result<()> {
        let text = format!("{}\0{gfn}\0{port}\0", domid.0);
        self.ask(kind::INTRODUCE, Transaction::NONE, &[text.as_bytes()])
            .map(drop)
    }

    /// Lets the store forget a domain.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release(&mut self, domid: DomId) -> Result<()> {
        self.ask(
            kind::RELEASE,
            Transaction::NONE,
            &[format!("{}\0", domid.0).as_bytes()],
        )
        .map(drop)
    }

    /// A domain's shutdown will be announced again.
    ///
    /// # Errors
    /// [`Error`].
    pub fn resume(&mut self, domid: DomId) -> Result<()> {
        self.ask(
            kind::RESUME,
            Transaction::NONE,
            &[format!("{}\0", domid.0).as_bytes()],
        )
        .map(drop)
    }

    /// Whether the store knows a domain.
    ///
    /// # Errors
    /// [`Error`].
    pub fn is_introduced(&mut self, domid: DomId) -> Result<bool> {
        let reply = self.ask(
            kind::IS_DOMAIN_INTRODUCED,
            Transaction::NONE,
            &[format!("{}\0", domid.0).as_bytes()],
        )?;
        Ok(reply == b"T\0")
    }

    /// A command for the daemon itself, for example `["quota", "set", "nodes", "2000"]`; its answer as text.
    ///
    /// # Errors
    /// [`Error`].
    pub fn control(&mut self, command: &[&str]) -> Result<String> {
        let payload: String = command.iter().flat_map(|w| [*w, "\0"]).collect();
        let reply = self.ask(kind::CONTROL, Transaction::NONE, &[payload.as_bytes()])?;
        Ok(String::from_utf8_lossy(reply.strip_suffix(b"\0").unwrap_or(&reply)).into_owned())
    }

    /// Whether an event has come already, with the reply to some request. If not, one can be waited for by polling.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Readable when an event can be fetched. Nothing for a store in this process.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.fd()
    }

    /// One request and its reply.
    fn ask(&mut self, kind: u32, tx: Transaction, payload: &[&[u8]]) -> Result<Vec<u8>> {
        let payload = payload.concat();
        if payload.len() > limit::PAYLOAD_MAX as usize {
            return Err(Error::Refused(Errno::E2BIG));
        }
        self.request(kind, tx, &payload)?;
        self.reply(kind)
    }

    fn request(&mut self, kind: u32, tx: Transaction, payload: &[u8]) -> Result<()> {
        self.last_request = self.last_request.wrapping_add(1).max(1);
        let request = SockMsg {
            kind,
            req_id: self.last_request,
            tx_id: tx.0,
            len: payload.len() as u32,
        };
        self.stream.send(request, payload)
    }

    /// The reply to the last request.
    fn reply(&mut self, kind: u32) -> Result<Vec<u8>> {
        loop {
            let (header, payload) = self.stream.receive()?;
            match header.kind {
                kind::WATCH_EVENT => self.events.push_back(event(&payload)?),
                _ if header.req_id != self.last_request => {
                    return Err(Error::Protocol("a reply to another request"));
                }
                kind::ERROR => {
                    let name = payload.strip_suffix(b"\0").unwrap_or(&payload);
                    return Err(Error::Refused(
                        error_from_name(name).unwrap_or(Errno::EINVAL),
                    ));
                }
                k if k == kind => return Ok(payload),
                _ => return Err(Error::Protocol("a reply of another type")),
            }
        }
    }
}

fn event(payload: &[u8]) -> Result<Event> {
    match <[String; 2]>::try_from(strings(payload)?) {
        Ok([path, token]) => Ok(Event { path, token }),
        Err(_) => Err(Error::Protocol(
            "a watch event that is not a path and a token",
        )),
    }
}

/// The strings of a payload.
fn strings(payload: &[u8]) -> Result<Vec<String>> {
    let words = payload
        .split_inclusive(|b| *b == 0)
        .map(|w| w.strip_suffix(b"\0").unwrap_or(w).to_vec());
    words
        .map(|w| String::from_utf8(w).map_err(|_| Error::Protocol("a name that is not text")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use zerocopy::IntoBytes;

    /// A client of the kernel's device, and what is behind that.
    fn device() -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("made");
        let file = File::from(OwnedFd::from(ours));
        (Client::of(Stream::Device(file)), theirs)
    }

    #[test]
    fn a_store_that_never_answers_is_given_up() {
        let (mut client, mut theirs) = device();
        assert!(!client.answers(Duration::from_millis(50)).expect("asked"));
        let mut asked = [0; 18];
        theirs.read_exact(&mut asked).expect("something was asked");
        assert_eq!((asked[0], &asked[16..]), (10, &b"0\0"[..]));
    }

    #[test]
    fn any_answer_will_do() {
        for (kind, text) in [
            (kind::GET_DOMAIN_PATH, "/local/domain/0\0"),
            (kind::ERROR, "EACCES\0"),
        ] {
            let (mut client, mut theirs) = device();
            let header = SockMsg {
                kind,
                req_id: 1,
                tx_id: 0,
                len: text.len() as u32,
            };
            theirs.write_all(header.as_bytes()).expect("written");
            theirs.write_all(text.as_bytes()).expect("written");
            assert!(client.answers(Duration::ZERO).expect("answered"));
        }
        let (mut client, theirs) = device();
        drop(theirs);
        assert!(client.answers(Duration::ZERO).is_err());
    }
}
