//! Fake domains with a map of frames; entries are written as a guest writes them.

mod copies;
mod maps;
mod model;
mod versions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hv_hw::mem::FrameRef;
use x86_model::{Gfn, Mfn};
use xen_abi::grant_table::{
    GnttabCopy, GnttabMapGrantRef, GnttabUnmapGrantRef, gntmap, gtf, status,
};
use xen_abi::{DomId, Errno};

use super::{GrantHost, GrantTable, Limits};

/// Memory: frame, writable, granted by another domain.
type Memory = HashMap<u64, (FrameRef, bool, bool)>;

pub struct Domain {
    pub id: DomId,
    pub grants: Arc<GrantTable>,
    pub memory: Mutex<Memory>,
    pub flushes: std::sync::atomic::AtomicU32,
    /// Looks at the world when this domain's translations are flushed.
    pub at_flush: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl GrantHost for Domain {
    fn id(&self) -> DomId {
        self.id
    }
    fn grants(&self) -> &Arc<GrantTable> {
        &self.grants
    }
    fn own_frame(&self, gfn: Gfn) -> Option<(FrameRef, bool)> {
        let memory = self.memory.lock().unwrap();
        let (frame, writable, foreign) = memory.get(&gfn.0)?;
        (!foreign).then(|| (frame.clone(), *writable))
    }
    fn map_grant(&self, gfn: Gfn, frame: FrameRef, write: bool) -> Result<(), Errno> {
        let mut memory = self.memory.lock().unwrap();
        if gfn.0 >> 36 != 0 || memory.contains_key(&gfn.0) {
            return Err(Errno::EINVAL);
        }
        memory.insert(gfn.0, (frame, write, true));
        Ok(())
    }
    fn unmap_grant(&self, gfn: Gfn, mfn: Mfn) -> Result<FrameRef, Errno> {
        let mut memory = self.memory.lock().unwrap();
        match memory.get(&gfn.0) {
            Some((frame, _, true)) if frame.mfn() == mfn => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(memory.remove(&gfn.0).unwrap().0)
    }
    fn flush(&self) {
        self.flushes
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if let Some(look) = &*self.at_flush.lock().unwrap() {
            look();
        }
    }
}

/// First frame of the domains' RAM, and how many there are; below and above are holes.
pub const RAM: u64 = 0x100;
pub const RAM_FRAMES: u64 = 8;
/// A frame of RAM that may only be read.
pub const READ_ONLY: u64 = RAM + RAM_FRAMES - 1;

impl Domain {
    pub fn new(id: u16, limits: Limits) -> Arc<Self> {
        hv_hw::host::arena::init();
        let memory = (RAM..RAM + RAM_FRAMES)
            .map(|gfn| {
                let frame = FrameRef::alloc(DomId(id)).expect("fake memory");
                (gfn, (frame, gfn != READ_ONLY, false))
            })
            .collect();
        Arc::new(Domain {
            id: DomId(id),
            grants: GrantTable::new(DomId(id), limits),
            memory: Mutex::new(memory),
            flushes: 0.into(),
            at_flush: Mutex::new(None),
        })
    }

    pub fn frame(&self, gfn: u64) -> FrameRef {
        self.memory.lock().unwrap()[&gfn].0.clone()
    }

    /// References to a frame besides the domain's own memory map.
    pub fn extra_references(&self, gfn: u64) -> u32 {
        let mfn = self.memory.lock().unwrap()[&gfn].0.mfn();
        hv_hw::mem::frames::count(mfn) - 1
    }

    /// Writes a version 1 entry.
    pub fn grant(&self, reference: u32, flags: u16, to: u16, gfn: u64) {
        let frame = self
            .grants
            .frame(reference / 512, false)
            .expect("table frame");
        let at = (reference % 512) as usize * 8;
        frame.write(at + 4, &(gfn as u32).to_le_bytes());
        frame.write(at + 2, &to.to_le_bytes());
        frame.write(at, &flags.to_le_bytes());
    }

    /// Reads a version 1 entry's flags.
    pub fn flags(&self, reference: u32) -> u16 {
        let frame = self
            .grants
            .frame(reference / 512, false)
            .expect("table frame");
        let mut bytes = [0; 2];
        frame.read((reference % 512) as usize * 8, &mut bytes);
        u16::from_le_bytes(bytes)
    }
}

pub struct World(pub Vec<Arc<Domain>>);

impl World {
    pub fn new() -> Self {
        Self::with(Limits {
            max_frames: 4,
            max_handles: 1000,
            max_version: 2,
        })
    }
    pub fn with(limits: Limits) -> Self {
        World((0..3).map(|id| Domain::new(id, limits)).collect())
    }
    pub fn dom(&self, id: usize) -> &Domain {
        &self.0[id]
    }
    pub fn find(&self, id: DomId) -> Option<Arc<Domain>> {
        self.0.iter().find(|d| d.id == id).cloned()
    }
    /// Maps; the status and the answer.
    pub fn map(
        &self,
        by: usize,
        from: u16,
        reference: u32,
        gfn: u64,
        flags: u32,
    ) -> (i16, GnttabMapGrantRef) {
        let mut op = GnttabMapGrantRef {
            host_addr: gfn << 12,
            flags,
            reference,
            dom: DomId(from),
            ..Default::default()
        };
        super::map(self.dom(by), &mut op, |id| self.find(id));
        (op.status, op)
    }
    pub fn unmap(&self, by: usize, handle: u32, gfn: u64) -> i16 {
        let mut ops = [GnttabUnmapGrantRef {
            host_addr: gfn << 12,
            handle,
            status: 77,
            ..Default::default()
        }];
        super::unmap(self.dom(by), &mut ops);
        ops[0].status
    }
    pub fn copy(&self, by: usize, op: GnttabCopy) -> i16 {
        let mut op = op;
        super::copy(self.dom(by), &mut op, |id| self.find(id));
        op.status
    }
}

pub const RW: u32 = gntmap::HOST_MAP;
pub const RO: u32 = gntmap::HOST_MAP | gntmap::READONLY;
