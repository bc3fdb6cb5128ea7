//! The FIFO format: an event word per port in array pages, and per vCPU 16 linked queues whose heads are in a control
//! block. The guest consumes from the head while the hypervisor appends at the tail.
//!
//! All pages are the guest's and can change at any instant: every step is one atomic operation on one word, the only
//! links followed are the hypervisor's own tails, and no loop depends on the guest. The table's lock is held from setting
//! PENDING to updating the tail.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hv_hw::mem::FrameRef;
use x86_model::PAGE_SIZE;
use xen_abi::Errno;
use xen_abi::event_channel::{EvtchnFifoControlBlock, fifo};

use super::ports::Port;
use super::{Notify, VcpuPages, mark_upcall};

/// Ports that the format has room for.
pub const PORTS: u32 = fifo::NR_CHANNELS;
/// Event words in an array page.
pub const WORDS_PER_PAGE: u32 = (PAGE_SIZE / 4) as u32;
const MAX_PAGES: usize = (PORTS / WORDS_PER_PAGE) as usize;
const QUEUES: usize = fifo::MAX_QUEUES as usize;

const PENDING: u32 = 1 << fifo::PENDING_BIT;
const MASKED: u32 = 1 << fifo::MASKED_BIT;
const LINKED: u32 = 1 << fifo::LINKED_BIT;
const BUSY: u32 = 1 << fifo::BUSY_BIT;
const LINK: u32 = fifo::LINK_MASK;

const READY: usize = core::mem::offset_of!(EvtchnFifoControlBlock, ready);
const HEAD: usize = core::mem::offset_of!(EvtchnFifoControlBlock, head);

/// Tries to append before the guest is made to wait by BUSY, and again after.
const LINK_TRIES: u32 = 4;

struct Queues {
    control: Option<(FrameRef, usize)>,
    /// Last port of each priority's queue; 0: none. It may have been consumed since, which its LINKED bit tells.
    tails: [u32; QUEUES],
}

/// The format's state for one domain.
pub struct Fifo {
    pages: Vec<FrameRef>,
    queues: Box<[Queues]>,
}

impl Fifo {
    /// Without array pages and control blocks. ENOMEM without memory.
    pub fn new(vcpus: u32) -> Result<Self, Errno> {
        let mut queues = Vec::new();
        queues
            .try_reserve_exact(vcpus as usize)
            .map_err(|_| Errno::ENOMEM)?;
        queues.extend((0..vcpus).map(|_| Queues {
            control: None,
            tails: [0; QUEUES],
        }));
        Ok(Fifo {
            pages: Vec::new(),
            queues: queues.into_boxed_slice(),
        })
    }

    /// Where a control block may lie: in one page, on a multiple of 8.
    pub fn check_offset(offset: u32) -> Result<usize, Errno> {
        let offset = offset as usize;
        if offset > PAGE_SIZE as usize - size_of::<EvtchnFifoControlBlock>()
            || !offset.is_multiple_of(8)
        {
            return Err(Errno::EINVAL);
        }
        Ok(offset)
    }

    /// Sets a vCPU's control block. EINVAL if it has one.
    pub fn set_control(&mut self, vcpu: u32, frame: FrameRef, offset: usize) -> Result<(), Errno> {
        let queues = self.queues.get_mut(vcpu as usize).ok_or(Errno::ENOENT)?;
        if queues.control.is_some() {
            return Err(Errno::EINVAL);
        }
        queues.control = Some((frame, offset));
        Ok(())
    }

    /// Appends an array page; the range of ports that have words now and did not before. ENOSPC when all are there.
    pub fn add_page(&mut self, frame: Option<FrameRef>) -> Result<core::ops::Range<u32>, Errno> {
        if self.pages.len() >= MAX_PAGES {
            return Err(Errno::ENOSPC);
        }
        let frame = frame.ok_or(Errno::EINVAL)?;
        self.pages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.pages.push(frame);
        let end = self.pages.len() as u32 * WORDS_PER_PAGE;
        Ok(end - WORDS_PER_PAGE..end)
    }

    fn word(&self, port: u32) -> Option<&AtomicU32> {
        let page = self.pages.get((port / WORDS_PER_PAGE) as usize)?;
        Some(page.atomic_u32((port % WORDS_PER_PAGE) as usize * 4))
    }

    fn has(&self, port: u32, bit: u32) -> bool {
        self.word(port)
            .is_some_and(|w| w.load(Ordering::SeqCst) & bit != 0)
    }

