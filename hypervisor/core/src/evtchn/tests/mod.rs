//! Two or more fake domains with real (fake-machine) pages.

mod consumer;
mod fifo;
mod pairs;
mod two_level;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hv_hw::mem::FrameRef;
use xen_abi::shared_info::offset;
use xen_abi::{DomId, Errno};

use super::{Evtchn, Notify, PortOwner, Sent, VcpuPages};

/// A domain with nothing but event channels. vCPUs from 2 on have no vcpu_info.
pub struct Domain {
    pub id: DomId,
    pub evtchn: Evtchn,
    pub page: FrameRef,
}

pub const VCPUS: u32 = 3;

impl VcpuPages for Domain {
    fn vcpu_info(&self, vcpu: u32) -> Option<(&FrameRef, usize)> {
        (vcpu < 2).then_some((&self.page, vcpu as usize * offset::VCPU_INFO_SIZE))
    }
}

impl PortOwner for Domain {
    fn id(&self) -> DomId {
        self.id
    }
    fn evtchn(&self) -> &Evtchn {
        &self.evtchn
    }
}

impl Domain {
    pub fn new(id: u16, max_ports: u32) -> Arc<Self> {
        hv_hw::host::arena::init();
        let page = FrameRef::alloc(DomId(id)).expect("fake memory");
        Arc::new(Domain {
            id: DomId(id),
            evtchn: Evtchn::new(page.clone(), VCPUS, max_ports).expect("memory"),
            page,
        })
    }

    /// What the guest's upcall handler does first; whether there was an upcall.
    pub fn take_upcall(&self, vcpu: u32) -> bool {
        let (frame, at) = self.vcpu_info(vcpu).expect("vCPU with vcpu_info");
        frame.atomic_u8(at).swap(0, Ordering::SeqCst) != 0
    }

    /// 2-level: the guest's scan of one vCPU; clears what it finds.
    pub fn scan(&self, vcpu: u32) -> Vec<u32> {
        self.take_upcall(vcpu);
        let (frame, at) = self.vcpu_info(vcpu).expect("vCPU with vcpu_info");
        let sel = frame.atomic_u64(at + 8).swap(0, Ordering::SeqCst);
        let mut found = Vec::new();
        for word in (0..64).filter(|w| sel >> w & 1 != 0) {
            let mask = self
                .page
                .atomic_u64(offset::EVTCHN_MASK + word * 8)
                .load(Ordering::SeqCst);
            let pending = self.page.atomic_u64(offset::EVTCHN_PENDING + word * 8);
            let hits = pending.load(Ordering::SeqCst) & !mask;
            pending.fetch_and(!hits, Ordering::SeqCst);
            found.extend(
                (0..64)
                    .filter(|b| hits >> b & 1 != 0)
                    .map(|b| word as u32 * 64 + b),
            );
        }
        found
    }

    pub fn set_mask(&self, port: u32, masked: bool) {
        let word = self
            .page
            .atomic_u64(offset::EVTCHN_MASK + (port / 64) as usize * 8);
        if masked {
            word.fetch_or(1 << (port % 64), Ordering::SeqCst);
        } else {
            word.fetch_and(!(1 << (port % 64)), Ordering::SeqCst);
        }
    }

    pub fn status(&self, port: u32) -> Result<(u32, u32, [u32; 2]), Errno> {
        let mut query = xen_abi::event_channel::EvtchnStatus {
            port,
            ..Default::default()
        };
        self.evtchn.status(&mut query)?;
        Ok((query.status, query.vcpu, query.u))
    }
}

/// A set of domains to look others up in.
pub struct World(pub Vec<Arc<Domain>>);

impl World {
    pub fn new(max_ports: u32) -> Self {
        World((0..3).map(|id| Domain::new(id, max_ports)).collect())
    }
    pub fn find(&self, id: DomId) -> Option<Arc<Domain>> {
        self.0.iter().find(|d| d.id == id).cloned()
    }
    pub fn dom(&self, id: usize) -> &Domain {
        &self.0[id]
    }
    /// Sends; who was told what.
    pub fn send(&self, from: usize, port: u32) -> Result<(DomId, Notify), Errno> {
        Ok(
            match super::send(self.dom(from), port, |id| self.find(id))? {
                Sent::Local(n) => (self.dom(from).id, n),
                Sent::Peer(peer, n) => (peer.id, n),
            },
        )
    }
    pub fn close(&self, dom: usize, port: u32) -> Result<(), Errno> {
        super::close(self.dom(dom), port, |id| self.find(id))
    }
    /// Connects two domains; the ports of `a` (unbound first) and `b`.
    pub fn connect(&self, a: usize, b: usize) -> (u32, u32) {
        let (da, db) = (self.dom(a), self.dom(b));
        let pa = da.evtchn.alloc_unbound(db.id).expect("free port");
        let (pb, _) = super::bind_interdomain(db, da, pa).expect("waiting port");
        (pa, pb)
    }
}

pub fn upcalls(n: Notify) -> Vec<u32> {
    n.upcalls.iter().collect()
}
