//! Allocation of TLB tags (ASIDs) on one CPU. Tags are handed out in order and never given back; when they run out, a
//! new generation starts with a flush of the whole TLB, and every tag of an older generation is void.

/// A tag and the generation it belongs to. The default belongs to no generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsidTag {
    /// Value for the VMCB; never 0 once allocated.
    pub asid: u32,
    /// Generation of the pool at allocation.
    pub generation: u64,
}

/// One CPU's tags.
#[derive(Debug)]
pub struct AsidPool {
    next: u32,
    count: u32,
    generation: u64,
}

impl AsidPool {
    /// A pool of the tags `1 .. count` (tag 0 is the host's). The first tag comes with a flush.
    pub const fn new(count: u32) -> Self {
        AsidPool {
            next: u32::MAX,
            count: if count < 2 { 2 } else { count },
            // Not the generation of a default tag.
            generation: 1,
        }
    }

    /// The generation whose tags are valid.
    #[inline]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// A fresh tag, and whether the whole TLB must be flushed before it is used.
    pub const fn take(&mut self) -> (AsidTag, bool) {
        let flush = self.next >= self.count;
        if flush {
            self.generation += 1;
            self.next = 1;
        }
        let asid = self.next;
        self.next += 1;
        let tag = AsidTag {
            asid,
            generation: self.generation,
        };
        (tag, flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_roll_over_with_a_flush() {
        for count in [0, 1, 2, 3, 16] {
            let mut pool = AsidPool::new(count);
            let per_generation = count.max(2) - 1;
            assert_ne!(pool.generation(), AsidTag::default().generation);
            for round in 2..5 {
                for i in 1..=per_generation {
                    let (tag, flush) = pool.take();
                    assert_eq!((tag.asid, tag.generation, flush), (i, round, i == 1));
                    assert_eq!(tag.generation, pool.generation());
                }
            }
        }
    }

    #[test]
    fn a_tag_is_never_live_twice() {
        let mut pool = AsidPool::new(5);
        let mut live = std::vec::Vec::new();
        for _ in 0..100 {
            let (tag, flush) = pool.take();
            if flush {
                live.clear();
            }
            assert!(tag.asid >= 1 && tag.asid < 5 && !live.contains(&tag.asid));
            live.push(tag.asid);
        }
    }
}
