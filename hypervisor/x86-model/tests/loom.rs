//! Every interleaving, and every reordering that the memory model allows, of the protocols that run without a lock. The
//! code under test is the machine's own; only its atomic cell is the checker's.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use x86_model::callin::{CallIn, Report, Stage, StopRequest};
use x86_model::interrupt::cluster::{Clusters, Slot};
use x86_model::interrupt::moving::{Arrival, Moving, Place};
use x86_model::interrupt::vectors::{self, VectorMap};
use x86_model::regs::apic::x2apic_ldr;
use x86_model::sync::Word;

struct Cell(AtomicU32);

impl Cell {
    fn new(value: u32) -> Self {
        Cell(AtomicU32::new(value))
    }
}

impl Word for Cell {
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_and(bits, order)
    }
    fn exchange(&self, current: u32, new: u32) -> Result<(), u32> {
        self.0
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

type Table = Clusters<Cell, 3>;

fn table() -> Arc<Table> {
    Arc::new(Clusters::new(std::array::from_fn(|_| {
        Slot::new(Cell::new(0), Cell::new(0))
    })))
}

/// The logical IDs of all clusters with members.
fn named(table: &Table) -> Vec<u32> {
    let ids = (0..table.len() as u16).filter_map(|slot| table.logical_id(slot, u16::MAX));
    ids.collect()
}

#[test]
fn cpus_that_join_at_once_share_their_clusters_slot() {
    loom::model(|| {
        let table = table();
        let others: Vec<_> = [1, 17]
            .into_iter()
            .map(|id| {
                let table = table.clone();
                thread::spawn(move || table.join(x2apic_ldr(id)))
            })
            .collect();
        let mine = table.join(x2apic_ldr(0));
        let places: Vec<_> = others.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(mine.is_some() && places.iter().all(Option::is_some));
        let mut ids = named(&table);
        ids.sort();
        assert_eq!(ids, [0x0000_0003, 0x0001_0002]);
        assert_eq!(table.len(), 2);
    });
}

#[test]
fn a_sender_names_who_is_known_to_be_up_and_nobody_who_left() {
    loom::model(|| {
        let table = table();
        let stays = table.join(x2apic_ldr(0)).unwrap();
        let gone = table.join(x2apic_ldr(1)).unwrap();
        table.leave(gone);
        let comes = {
            let table = table.clone();
            thread::spawn(move || table.join(x2apic_ldr(2)))
        };
        let leaves = {
            let table = table.clone();
            let also = table.join(x2apic_ldr(3)).unwrap();
            thread::spawn(move || table.leave(also))
        };
        let id = table.logical_id(stays.slot, u16::MAX).unwrap();
        assert_eq!(id & 0b0011, 0b0001);
        comes.join().unwrap();
        leaves.join().unwrap();
        assert_eq!(named(&table), [0x0000_0005]);
    });
}

#[test]
fn whoever_reads_a_place_can_send_to_it() {
    loom::model(|| {
        let table = table();
        let place = Arc::new(Cell::new(0));
        let cpu = {
            let (table, place) = (table.clone(), place.clone());
            thread::spawn(move || {
                let joined = table.join(x2apic_ldr(18)).unwrap();
                place.store(joined.pack(), Ordering::Release);
            })
        };
        let seen = place.load(Ordering::Acquire);
        if let Some(p) = x86_model::interrupt::cluster::Place::unpack(seen) {
            assert_eq!(table.logical_id(p.slot, p.bit), Some(x2apic_ldr(18)));
        }
        cpu.join().unwrap();
    });
}

#[test]
fn a_report_and_the_deadline_agree() {
    loom::model(|| {
        let shared = Arc::new((CallIn::new(Cell::new(0), Cell::new(0)), Cell::new(0)));
        let starting = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (call, result) = &*shared;
                call.reach(Stage::Checks);
                result.store(7, Ordering::Relaxed);
                call.report(Report::Up)
            })
        };
        let (call, result) = &*shared;
        let closed = call.close();
        let seen = result.load(Ordering::Relaxed);
        // Both know the same, and an accepted report comes with everything that was written before it.
        assert_eq!(starting.join().unwrap(), closed == Ok(Report::Up));
        if closed.is_ok() {
            assert_eq!(seen, 7);
        }
        assert_eq!(call.close().is_ok(), closed.is_ok());
    });
}

#[test]
fn a_cpu_without_handlers_is_stopped_by_exactly_one_side() {
    loom::model(|| {
        let stop = Arc::new(StopRequest::new(Cell::new(0)));
        let starting = {
            let stop = stop.clone();
            thread::spawn(move || stop.traps_ready())
        };
        let nmi = stop.ask();
        let by_itself = starting.join().unwrap();
        assert_ne!(nmi, by_itself);
    });
}

