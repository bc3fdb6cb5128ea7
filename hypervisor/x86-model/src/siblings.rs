//! Which CPUs share a core with another: for `smt=off`.

/// Bits of the APIC ID that number the threads of a core, from CPUID: `leaf_b` is leaf 0xb, sub-leaf 0, where the CPU has
/// it (EAX bits 4:0 are the shift if ECX bits 15:8 say "thread", 1); `leaf_1e` is AMD's leaf 0x8000_001e (EBX bits 15:8 are
/// threads per core less 1). 0 without either.
pub const fn thread_bits(leaf_b: Option<[u32; 4]>, leaf_1e: Option<[u32; 4]>) -> u32 {
    if let Some([eax, ebx, ecx, _]) = leaf_b
        && ebx != 0
        && ecx >> 8 & 0xff == 1
    {
        return eax & 31;
    }
    match leaf_1e {
        Some([_, ebx, ..]) => 32 - (ebx >> 8 & 0xff).leading_zeros(),
        None => 0,
    }
}

/// Whether the CPU with this APIC ID shares its core with one that is used in its stead: the boot CPU, or else the one
/// with the lowest ID. `ids` are all CPUs.
pub fn is_sibling(id: u32, boot_id: u32, ids: impl Iterator<Item = u32>, thread_bits: u32) -> bool {
    if id == boot_id {
        return false;
    }
    let core = |id: u32| id.checked_shr(thread_bits).unwrap_or(0);
    core(id) == core(boot_id)
        || ids
            .into_iter()
            .any(|other| other < id && core(other) == core(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn thread_bits_by_either_leaf() {
        assert_eq!(thread_bits(Some([1, 2, 0x100, 0]), Some([0, 0, 0, 0])), 1);
        assert_eq!(thread_bits(Some([0, 1, 0x100, 0]), None), 0);
        // Sub-leaf 0 describes cores: no threads.
        assert_eq!(thread_bits(Some([4, 8, 0x200, 0]), None), 0);
        assert_eq!(thread_bits(Some([0, 0, 0, 0]), Some([0, 0x100, 0, 0])), 1);
        assert_eq!(thread_bits(None, Some([0, 0x300, 0, 0])), 2);
        assert_eq!(thread_bits(None, Some([0, 0, 0, 0])), 0);
        assert_eq!(thread_bits(None, None), 0);
    }

    proptest! {
        /// Each core keeps exactly one CPU, and the boot CPU's core keeps that one.
        #[test]
        fn one_cpu_of_each_core_stays(ids in proptest::collection::btree_set(0u32..200, 1..60), bits in 0u32..4, boot in any::<prop::sample::Index>()) {
            let all: std::vec::Vec<u32> = ids.iter().copied().collect();
            let boot = all[boot.index(all.len())];
            let mut kept = BTreeMap::new();
            for &id in &all {
                let stays = !is_sibling(id, boot, all.iter().copied(), bits);
                *kept.entry(id >> bits).or_insert(0) += u32::from(stays);
            }
            prop_assert!(kept.values().all(|&n| n == 1));
            prop_assert!(!is_sibling(boot, boot, all.iter().copied(), bits));
        }
    }
}
