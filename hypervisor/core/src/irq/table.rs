//! The table of bound interrupts, by number and by place.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hv_hw::machine::CpuId;
use hv_hw::sync::{SpinLock, rank};
use hv_hw::{Hw, Machine};
use x86_model::interrupt::moving::{Arrival, Moving, Place, Wish};
use x86_model::interrupt::vectors;

use super::{Binding, IrqId, Source};

/// A bound interrupt.
#[derive(Clone, Debug)]
pub struct Irq {
    /// Whose it is, and what raises it.
    pub binding: Binding,
    /// Where it arrives.
    pub moving: Moving,
    /// When it was last moved, in ns since boot.
    pub moved_at: u64,
    /// Arrivals, and those of them at an old place.
    pub arrivals: (u64, u64),
    /// Moves.
    pub moves: u64,
}

/// What the table knows of an interrupt that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its number.
    pub id: IrqId,
    /// Whose it is.
    pub binding: Binding,
    /// What the arrival means for its last move.
    pub arrival: Arrival,
    /// Where its source sends now.
    pub at: Place,
    /// Where it should go, now that it can.
    pub wish: Option<u32>,
}

/// A begun move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// From here.
    pub from: Place,
    /// To here.
    pub to: Place,
}

#[derive(Default)]
struct Tables {
    irqs: BTreeMap<IrqId, Irq>,
    places: BTreeMap<Place, IrqId>,
    last: u64,
}

/// The table.
pub struct IrqMap {
    tables: SpinLock<Tables, { rank::IRQ }>,
}

impl Default for IrqMap {
    fn default() -> Self {
        Self::new()
    }
}

const fn cpu(place: Place) -> CpuId {
    CpuId(place.cpu)
}

/// Gives a vector back, unless it is the same vector, of CPUs that share theirs, as one of `kept`.
fn free(hw: &Hw, place: Place, mut kept: impl Iterator<Item = Place>) {
    let shared = |k: Place| k.vector == place.vector && hw.shares_vectors(cpu(k), cpu(place));
    if !kept.any(shared) {
        hw.free_vector(cpu(place), place.vector);
    }
}

impl IrqMap {
    /// An empty table.
    pub const fn new() -> Self {
        IrqMap {
            tables: SpinLock::new(Tables {
                irqs: BTreeMap::new(),
                places: BTreeMap::new(),
                last: 0,
            }),
        }
    }

    /// All interrupts.
    pub fn all(&self) -> Vec<(IrqId, Irq)> {
        let tables = self.tables.lock();
        tables.irqs.iter().map(|(id, i)| (*id, i.clone())).collect()
    }

    /// Lets a CPU take interrupts, or no new ones. Who binds or moves one at the same time comes before or after.
    pub fn set_online(&self, hw: &Hw, on: CpuId, online: bool) {
        let _tables = self.tables.lock();
        hw.set_online(on, online);
    }

    /// Binds a free vector of this CPU; `None` if there is none, or the CPU takes no interrupts.
    pub fn bind(&self, hw: &Hw, on: CpuId, binding: Binding) -> Option<IrqId> {
        let mut tables = self.tables.lock();
        // Under the lock: a CPU that goes away has stopped to be online before its interrupts are looked for.
        if !hw.is_online(on) {
            return None;
        }
        let at = Place {
            cpu: on.0,
            vector: hw.alloc_vector(on)?,
        };
        tables.last += 1;
        let id = IrqId(tables.last);
        tables.places.insert(at, id);
        tables.irqs.insert(
            id,
            Irq {
                binding,
                moving: Moving::new(at),
                moved_at: 0,
                arrivals: (0, 0),
                moves: 0,
            },
        );
        Some(id)
    }

    /// Drops an interrupt, whose source is off.
    pub fn unbind(&self, hw: &Hw, id: IrqId) {
        let mut tables = self.tables.lock();
        let Some(irq) = tables.irqs.remove(&id) else {
            return;
        };
        for (n, place) in irq.moving.places().enumerate() {
            tables.places.remove(&place);
            free(hw, place, irq.moving.places().take(n));
        }
    }

    /// Replaces what an interrupt means.
    pub fn set_source(&self, id: IrqId, source: Source) {
        if let Some(irq) = self.tables.lock().irqs.get_mut(&id) {
            irq.binding.source = source;
        }
    }

    /// Whose an interrupt is, and what raises it.
    pub fn binding(&self, id: IrqId) -> Option<Binding> {
        Some(self.tables.lock().irqs.get(&id)?.binding)
    }

    /// Where an interrupt's source sends it.
    pub fn place(&self, id: IrqId) -> Option<Place> {
        Some(self.tables.lock().irqs.get(&id)?.moving.at())
    }