#[test]
fn two_searches_never_get_the_same_vector_of_a_cpu() {
    loom::model(|| {
        let maps: Arc<[VectorMap<Cell>; 2]> = Arc::new(std::array::from_fn(|_| {
            VectorMap::new(std::array::from_fn(|_| Cell::new(0)))
        }));
        let other = {
            let maps = maps.clone();
            thread::spawn(move || vectors::take(maps.iter()))
        };
        let mine = vectors::take([&maps[1]].into_iter());
        let other = other.join().unwrap();
        assert!(mine.is_some() && other.is_some());
        assert_ne!(mine, other);
        // A loser has left nothing behind.
        assert_eq!((maps[0].used(), maps[1].used()), (1, 2));
    });
}

/// A device that sends two interrupts while its interrupt moves from CPU 0 to CPU 1. Everything is in `Fabric`; the request
/// registers and the device's own register are atomic cells, the bookkeeping is under its lock as in the hypervisor.
struct Fabric {
    moving: loom::sync::Mutex<Moving>,
    /// The device's register: the number of the CPU that it sends to.
    told: AtomicU32,
    requests: [AtomicU32; 2],
    /// CPU 0 was asked to look at its old vector.
    look: AtomicU32,
    delivered: AtomicU32,
    lost: AtomicU32,
}

const OLD: Place = Place {
    cpu: 0,
    vector: 0x40,
};
const NEW: Place = Place {
    cpu: 1,
    vector: 0x50,
};

impl Fabric {
    fn new() -> Arc<Self> {
        Arc::new(Fabric {
            moving: loom::sync::Mutex::new(Moving::new(OLD)),
            told: AtomicU32::new(0),
            requests: [AtomicU32::new(0), AtomicU32::new(0)],
            look: AtomicU32::new(0),
            delivered: AtomicU32::new(0),
            lost: AtomicU32::new(0),
        })
    }

    /// Between reading the register and the arrival anything may happen, but messages do not overtake each other.
    fn send(&self) {
        let to = self.told.load(Ordering::SeqCst) as usize;
        self.requests[to].fetch_or(1, Ordering::SeqCst);
    }

    fn take(&self, at: Place) {
        if self.requests[at.cpu as usize].swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        match self.moving.lock().unwrap().arrived(at) {
            Arrival::First(cpu) => self.look.store(cpu + 1, Ordering::SeqCst),
            Arrival::Settled | Arrival::Late => {}
            Arrival::Elsewhere => self.lost.store(1, Ordering::SeqCst),
        }
        self.delivered.fetch_add(1, Ordering::SeqCst);
    }

    /// CPU 0 gives its old vector back if the request register shows nothing. `impatient`: without waiting for an arrival at
    /// the new place.
    fn clean(&self, impatient: bool) {
        if !impatient && self.look.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut moving = self.moving.lock().unwrap();
        if impatient {
            moving.confirm();
        }
        if moving.old_on(0).next().is_some() && self.requests[0].load(Ordering::SeqCst) == 0 {
            moving.quiet(OLD);
        }
    }
}

fn device_moves(impatient: bool) {
    let fabric = Fabric::new();
    let device = {
        let f = fabric.clone();
        thread::spawn(move || {
            f.send();
            f.send();
        })
    };
    let mover = {
        let f = fabric.clone();
        thread::spawn(move || {
            assert!(f.moving.lock().unwrap().begin(NEW, None));
            f.told.store(1, Ordering::SeqCst);
            f.take(NEW);
        })
    };
    fabric.take(OLD);
    fabric.clean(impatient);
    device.join().unwrap();
    mover.join().unwrap();
    fabric.take(NEW);
    fabric.take(OLD);
    fabric.clean(impatient);
    assert_eq!(
        fabric.lost.load(Ordering::SeqCst),
        0,
        "at a vector that was given back"
    );
    assert!(fabric.delivered.load(Ordering::SeqCst) > 0);
    assert_eq!(fabric.requests[0].load(Ordering::SeqCst), 0);
}

#[test]
fn no_interrupt_arrives_at_a_vector_that_was_given_back() {
    loom::model(|| device_moves(false));
}

/// The model can fail: a CPU that looks too early gives away a vector that a message is on its way to.
#[test]
#[should_panic(expected = "at a vector that was given back")]
fn a_look_before_the_first_arrival_would_lose_one() {
    loom::model(|| device_moves(true));
}
