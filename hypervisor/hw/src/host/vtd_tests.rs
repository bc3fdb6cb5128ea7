use super::*;
use crate::posted::PostTarget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use x86_model::iommu::Requester;
use x86_model::iommu::vtd::posted::{PostedTarget, change};
use x86_model::posted::{Ndst, Sleeper, WakeList};

const DEVICE: u16 = 0x0108;
const WHO: Requester = Requester::Exact(DEVICE);
const HOST: Target = Target {
    dest: 1,
    logical: false,
    lowest: false,
    vector: 0x51,
    level: false,
};

fn notice(vector: u8, cpu: u32) -> Notice {
    let dest = Ndst::new(cpu, true).unwrap();
    Notice { vector, dest }
}

fn target() -> PostTarget {
    arena::init();
    PostTarget::new().unwrap()
}

fn to(t: &PostTarget, vector: u8) -> Irte {
    let target = PostedTarget {
        descriptor: t.hpa().0,
        vector,
        urgent: false,
    };
    Irte::posted(&target, WHO).unwrap()
}

fn remapped() -> Irte {
    Irte::new(&HOST, WHO, true).unwrap()
}

fn send(unit: &FakeVtd) -> Outcome {
    unit.message(DEVICE, irte::message(3))
}

fn set(unit: &FakeVtd, new: Irte) {
    assert!(change(&mut unit.software(), 3, new));
}

#[test]
fn faults_as_in_the_manual() {
    let unit = FakeVtd::new(16, true);
    assert_eq!(send(&unit), Outcome::Fault(fault::NOT_PRESENT));
    assert_eq!(
        unit.message(DEVICE, irte::message(16)),
        Outcome::Fault(fault::INDEX)
    );
    let old = RemappedMessage {
        address: 0xfee0_0000,
        data: 0x31,
    };
    assert_eq!(unit.message(DEVICE, old), Outcome::Fault(fault::OLD_FORMAT));
    set(&unit, remapped());
    assert_eq!(send(&unit), Outcome::Remapped(HOST));
    assert_eq!(
        unit.message(DEVICE + 1, irte::message(3)),
        Outcome::Fault(fault::SOURCE)
    );
    set(&unit, Irte([remapped().0[0] | 1 << 12, remapped().0[1]]));
    assert_eq!(send(&unit), Outcome::Fault(fault::RESERVED));
    // A descriptor outside of memory, and one whose frame is nobody's.
    let nowhere = PostedTarget {
        descriptor: 1 << 45,
        vector: 0x31,
        urgent: false,
    };
    set(&unit, Irte::posted(&nowhere, WHO).unwrap());
    assert_eq!(send(&unit), Outcome::Fault(fault::DESCRIPTOR));
}

/// The life of a guest's message: bound, moved to another vCPU, given another vector, back to the host, gone.
#[test]
fn an_entry_changes_its_format_and_its_receiver() {
    let unit = FakeVtd::new(16, true);
    let (a, b) = (target(), target());
    a.run_on(notice(0xf2, 1));
    b.run_on(notice(0xf2, 2));
    set(&unit, to(&a, 0x41));
    assert_eq!(send(&unit), Outcome::Posted(Some(notice(0xf2, 1))));
    set(&unit, to(&b, 0x41));
    assert_eq!(send(&unit), Outcome::Posted(Some(notice(0xf2, 2))));
    set(&unit, to(&b, 0x99));
    assert_eq!(send(&unit), Outcome::Posted(None));
    assert_eq!(a.sync(), Some([0, 2, 0, 0]));
    assert_eq!(b.sync(), Some([0, 2, 1 << 0x19, 0]));
    set(&unit, remapped());
    assert_eq!(send(&unit), Outcome::Remapped(HOST));
    set(&unit, Irte::default());
    assert_eq!(send(&unit), Outcome::Fault(fault::NOT_PRESENT));
}

#[test]
fn the_receiver_moves_and_the_entry_stays() {
    let unit = FakeVtd::new(16, true);
    let t = target();
    set(&unit, to(&t, 0x41));
    for cpu in 0..4 {
        t.run_on(notice(0xf2, cpu));
        assert_eq!(send(&unit), Outcome::Posted(Some(notice(0xf2, cpu))));
        assert_eq!(t.sync(), Some([0, 2, 0, 0]));
        t.preempt();
    }
    // Suppressed, and urgent.
    assert_eq!(send(&unit), Outcome::Posted(None));
    let mut urgent = to(&t, 0x42).posted_target().unwrap();
    urgent.urgent = true;
    set(&unit, Irte::posted(&urgent, WHO).unwrap());
    assert_eq!(send(&unit), Outcome::Posted(Some(notice(0xf2, 3))));
}

