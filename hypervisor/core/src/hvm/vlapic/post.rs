//! The half of a virtual local APIC that other CPUs see: interrupts posted to it and the facts by which it is
//! addressed. All atomics, no lock; the vCPU's own run loop merges it at guest entry, as hardware merges a
//! posted-interrupt descriptor.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use x86_model::apic::{ApicMode, DeliveryMode, x2apic_ldr};

/// By what an APIC is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicFacts {
    /// APIC id.
    pub id: u32,
    /// Mode.
    pub mode: ApicMode,
    /// Software-enabled (SVR bit 8); only vectors need it, not NMI, INIT and start-up.
    pub software_enabled: bool,
    /// Logical id: bits 31:24 of LDR in xAPIC mode as 8 bits, all 32 bits in x2APIC mode.
    pub ldr: u32,
    /// xAPIC cluster model (else flat).
    pub cluster: bool,
}

const FACT_ENABLED: u32 = 1 << 2;
const FACT_CLUSTER: u32 = 1 << 3;

const FLAG_NMI: u32 = 1;
const FLAG_INIT: u32 = 1 << 1;
const FLAG_SIPI: u32 = 1 << 2;
const FLAG_SIPI_SHIFT: u32 = 8;

/// Posted interrupts and addressing facts of one vCPU. Lives in the vCPU's shared half.
#[derive(Debug)]
pub struct LapicPost {
    id: u32,
    /// Something is posted that the run loop has not merged.
    pending: AtomicBool,
    irr: [AtomicU64; 4],
    level: [AtomicU64; 4],
    flags: AtomicU32,
    /// Mode (1:0), enabled, cluster, xAPIC logical id (31:24).
    facts: AtomicU32,
}

/// What a merge found besides vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// An NMI.
    pub nmi: bool,
    /// INIT. When a start-up IPI came too, it came after.
    pub init: bool,
    /// Start-up IPI with its vector; meant only for a vCPU that waits for one.
    pub sipi: Option<u8>,
}

