//! The handles that a domain has for its mappings of other domains' pages.

use alloc::sync::Arc;
use alloc::vec::Vec;

use x86_model::{Gfn, Mfn};

use super::GrantTable;

/// Handles are made in chunks of this many, so that a large table never has to be moved.
const CHUNK: u32 = 256;

/// A mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The granting domain's table, alive as long as the mapping even if the domain is not.
    pub table: Arc<GrantTable>,
    /// Reference in it.
    pub reference: u32,
    /// Where it is mapped.
    pub gfn: Gfn,
    /// What is mapped.
    pub mfn: Mfn,
    /// Writable.
    pub write: bool,
}

enum Handle {
    Free {
        next: Option<u32>,
    },
    /// Being made or removed: cannot be used by anyone else.
    Reserved,
    Mapped(Mapping),
}

/// All handles of a domain.
pub struct Maptrack {
    chunks: Vec<Vec<Handle>>,
    first_free: Option<u32>,
    limit: u32,
    in_use: u32,
}

impl Maptrack {
    /// At most `limit` handles.
    pub const fn new(limit: u32) -> Self {
        Maptrack {
            chunks: Vec::new(),
            first_free: None,
            limit,
            in_use: 0,
        }
    }

    /// Handles in use.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    fn slot(&mut self, handle: u32) -> Option<&mut Handle> {
        self.chunks
            .get_mut((handle / CHUNK) as usize)?
            .get_mut((handle % CHUNK) as usize)
    }

    /// Reserves a handle. `None` at the limit or without memory.
    pub fn reserve(&mut self) -> Option<u32> {
        if self.first_free.is_none() {
            self.grow()?;
        }
        let handle = self.first_free?;
        let slot = self.slot(handle)?;
        let Handle::Free { next } = *slot else {
            return None;
        };
        *slot = Handle::Reserved;
        self.first_free = next;
        self.in_use += 1;
        Some(handle)
    }

    fn grow(&mut self) -> Option<()> {
        let first = self.chunks.len() as u32 * CHUNK;
        let count = self.limit.checked_sub(first)?.min(CHUNK);
        if count == 0 {
            return None;
        }
        let mut chunk = Vec::new();
        chunk.try_reserve_exact(count as usize).ok()?;
        self.chunks.try_reserve(1).ok()?;
        chunk.extend((first + 1..=first + count).map(|next| Handle::Free {
            next: (next < first + count).then_some(next),
        }));
        self.chunks.push(chunk);
        self.first_free = Some(first);
        Some(())
    }

    /// Gives a reserved handle its mapping.
    pub fn commit(&mut self, handle: u32, mapping: Mapping) {
        if let Some(slot @ Handle::Reserved) = self.slot(handle) {
            *slot = Handle::Mapped(mapping);
        }
    }

    /// The mapping of a handle.
    pub fn get(&mut self, handle: u32) -> Option<&Mapping> {
        match self.slot(handle)? {
            Handle::Mapped(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// Takes a handle's mapping out and keeps the handle reserved.
    pub fn take(&mut self, handle: u32) -> Option<Mapping> {
        let slot = self.slot(handle)?;
        match core::mem::replace(slot, Handle::Reserved) {
            Handle::Mapped(mapping) => Some(mapping),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Frees a reserved handle.
    pub fn release(&mut self, handle: u32) {
        let next = self.first_free;
        if let Some(slot @ Handle::Reserved) = self.slot(handle) {
            *slot = Handle::Free { next };
            self.first_free = Some(handle);
            self.in_use -= 1;
        }
    }

    /// One past the highest handle that exists.
    pub fn len(&self) -> u32 {
        self.chunks.iter().map(|c| c.len() as u32).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_reused_and_limited() {
        let mut m = Maptrack::new(300);
        let all: Vec<_> = (0..300)
            .map(|_| m.reserve().expect("below the limit"))
            .collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..300));
        assert_eq!(m.reserve(), None);
        m.release(7);
        m.release(7);
        m.release(299);
        m.release(5000);
        assert_eq!(m.in_use(), 298);
        assert_eq!(m.reserve(), Some(299));
        assert_eq!(m.reserve(), Some(7));
        assert_eq!(m.reserve(), None);
        assert!(m.take(7).is_none());
        assert!(m.get(7).is_none());
    }
}