/// A write that is not followed by an invalidation has no effect on a unit that remembers the entry, and a unit that does
/// not answer is told to the caller.
#[test]
fn a_forgotten_invalidation_shows() {
    let unit = FakeVtd::new(16, true);
    set(&unit, remapped());
    assert_eq!(send(&unit), Outcome::Remapped(HOST));
    let mut lazy = unit.software();
    let old = lazy.read(3);
    assert!(lazy.replace(3, old, Irte::default()));
    assert_eq!(send(&unit), Outcome::Remapped(HOST));
    unit.dead.store(true, Ordering::Relaxed);
    assert!(!change(&mut unit.software(), 3, to(&target(), 0x41)));
}

#[derive(Clone)]
struct Vcpu(Arc<PostTarget>);
impl Sleeper for Vcpu {
    fn is_notified(&self) -> bool {
        self.0.is_notified()
    }
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A device sends one message after another, each after the last was seen, while the vCPU runs, waits, sleeps and moves
/// between two CPUs, and a third thread rewrites the entry. Every message is seen; a sleeper is always woken.
#[test]
fn no_message_is_lost_between_sleep_move_and_rewrite() {
    const ROUNDS: u64 = 5_000;
    let unit = Arc::new(FakeVtd::new(16, true));
    let vcpu = Vcpu(Arc::new(target()));
    vcpu.0.run_on(notice(0xf2, 0));
    set(&unit, to(&vcpu.0, 0x41));
    let lists: Arc<[Mutex<WakeList<Vcpu>>; 2]> = Arc::default();
    let (seen, woken, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let device = {
        let (unit, lists, seen, woken) = (unit.clone(), lists.clone(), seen.clone(), woken.clone());
        let stop = stop.clone();
        thread::spawn(move || {
            for n in 0..ROUNDS {
                match send(&unit) {
                    // The wake-up vector's handler, on the CPU that the notice names.
                    Outcome::Posted(Some(to)) if to.vector == 0xf3 => {
                        let mut list = lock(&lists[to.dest.apic_id(true) as usize]);
                        while list.next_notified().is_some() {
                            woken.fetch_add(1, Ordering::Release);
                        }
                    }
                    Outcome::Posted(_) => {}
                    other => panic!("{other:?}"),
                }
                while seen.load(Ordering::Acquire) <= n {
                    thread::yield_now();
                }
            }
            stop.store(true, Ordering::Release);
        })
    };
    let rewriter = {
        let (unit, target, stop) = (unit.clone(), vcpu.0.clone(), stop.clone());
        thread::spawn(move || {
            let mut n = 0u8;
            while !stop.load(Ordering::Acquire) {
                n = n.wrapping_add(1);
                set(&unit, to(&target, 0x41 + n % 8));
                thread::yield_now();
            }
        })
    };
    let take = || {
        if let Some(words) = vcpu.0.sync() {
            let found: u32 = words.iter().map(|w| w.count_ones()).sum();
            seen.fetch_add(found.into(), Ordering::Release);
        }
    };
    let (mut cpu, mut slept, mut n) = (0u32, 0u32, 0u32);
    loop {
        n = n.wrapping_add(1);
        take();
        assert!(!device.is_finished() || seen.load(Ordering::Acquire) == ROUNDS);
        if seen.load(Ordering::Acquire) == ROUNDS {
            break;
        }
        match n % 3 {
            0 => {
                let list = &lists[cpu as usize];
                lock(list).add(vcpu.clone()).unwrap();
                if !vcpu.0.block(notice(0xf3, cpu)) {
                    assert!(lock(list).remove(&vcpu));
                    continue;
                }
                slept += 1;
                // Nobody else ends this sleep, unless all is seen.
                while woken.load(Ordering::Acquire) < slept {
                    assert!(!device.is_finished(), "asleep, and the device has given up");
                    thread::yield_now();
                }
            }
            1 => vcpu.0.preempt(),
            _ => {}
        }
        cpu ^= 1;
        vcpu.0.run_on(notice(0xf2, cpu));
    }
    device.join().unwrap();
    rewriter.join().unwrap();
    assert!(slept > 0);
    assert_eq!(seen.load(Ordering::Relaxed), ROUNDS);
}
