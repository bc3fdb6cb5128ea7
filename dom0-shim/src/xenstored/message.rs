//! Messages from and to byte streams: one that is arriving, those that wait to be fetched.
//!
//! Both are bounded: a message by the protocol, the queue by the connection's rules (see [`Outbox`]).

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use xen_abi::io::xs_wire::{HEADER_LEN, SockMsg, kind, limit};
use zerocopy::{FromBytes, IntoBytes};

/// A client's stream makes no sense any more: a message is longer than the protocol allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong(
    /// The length that the header claims, bytes.
    pub u32,
);

/// The message that is arriving.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Header, then payload, as far as they are here.
    bytes: Vec<u8>,
}

impl Inbox {
    /// How many bytes are missing to the next step: the rest of the header, or of the payload. 0 if the message is whole.
    pub fn wanted(&self) -> usize {
        self.header()
            .map_or(HEADER_LEN - self.bytes.len().min(HEADER_LEN), |h| {
                (HEADER_LEN + h.len as usize).saturating_sub(self.bytes.len())
            })
    }

    /// Takes bytes, at most [`Inbox::wanted`].
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(self.wanted())]);
        match self.header() {
            Some(header) if header.len > limit::PAYLOAD_MAX => Err(TooLong(header.len)),
            _ => Ok(()),
        }
    }

    /// The whole message, once it is here.
    pub fn take(&mut self) -> Option<(SockMsg, Vec<u8>)> {
        let header = self.header()?;
        if self.wanted() > 0 {
            return None;
        }
        let payload = self.bytes.split_off(HEADER_LEN);
        self.bytes.clear();
        Some((header, payload))
    }

    /// What is here of an unfinished message.
    pub fn partial(&self) -> &[u8] {
        &self.bytes
    }

    fn header(&self) -> Option<SockMsg> {
        SockMsg::read_from_bytes(self.bytes.get(..HEADER_LEN)?).ok()
    }
}

/// Header and payload as bytes. A payload above the protocol's limit is the caller's mistake.
pub fn encode(header: SockMsg, payload: &[u8]) -> Rc<[u8]> {
    let header = SockMsg {
        len: payload.len() as u32,
        ..header
    };
    [header.as_bytes(), payload].concat().into()
}

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// It waits to be fetched, or the same event does already.
    Yes,
    /// The queue is at its limit.
    Full,
}

/// Messages that wait to be fetched.
///
/// Replies are bounded because no further request is read while too many wait. Events are bounded in two ways: one that
/// waits already is not queued again, and above a number of bytes only shorter stand-ins are taken (see the server).
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Rc<[u8]>>,
    /// Bytes of the first message that are fetched already.
    fetched: usize,
    bytes: usize,
    replies: usize,
    events: HashSet<Rc<[u8]>>,
}

impl Outbox {
    /// Queues a reply.
    pub fn reply(&mut self, message: Rc<[u8]>) {
        self.replies += 1;
        self.push(message);
    }

    /// Queues an event unless the same one waits already, if no more than `limit` bytes wait.
    pub fn event(&mut self, message: Rc<[u8]>, limit: usize) -> Queued {
        if self.events.contains(&message) {
            return Queued::Yes;
        }
        if self.bytes + message.len() > limit {
            return Queued::Full;
        }
        self.events.insert(message.clone());
        self.push(message);
        Queued::Yes
    }

    fn push(&mut self, message: Rc<[u8]>) {
        self.bytes += message.len();
        self.queue.push_back(message);
    }

    /// The next bytes to fetch; empty if there are none.
    pub fn next(&self) -> &[u8] {
        self.queue.front().map_or(&[], |m| &m[self.fetched..])
    }

    /// That many bytes of [`Outbox::next`] have been fetched.
    pub fn advance(&mut self, count: usize) {
        self.fetched += count;
        let Some(first) = self.queue.front() else {
            return;
        };
        if self.fetched >= first.len() {
            self.bytes -= first.len();
            self.fetched = 0;
            if is_event(first) {
                self.events.remove(first);
            } else {
                self.replies -= 1;
            }
            self.queue.pop_front();
        }
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replies that wait.
    pub fn replies(&self) -> usize {
        self.replies
    }

    /// Everything that waits, and how much of the first message is fetched already: to be kept over a restart.
    pub fn saved(&self) -> (usize, impl Iterator<Item = &[u8]>) {
        (self.fetched, self.queue.iter().map(|m| &**m))
    }

    /// What [`Outbox::saved`] gave. False if that cannot be.
    pub fn restore(&mut self, fetched: usize, messages: Vec<Vec<u8>>) -> bool {
        for message in messages {
            let message: Rc<[u8]> = message.into();
            if message.len() < HEADER_LEN
                || message.len() > HEADER_LEN + limit::PAYLOAD_MAX as usize
            {
                return false;
            }
            if is_event(&message) {
                self.event(message, usize::MAX);
            } else {
                self.reply(message);
            }
        }
        self.fetched = fetched;
        fetched == 0 || fetched < self.next_len()
    }

    fn next_len(&self) -> usize {
        self.queue.front().map_or(0, |m| m.len())
    }
}

fn is_event(message: &[u8]) -> bool {
    message.starts_with(&kind::WATCH_EVENT.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u32, payload: &[u8]) -> Rc<[u8]> {
        encode(
            SockMsg {
                kind,
                req_id: 1,
                tx_id: 0,
                len: 0,
            },
            payload,
        )
    }

    #[test]
    fn an_event_waits_once_and_within_the_limit() {
        let mut outbox = Outbox::default();
        let event = message(kind::WATCH_EVENT, b"/a\0t\0");
        assert_eq!(outbox.event(event.clone(), 30), Queued::Yes);
        assert_eq!(outbox.event(event.clone(), 30), Queued::Yes);
        assert_eq!(outbox.bytes(), event.len());
        assert_eq!(
            outbox.event(message(kind::WATCH_EVENT, b"/b\0t\0"), 30),
            Queued::Full
        );
        outbox.reply(message(kind::READ, b"v"));
        assert_eq!(outbox.replies(), 1);
        while !outbox.next().is_empty() {
            outbox.advance(1);
        }
        assert_eq!((outbox.bytes(), outbox.replies()), (0, 0));
        assert_eq!(outbox.event(event, 30), Queued::Yes);
    }

    proptest! {
        /// Whatever the pieces, the same messages come out; the inbox never holds more than one.
        #[test]
        fn pieces_do_not_matter(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            cuts in prop::collection::vec(1_usize..64, 1..50),
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|p| message(kind::WRITE, p).to_vec()).collect();
            let (mut inbox, mut rest, mut got) = (Inbox::default(), &stream[..], Vec::new());
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let n = inbox.wanted().min(*cuts.next().unwrap()).min(rest.len());
                inbox.push(&rest[..n]).unwrap();
                rest = &rest[n..];
                if let Some((header, payload)) = inbox.take() {
                    prop_assert_eq!(header.len as usize, payload.len());
                    got.push(payload);
                }
            }
            prop_assert_eq!(got, payloads);
        }

        /// Random bytes end in messages or in an error, and never take more room than a message.
        #[test]
        fn noise(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            let (mut inbox, mut rest) = (Inbox::default(), &bytes[..]);
            while !rest.is_empty() {
                let n = inbox.wanted().min(rest.len());
                if inbox.push(&rest[..n]).is_err() {
                    break;
                }
                rest = &rest[n..];
                prop_assert!(inbox.partial().len() <= HEADER_LEN + limit::PAYLOAD_MAX as usize);
                inbox.take();
            }
        }
    }
}
