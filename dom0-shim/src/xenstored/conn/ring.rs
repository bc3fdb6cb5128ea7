//! Clients over a page that they share with the store: guests, and the control domain's kernel.
//!
//! Everything in the page may change at any time and to anything. The store's own indices are kept outside it and only
//! written there, so a guest that overwrites them fools itself; the guest's indices are read once for each step and checked.

use super::{Fault, Moved, Transport};
use crate::shared::Page;
use std::mem::offset_of;
use xen_abi::io::xs_wire::{DomainInterface, connection, feature, limit, ring_error};

const SIZE: u32 = limit::RING_SIZE;

/// The store's end of a ring.
#[derive(Debug)]
pub struct Ring<P> {
    page: P,
    /// How far requests have been read.
    req_cons: u32,
    /// How far replies have been written.
    rsp_prod: u32,
    /// The domain is to be sent an event.
    notify: bool,
}

impl<P: Page> Ring<P> {
    /// Goes on where the page says that the store was, and says what the store can do.
    pub fn attach(page: P) -> Ring<P> {
        let memory = page.page();
        let (req_cons, rsp_prod) = (memory.load(REQ_CONS), memory.load(RSP_PROD));
        memory.store(FEATURES, feature::RECONNECTION | feature::ERROR);
        Ring {
            page,
            req_cons,
            rsp_prod,
            notify: false,
        }
    }

    /// Empties the ring. If the domain waits for a fresh connection it is told that it has one.
    pub fn reset(&mut self) {
        let memory = self.page.page();
        (self.req_cons, self.rsp_prod) = (0, 0);
        [REQ_CONS, REQ_PROD, RSP_CONS, RSP_PROD]
            .iter()
            .for_each(|at| memory.store(*at, 0));
        memory.store(FEATURES, feature::RECONNECTION | feature::ERROR);
        memory.store(ERROR, ring_error::NONE);
        if memory.load(CONNECTION) == connection::RECONNECT {
            memory.store(CONNECTION, connection::CONNECTED);
            self.notify = true;
        }
    }

    /// Whether the domain is to be sent an event; asking resets it.
    pub fn take_notify(&mut self) -> bool {
        std::mem::take(&mut self.notify)
    }

    /// The store's own indices: requests read, replies written.
    pub fn indices(&self) -> (u32, u32) {
        (self.req_cons, self.rsp_prod)
    }

    /// Whether the domain has something for the store: a request, or the wish for a fresh connection.
    pub fn has_input(&self) -> bool {
        let memory = self.page.page();
        memory.load(REQ_PROD) != self.req_cons || memory.load(CONNECTION) == connection::RECONNECT
    }

    /// Whether there is room for replies.
    pub fn has_room(&self) -> bool {
        self.rsp_prod.wrapping_sub(self.page.page().load(RSP_CONS)) != SIZE
    }
}

const REQ: usize = offset_of!(DomainInterface, req);
const RSP: usize = offset_of!(DomainInterface, rsp);
const REQ_CONS: usize = offset_of!(DomainInterface, req_cons);
const REQ_PROD: usize = offset_of!(DomainInterface, req_prod);
const RSP_CONS: usize = offset_of!(DomainInterface, rsp_cons);
const RSP_PROD: usize = offset_of!(DomainInterface, rsp_prod);
const FEATURES: usize = offset_of!(DomainInterface, server_features);
const CONNECTION: usize = offset_of!(DomainInterface, connection);
const ERROR: usize = offset_of!(DomainInterface, error);

/// Where an index is in the ring, and how many of `count` bytes lie there in a row.
fn piece(index: u32, count: u32) -> (usize, usize) {
    let at = index % SIZE;
    (at as usize, count.min(SIZE - at) as usize)
}

impl<P: Page> Transport for Ring<P> {
    fn read(&mut self, bytes: &mut [u8]) -> Moved {
        let memory = self.page.page();
        let filled = memory.load(REQ_PROD).wrapping_sub(self.req_cons);
        if filled > SIZE {
            return Moved::Broken(Fault::Indices);
        }
        let (at, count) = piece(self.req_cons, filled.min(bytes.len() as u32));
        if count == 0 {
            return Moved::Nothing;
        }
        memory.copy_out(REQ + at, &mut bytes[..count]);
        self.req_cons = self.req_cons.wrapping_add(count as u32);
        memory.store(REQ_CONS, self.req_cons);
        self.notify = true;
        Moved::Bytes(count)
    }

    fn write(&mut self, bytes: &[u8]) -> Moved {
        let memory = self.page.page();
        let filled = self.rsp_prod.wrapping_sub(memory.load(RSP_CONS));
        if filled > SIZE {
            return Moved::Broken(Fault::Indices);
        }
        let (at, count) = piece(self.rsp_prod, (SIZE - filled).min(bytes.len() as u32));
        if count == 0 {
            return Moved::Nothing;
        }
        memory.copy_in(RSP + at, &bytes[..count]);
        self.rsp_prod = self.rsp_prod.wrapping_add(count as u32);
        memory.store(RSP_PROD, self.rsp_prod);
        self.notify = true;
        Moved::Bytes(count)
    }

    fn wants_reset(&mut self) -> bool {
        let wants = self.page.page().load(CONNECTION) == connection::RECONNECT;
        if wants {
            self.reset();
        }
        wants
    }

    fn refuse(&mut self, fault: Fault) {
        let code = match fault {
            Fault::Indices => ring_error::RINGIDX,
            Fault::TooLong => ring_error::PROTO,
        };
        self.page.page().store(ERROR, code);
        self.notify = true;
    }
}
