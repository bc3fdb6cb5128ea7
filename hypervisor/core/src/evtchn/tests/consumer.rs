//! A guest that consumes FIFO queues the way Linux does: take the ready bits, follow the heads, unlink, handle.

use std::sync::atomic::Ordering;

use hv_hw::mem::FrameRef;

use super::*;

pub const PENDING: u32 = 1 << 31;
pub const MASKED: u32 = 1 << 30;
pub const LINKED: u32 = 1 << 29;
const LINK: u32 = (1 << 17) - 1;

/// The guest's half of the FIFO format.
pub struct Guest {
    pub pages: Vec<FrameRef>,
    pub control: Vec<Option<FrameRef>>,
    heads: Vec<[u32; 16]>,
}

/// Offset of every control block in its page.
pub const CONTROL_AT: u32 = 64;

impl Guest {
    /// Registers control blocks for the vCPUs and `pages` array pages whose events are masked, as Linux does.
    pub fn start(d: &Domain, vcpus: &[u32], pages: usize) -> Self {
        let mut guest = Guest {
            pages: Vec::new(),
            control: vec![None; VCPUS as usize],
            heads: vec![[0; 16]; VCPUS as usize],
        };
        for &v in vcpus {
            guest.add_control(d, v);
        }
        for _ in 0..pages {
            let _ = guest.add_page(d);
        }
        guest
    }

    pub fn add_control(&mut self, d: &Domain, vcpu: u32) {
        let frame = FrameRef::alloc(d.id).expect("fake memory");
        let bits = d.evtchn.init_control(vcpu, Some(frame.clone()), CONTROL_AT);
        assert_eq!(bits, Ok(17));
        self.control[vcpu as usize] = Some(frame);
    }

    pub fn add_page(&mut self, d: &Domain) -> Notify {
        let frame = FrameRef::alloc(d.id).expect("fake memory");
        for word in 0..1024 {
            frame.atomic_u32(word * 4).store(MASKED, Ordering::SeqCst);
        }
        self.pages.push(frame.clone());
        d.evtchn
            .expand_array(d, Some(frame))
            .expect("room for a page")
    }

    pub fn word(&self, port: u32) -> &std::sync::atomic::AtomicU32 {
        self.pages[port as usize / 1024].atomic_u32(port as usize % 1024 * 4)
    }

    /// Unmasks without the hypercall, for ports that are not pending.
    pub fn open(&self, port: u32) {
        self.word(port).fetch_and(!MASKED, Ordering::SeqCst);
    }

    fn control(&self, vcpu: u32) -> (&FrameRef, usize) {
        let frame = self.control[vcpu as usize].as_ref().expect("control block");
        (frame, CONTROL_AT as usize)
    }

    fn take_ready(&self, vcpu: u32) -> u32 {
        let (frame, at) = self.control(vcpu);
        frame.atomic_u32(at).swap(0, Ordering::SeqCst)
    }

    /// Handles events of a vCPU until none is ready; (priority, port) in the order of handling.
    pub fn drain(&mut self, vcpu: u32) -> Vec<(u32, u32)> {
        let mut handled = Vec::new();
        let mut ready = self.take_ready(vcpu);
        // Enough for every port of every test, so that a corrupted queue fails instead of hanging.
        for _ in 0..100_000 {
            if ready == 0 {
                return handled;
            }
            let priority = ready.trailing_zeros();
            if let Some(port) = self.consume_one(vcpu, priority, &mut ready) {
                handled.push((priority, port));
            }
            ready |= self.take_ready(vcpu);
        }
        panic!("the queue does not end");
    }

    /// Takes one event off a queue; its port if it is to be handled.
    pub fn consume_one(&mut self, vcpu: u32, priority: u32, ready: &mut u32) -> Option<u32> {
        let mut port = self.heads[vcpu as usize][priority as usize];
        if port == 0 {
            let (frame, at) = self.control(vcpu);
            port = frame
                .atomic_u32(at + 8 + priority as usize * 4)
                .load(Ordering::SeqCst);
        }
        let next = self.unlink(port);
        if next == 0 {
            *ready &= !(1 << priority);
        }
        self.heads[vcpu as usize][priority as usize] = next;
        let word = self.word(port);
        if word.load(Ordering::SeqCst) & MASKED != 0 {
            return None;
        }
        (word.fetch_and(!PENDING, Ordering::SeqCst) & PENDING != 0).then_some(port)
    }

    fn unlink(&self, port: u32) -> u32 {
        let word = self.word(port);
        let mut old = word.load(Ordering::SeqCst);
        loop {
            let new = old & !(LINKED | LINK);
            match word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return old & LINK,
                Err(now) => old = now,
            }
        }
    }
}