    /// An interrupt arrived. `None` if the vector is not bound.
    pub fn arrived(&self, at: Place) -> Option<Seen> {
        let mut tables = self.tables.lock();
        let id = *tables.places.get(&at)?;
        let irq = tables.irqs.get_mut(&id)?;
        let arrival = irq.moving.arrived(at);
        irq.arrivals.0 += 1;
        irq.arrivals.1 += u64::from(arrival == Arrival::Late);
        Some(Seen {
            id,
            binding: irq.binding,
            arrival,
            at: irq.moving.at(),
            wish: irq.moving.take_wish(),
        })
    }

    /// Its target is at home on this CPU. True if it has been so for long enough to follow.
    pub fn follow(&self, id: IrqId, home: u32) -> bool {
        let mut tables = self.tables.lock();
        tables
            .irqs
            .get_mut(&id)
            .is_some_and(|irq| irq.moving.is_settled() && irq.moving.follow(home))
    }

    /// The interrupt should be on this CPU from its next arrival on.
    pub fn wish(&self, id: IrqId, on: u32) {
        if let Some(irq) = self.tables.lock().irqs.get_mut(&id) {
            irq.moving.wish(on);
        }
    }

    /// The interrupt should be on this CPU.
    pub fn want(&self, id: IrqId, on: u32) -> Wish {
        let mut tables = self.tables.lock();
        let irq = tables.irqs.get_mut(&id);
        irq.map_or(Wish::There, |irq| irq.moving.want(on))
    }

    /// Takes a vector of this CPU for an interrupt that moves there. The source is not told yet. With `two_steps` the vector
    /// has been taken on the old CPU too, since the source may pass through it there: each half of its message is written
    /// on its own. `None` if the last move is not over, no vector is free, or the CPU takes no interrupts.
    pub fn begin(&self, hw: &Hw, id: IrqId, on: CpuId, two_steps: bool) -> Option<Move> {
        let mut tables = self.tables.lock();
        let tables = &mut *tables;
        let irq = tables.irqs.get_mut(&id)?;
        let from = irq.moving.at();
        if !irq.moving.is_settled() || from.cpu == on.0 || !hw.is_online(on) {
            return None;
        }
        let (vector, on_both) = if hw.shares_vectors(cpu(from), on) {
            (from.vector, false)
        } else if !two_steps {
            (hw.alloc_vector(on)?, false)
        } else if hw.take_vector(on, from.vector) {
            (from.vector, false)
        } else {
            (take_on_both(hw, cpu(from), on)?, true)
        };
        let to = Place { cpu: on.0, vector };
        let by = on_both.then_some(Place {
            cpu: from.cpu,
            vector,
        });
        irq.moving.begin(to, by);
        irq.moved_at = hw.now_ns();
        irq.moves += 1;
        for place in [to].into_iter().chain(by) {
            tables.places.insert(place, id);
        }
        Some(Move { from, to })
    }

    /// This CPU looks at its old vectors and gives those back on which nothing waits. True if it must look again after its
    /// next interrupts.
    pub fn clean(&self, hw: &Hw, on: CpuId) -> bool {
        let mut tables = self.tables.lock();
        let tables = &mut *tables;
        let mut again = false;
        for irq in tables.irqs.values_mut() {
            for old in irq.moving.old_on(on.0) {
                if hw.vector_waits(old.vector) {
                    again = true;
                } else if irq.moving.quiet(old) {
                    tables.places.remove(&old);
                    free(hw, old, irq.moving.places());
                }
            }
        }
        again
    }

    /// What keeps a CPU from losing all of its interrupts: those that arrive there and can move, and the CPUs that must look
    /// at an old vector first. A move that is older than `settle_ns` counts as seen by its source.
    pub fn left_on(&self, on: CpuId, now_ns: u64, settle_ns: u64) -> (Vec<(IrqId, Irq)>, Vec<u32>) {
        let mut tables = self.tables.lock();
        let (mut movable, mut lookers) = (Vec::new(), Vec::new());
        for (id, irq) in &mut tables.irqs {
            if irq.moving.places().all(|p| p.cpu != on.0) {
                continue;
            }
            if irq.moving.is_settled() {
                movable.push((*id, irq.clone()));
                continue;
            }
            if now_ns.saturating_sub(irq.moved_at) > settle_ns {
                irq.moving.confirm();
            }
            lookers.extend(irq.moving.places().skip(1).map(|p| p.cpu));
        }
        (movable, lookers)
    }

    /// Interrupts bound.
    pub fn len(&self) -> usize {
        self.tables.lock().irqs.len()
    }

    /// Whether no interrupt is bound.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes a vector that is free on both CPUs.
fn take_on_both(hw: &Hw, one: CpuId, other: CpuId) -> Option<u8> {
    (vectors::FIRST..=vectors::LAST).find(|&v| {
        if !hw.take_vector(one, v) {
            return false;
        }
        let both = hw.take_vector(other, v);
        if !both {
            hw.free_vector(one, v);
        }
        both
    })
}