impl LapicPost {
    /// For a vCPU whose APIC is in its reset state.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            pending: AtomicBool::new(false),
            irr: Default::default(),
            level: Default::default(),
            flags: AtomicU32::new(0),
            facts: AtomicU32::new(ApicMode::XApic as u32),
        }
    }

    /// Delivers an interrupt. True if nothing was pending before: then the caller must wake or kick the vCPU. Modes that
    /// no virtual device has (SMI, ExtINT) are dropped.
    pub fn deliver(&self, mode: DeliveryMode, vector: u8, level: bool) -> bool {
        match mode {
            DeliveryMode::Fixed | DeliveryMode::LowestPriority => self.vector(vector, level),
            DeliveryMode::Nmi => self.flag(|_| FLAG_NMI),
            // INIT takes back a start-up IPI that was not acted upon.
            DeliveryMode::Init => {
                self.flags
                    .fetch_and(!(FLAG_SIPI | 0xff << FLAG_SIPI_SHIFT), Ordering::Relaxed);
                self.flag(|_| FLAG_INIT)
            }
            // The first start-up IPI counts.
            DeliveryMode::Startup => self.flag(|old| {
                if old & FLAG_SIPI != 0 {
                    0
                } else {
                    FLAG_SIPI | u32::from(vector) << FLAG_SIPI_SHIFT
                }
            }),
            DeliveryMode::Smi | DeliveryMode::Reserved | DeliveryMode::ExtInt => false,
        }
    }

    /// Delivers a vector; result as for [`LapicPost::deliver`]. Vectors below 16 are recorded too: the receiving APIC
    /// turns them into an error.
    #[inline]
    pub fn vector(&self, vector: u8, level: bool) -> bool {
        let (word, bit) = (usize::from(vector >> 6), 1u64 << (vector & 63));
        // Written only on change: nearly all interrupts are edge.
        let was_level = self.level[word].load(Ordering::Relaxed) & bit != 0;
        if level && !was_level {
            self.level[word].fetch_or(bit, Ordering::Relaxed);
        } else if !level && was_level {
            self.level[word].fetch_and(!bit, Ordering::Relaxed);
        }
        self.irr[word].fetch_or(bit, Ordering::Release);
        !self.pending.swap(true, Ordering::AcqRel)
    }

    fn flag(&self, set: impl Fn(u32) -> u32) -> bool {
        let _ = self
            .flags
            .fetch_update(Ordering::Release, Ordering::Relaxed, |old| {
                Some(old | set(old))
            });
        !self.pending.swap(true, Ordering::AcqRel)
    }

    /// Whether a merge would find something. Cheap: checked before each guest entry and before blocking.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Takes all that is posted: request words, which of them are level, and the rest.
    pub(super) fn take(&self) -> ([u64; 4], [u64; 4], Merged) {
        // Cleared first: whoever posts after this sets it again.
        self.pending.swap(false, Ordering::AcqRel);
        let mut irr = [0; 4];
        let mut level = [0; 4];
        for i in 0..4 {
            // A plain load first keeps the line shared when nothing is there.
            if self.irr[i].load(Ordering::Relaxed) != 0 {
                irr[i] = self.irr[i].swap(0, Ordering::Acquire);
                level[i] = self.level[i].load(Ordering::Relaxed) & irr[i];
            }
        }
        let flags = if self.flags.load(Ordering::Relaxed) != 0 {
            self.flags.swap(0, Ordering::Acquire)
        } else {
            0
        };
        let merged = Merged {
            nmi: flags & FLAG_NMI != 0,
            init: flags & FLAG_INIT != 0,
            sipi: (flags & FLAG_SIPI != 0).then_some((flags >> FLAG_SIPI_SHIFT) as u8),
        };
        (irr, level, merged)
    }

    /// Puts back level vectors that a software-disabled APIC did not accept, without raising `pending`: the sender would
    /// retry until the APIC is enabled.
    pub(super) fn put_back(&self, level: &[u64; 4]) {
        for (word, bits) in self.irr.iter().zip(level) {
            if *bits != 0 {
                word.fetch_or(*bits, Ordering::Relaxed);
            }
        }
    }

    /// Publishes the facts after a mode or logical-id change.
    pub(super) fn publish(&self, facts: &ApicFacts) {
        let mut packed = facts.mode as u32;
        if facts.software_enabled {
            packed |= FACT_ENABLED;
        }
        if facts.cluster {
            packed |= FACT_CLUSTER;
        }
        if facts.mode != ApicMode::X2Apic {
            packed |= facts.ldr << 24;
        }
        self.facts.store(packed, Ordering::Release);
    }

    /// The facts, as the vCPU last published them.
    pub fn facts(&self) -> ApicFacts {
        let packed = self.facts.load(Ordering::Acquire);
        let mode = match packed & 3 {
            0 => ApicMode::Disabled,
            1 => ApicMode::XApic,
            _ => ApicMode::X2Apic,
        };
        ApicFacts {
            id: self.id,
            mode,
            software_enabled: packed & FACT_ENABLED != 0,
            ldr: if mode == ApicMode::X2Apic {
                x2apic_ldr(self.id)
            } else {
                packed >> 24
            },
            cluster: packed & FACT_CLUSTER != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_post_asks_for_a_kick() {
        let p = LapicPost::new(2);
        assert!(!p.is_pending());
        assert!(p.deliver(DeliveryMode::Fixed, 0x31, true));
        assert!(!p.deliver(DeliveryMode::Fixed, 0xf0, false));
        let (irr, level, _) = p.take();
        assert_eq!(irr, [1 << 0x31, 0, 0, 1 << 0x30]);
        assert_eq!(level, [1 << 0x31, 0, 0, 0]);
        assert!(!p.is_pending());
    }

    #[test]
    fn last_trigger_mode_wins() {
        let p = LapicPost::new(0);
        p.vector(0x40, true);
        p.vector(0x40, false);
        assert_eq!(p.take().1, [0; 4]);
    }

    #[test]
    fn init_cancels_an_earlier_startup() {
        let p = LapicPost::new(0);
        p.deliver(DeliveryMode::Startup, 0x9f, false);
        p.deliver(DeliveryMode::Init, 0, false);
        assert_eq!(
            p.take().2,
            Merged {
                init: true,
                ..Merged::default()
            }
        );
        p.deliver(DeliveryMode::Init, 0, false);
        p.deliver(DeliveryMode::Startup, 0x9f, false);
        p.deliver(DeliveryMode::Startup, 0x11, false);
        assert_eq!(
            p.take().2,
            Merged {
                nmi: false,
                init: true,
                sipi: Some(0x9f)
            }
        );
    }

    #[test]
    fn facts_survive_packing() {
        let p = LapicPost::new(6);
        for mode in [ApicMode::Disabled, ApicMode::XApic, ApicMode::X2Apic] {
            let ldr = if mode == ApicMode::X2Apic {
                x2apic_ldr(6)
            } else {
                0xa5
            };
            let f = ApicFacts {
                id: 6,
                mode,
                software_enabled: true,
                ldr,
                cluster: mode == ApicMode::XApic,
            };
            p.publish(&f);
            assert_eq!(p.facts(), f);
        }
    }
}