    /// Whether the port's event is pending.
    pub fn is_pending(&self, port: u32) -> bool {
        self.has(port, PENDING)
    }

    /// Whether the port is still on a queue, so that it must not be used for something else.
    pub fn is_linked(&self, port: u32) -> bool {
        self.has(port, LINKED)
    }

    /// Clears the port's pending bit.
    pub fn clear_pending(&self, port: u32) {
        if let Some(word) = self.word(port) {
            word.fetch_and(!PENDING, Ordering::SeqCst);
        }
    }

    /// Makes the port pending. False if it was already, or could not be made so, and pollers need not know.
    pub fn raise(
        &mut self,
        pages: &dyn VcpuPages,
        port: u32,
        state: &mut Port,
        out: &mut Notify,
    ) -> bool {
        let Some(word) = self.word(port) else {
            state.remembered = true;
            return false;
        };
        let was_pending = word.fetch_or(PENDING, Ordering::SeqCst) & PENDING != 0;
        self.link(pages, port, state, out);
        !was_pending
    }

    /// Unmasks the port; a pending event is delivered now.
    pub fn unmask(&mut self, pages: &dyn VcpuPages, port: u32, state: &mut Port, out: &mut Notify) {
        let Some(word) = self.word(port) else { return };
        if word.fetch_and(!MASKED, Ordering::SeqCst) & PENDING != 0 {
            self.link(pages, port, state, out);
        }
    }

    /// Puts a pending port on its queue unless it is masked or on one already.
    fn link(&mut self, pages: &dyn VcpuPages, port: u32, state: &mut Port, out: &mut Notify) {
        let Some(word) = self.word(port) else { return };
        if word.load(Ordering::SeqCst) & (MASKED | LINKED) != 0 {
            return;
        }
        let (vcpu, priority) = (state.vcpu, usize::from(state.priority));
        // An event for a vCPU that cannot receive any yet is dropped; it stays pending in its word.
        let Some(queues) = self.queues.get(vcpu as usize) else {
            return;
        };
        if queues.control.is_none() {
            return;
        }
        if word.fetch_or(LINKED, Ordering::SeqCst) & LINKED != 0 {
            return;
        }
        self.leave_old_queue(port, state);
        let Some(queues) = self.queues.get(vcpu as usize) else {
            return;
        };
        let Some((frame, offset)) = &queues.control else {
            return;
        };
        let tail = queues.tails[priority];
        let appended = tail != 0 && self.word(tail).is_some_and(|w| append(w, port));
        if !appended {
            frame
                .atomic_u32(offset + HEAD + priority * 4)
                .store(port, Ordering::SeqCst);
            let ready = frame.atomic_u32(offset + READY);
            if ready.fetch_or(1 << priority, Ordering::SeqCst) & 1 << priority == 0 {
                mark_upcall(pages, vcpu, out);
            }
        }
        if let Some(queues) = self.queues.get_mut(vcpu as usize) {
            queues.tails[priority] = port;
        }
    }

    /// The queue that the port was on before must not take it for its tail any more, even if it is the same queue: the
    /// port was consumed there, and its LINKED bit now speaks of its new place.
    fn leave_old_queue(&mut self, port: u32, state: &mut Port) {
        let (vcpu, priority) = state.last_queue;
        if let Some(old) = self.queues.get_mut(vcpu as usize)
            && let Some(tail) = old.tails.get_mut(usize::from(priority))
            && *tail == port
        {
            *tail = 0;
        }
        state.last_queue = (state.vcpu, state.priority);
    }
}

/// Appends `port` behind the port whose word is `tail`. False if that one has been consumed, so that the queue is empty.
fn append(tail: &AtomicU32, port: u32) -> bool {
    if let Some(done) = try_append(tail, port) {
        return done;
    }
    // The guest keeps changing the word; this bit asks it to hold still. A guest that does not breaks its own queue:
    // starting it afresh is the most that can be done for it.
    tail.fetch_or(BUSY, Ordering::SeqCst);
    let done = try_append(tail, port) == Some(true);
    if !done {
        tail.fetch_and(!BUSY, Ordering::SeqCst);
    }
    done
}

/// A few attempts of [`append`]; `None` if the word changed each time. Success also ends BUSY.
fn try_append(tail: &AtomicU32, port: u32) -> Option<bool> {
    let mut old = tail.load(Ordering::SeqCst);
    for _ in 0..LINK_TRIES {
        if old & LINKED == 0 {
            return Some(false);
        }
        let new = old & !(BUSY | LINK) | port;
        match tail.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return Some(true),
            Err(now) => old = now,
        }
    }
    None
}
