//! Every interleaving, and every reordering that the memory model allows, of the posted-interrupt protocol: posting
//! against taking, sleeping, waking, waiting for a CPU and moving. The code under test is the machine's own; only its
//! atomic cell and the lock around the list of sleepers are the checker's.
//!
//! The checker gives a sequentially consistent access no more than acquire and release. The cell makes up for it by a
//! fence before each, which is how compilers for weakly ordered processors make such an access.

use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;
use x86_model::posted::{Descriptor, Ndst, Notice, Post, Sleeper, WakeList, control, msi};
use x86_model::sync::Word64;

struct Cell(AtomicU64);

fn strong(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

impl Word64 for Cell {
    fn load(&self, order: Ordering) -> u64 {
        strong(order);
        self.0.load(match order {
            Ordering::SeqCst => Ordering::Acquire,
            o => o,
        })
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        strong(order);
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        strong(order);
        self.0.fetch_and(bits, order)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        strong(order);
        self.0.swap(value, order)
    }
    fn exchange(&self, current: u64, new: u64) -> Result<(), u64> {
        strong(Ordering::SeqCst);
        self.0
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

type Desc = Descriptor<Cell>;

fn notice(vector: u8, cpu: u32) -> Notice {
    let dest = Ndst::new(cpu, true).unwrap();
    Notice { vector, dest }
}
/// Notification of a receiver that runs on this CPU.
fn on(cpu: u32) -> Notice {
    notice(0xf2, cpu)
}
/// Wake-up of one that sleeps there.
fn wake(cpu: u32) -> Notice {
    notice(0xf3, cpu)
}

fn suppressed() -> Arc<Desc> {
    let zero = || Cell(AtomicU64::new(0));
    Arc::new(Descriptor::new(
        std::array::from_fn(|_| zero()),
        Cell(AtomicU64::new(control::SN)),
        std::array::from_fn(|_| zero()),
    ))
}

fn running(cpu: u32) -> Arc<Desc> {
    let d = suppressed();
    d.run_on(on(cpu));
    d
}

fn has(words: [u64; 4], vector: u8) -> bool {
    words[usize::from(vector) / 64] >> (vector % 64) & 1 != 0
}

/// Posts in a thread of its own.
fn poster(d: &Arc<Desc>, vector: u8) -> thread::JoinHandle<Post> {
    let d = d.clone();
    thread::spawn(move || d.post(vector))
}

#[test]
fn what_is_posted_is_taken_or_told() {
    loom::model(|| {
        let d = running(0);
        let posters = [poster(&d, 0x31), poster(&d, 0x32)];
        let first = d.sync().unwrap_or_default();
        let told = posters.map(|p| p.join().unwrap());
        // Whoever was not taken above has left ON behind.
        let rest = d.sync().unwrap_or_default();
        for v in [0x31, 0x32] {
            assert!(has(first, v) != has(rest, v), "{v:#x}: exactly once");
        }
        assert_eq!(d.words(), [0; 4]);
        // The receiver was told at least once, or every post found somebody else's notification.
        assert!(told.contains(&Post::Notify(on(0))));
    });
}

#[test]
fn what_is_posted_during_the_taking_is_taken_or_told() {
    loom::model(|| {
        let d = running(0);
        assert_eq!(d.post(0x40), Post::Notify(on(0)));
        let other = poster(&d, 0x31);
        let first = d.sync().unwrap();
        let told = other.join().unwrap();
        let rest = d.sync().unwrap_or_default();
        assert!(
            has(first, 0x40) && has(first, 0x31) != has(rest, 0x31),
            "{told:?}"
        );
    });
}

#[test]
fn the_same_vector_twice_is_seen_after_the_last() {
    loom::model(|| {
        let d = running(0);
        let other = poster(&d, 0x31);
        let first = d.sync().is_some_and(|w| has(w, 0x31));
        let mine = d.post(0x31);
        other.join().unwrap();
        let last = d.sync().is_some_and(|w| has(w, 0x31));
        // My post came after my own taking: it is either still to be taken, or was merged with the other's.
        assert!(last, "{first} {mine:?}");
    });
}

#[test]
fn data_written_before_a_post_is_seen_with_it() {
    loom::model(|| {
        let d = running(0);
        // Something in the same word, so that it is exchanged whether or not the other bit was there when it was read.
        d.post(0x30);
        let data = Arc::new(Cell(AtomicU64::new(0)));
        let other = {
            let (d, data) = (d.clone(), data.clone());
            thread::spawn(move || {
                data.swap(7, Ordering::Relaxed);
                d.post(0x31);
            })
        };
        if has(d.sync().unwrap(), 0x31) {
            assert_eq!(data.load(Ordering::Relaxed), 7);
        }
        other.join().unwrap();
    });
}

#[test]
fn no_sleep_without_a_wake_up() {
    loom::model(|| {
        let d = running(0);
        let other = poster(&d, 0x31);
        let before = d.sync().is_some_and(|w| has(w, 0x31));
        let sleeps = d.block(wake(0));
        let told = other.join().unwrap();
        match (sleeps, before) {
            // Posted after it slept: the wake-up was sent.
            (true, false) => assert_eq!(told, Post::Notify(wake(0))),
            // Taken, so it would not have slept; its notification went to the running receiver.
            (_, true) => assert_eq!(told, Post::Notify(on(0))),
            // Awake, with the vector to be taken.
            (false, false) => assert!(d.sync().is_some_and(|w| has(w, 0x31))),
        }
    });
}

#[test]
fn a_sleeper_that_runs_again_finds_the_post_or_is_told_where_it_runs() {
    loom::model(|| {
        let d = running(0);
        assert!(d.block(wake(0)));
        let other = poster(&d, 0x31);
        // Woken by something else, on another CPU.
        let pending = d.run_on(on(1));
        let first = pending && d.sync().is_some_and(|w| has(w, 0x31));
        let told = other.join().unwrap();
        if !first {
            // Too late for the entry: a notification to where it runs, or one to the old place and ON still set, which the
            // next entry looks at. The latter only if the entry was told.
            assert!(told == Post::Notify(on(1)) || pending);
            assert!(d.sync().is_some_and(|w| has(w, 0x31)));
        }
    });
}

/// Between the clearing of SN and the look at the words lies the race that a receiver must not lose.
#[test]
fn a_post_while_it_waits_for_a_cpu_is_found_when_it_gets_one() {
    loom::model(|| {
        let d = running(0);
        let other = poster(&d, 0x31);
        d.preempt();
        let pending = d.run_on(on(1));
        let first = pending && d.sync().is_some_and(|w| has(w, 0x31));
        let told = other.join().unwrap();
        if !first {
            assert!(told == Post::Notify(on(1)) || pending, "{told:?}");
            assert!(d.sync().is_some_and(|w| has(w, 0x31)), "{told:?}");
        }
    });
}

/// The same without the look: the vector sits in the words, and nobody is told. Shows that the check above can fail.
#[test]
#[should_panic(expected = "lost")]
fn without_the_look_after_sn_a_post_is_lost() {
    loom::model(|| {
        let d = running(0);
        let other = poster(&d, 0x31);
        d.preempt();
        // `run_on` with its second half left out: a fresh descriptor word without SN.
        let lame = d.clone();
        lame_run_on(&lame);
        let first = d.sync().is_some_and(|w| has(w, 0x31));
        let told = other.join().unwrap();
        let last = first || d.sync().is_some_and(|w| has(w, 0x31));
        assert!(last, "lost: {told:?}");
    });
}

/// Arms as for a sleeper, which clears SN and does not look at the words.
fn lame_run_on(d: &Desc) {
    if !d.block(on(1)) {
        d.run_on(on(1));
    }
}

#[test]
fn an_urgent_post_by_a_unit_is_told_whatever_the_receiver_does() {
    loom::model(|| {
        let d = running(0);
        let unit = {
            let d = d.clone();
            thread::spawn(move || d.post_by_unit(0x31, true))
        };
        d.preempt();
        assert!(unit.join().unwrap().is_some());
        assert!(d.run_on(on(1)));
        assert!(d.sync().is_some_and(|w| has(w, 0x31)));
    });
}

#[test]
fn a_sleeper_whose_cpu_goes_away_is_woken_by_one_of_both() {
    loom::model(|| {
        let d = running(0);
        assert!(d.block(wake(0)));
        let other = poster(&d, 0x31);
        let mover_wakes = d.retarget(Ndst::new(1, true).unwrap());
        let told = other.join().unwrap();
        assert!(told == Post::Notify(wake(1)) || told == Post::Notify(wake(0)) && mover_wakes);
    });
}

#[derive(Clone)]
struct Vcpu(Arc<Desc>);
impl Sleeper for Vcpu {
    fn is_notified(&self) -> bool {
        self.0.is_notified()
    }
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The whole way to sleep, with the list: the receiver joins, arms, and sleeps; the poster's wake-up vector makes the
/// handler look at the list. Whoever sleeps in the end has nothing posted.
#[test]
fn the_wake_up_vector_finds_the_sleeper() {
    loom::model(|| {
        let d = running(0);
        let list = Arc::new(Mutex::new(WakeList::new()));
        let other = {
            let (d, list) = (d.clone(), list.clone());
            thread::spawn(move || {
                let told = d.post(0x31);
                // The vector arrives at once, on whatever CPU it was sent to.
                if told == Post::Notify(wake(0)) {
                    list.lock().unwrap().next_notified().is_some()
                } else {
                    false
                }
            })
        };
        list.lock().unwrap().add(Vcpu(d.clone())).unwrap();
        let sleeps = d.block(wake(0));
        if !sleeps {
            assert!(list.lock().unwrap().remove(&Vcpu(d.clone())));
        }
        let woken = other.join().unwrap();
        assert_eq!(sleeps, woken);
        assert!(list.lock().unwrap().is_empty());
        assert!(d.run_on(on(0)));
        assert!(d.sync().is_some_and(|w| has(w, 0x31)));
    });
}

/// A vCPU as the core has it: others post to its descriptor and end its sleep themselves; the wake-up vector is only for units.
struct Shared {
    d: Arc<Desc>,
    /// Asleep, and which CPU runs it (0: none).
    sleep: AtomicU64,
    runs: AtomicU64,
    /// What a poster did about it.
    woken: AtomicU64,
    notified: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            d: running(1),
            sleep: AtomicU64::new(0),
            runs: AtomicU64::new(1),
            woken: AtomicU64::new(0),
            notified: AtomicU64::new(0),
        })
    }

    /// Another CPU posts.
    fn post(&self, vector: u8) {
        if let Post::Notify(_) = self.d.post(vector) {
            fence(Ordering::SeqCst);
            if self.sleep.swap(0, Ordering::AcqRel) != 0 {
                self.woken.store(1, Ordering::Release);
            } else if let cpu @ 1.. = self.runs.load(Ordering::Acquire) {
                self.notified.store(cpu, Ordering::Release);
            }
        }
    }

    /// Its CPU has it halt. True if it sleeps; then it is on no CPU any more. What it took is in `taken`.
    fn halt(&self, taken: &mut [bool; 2], careful: bool) -> bool {
        let mut take = || {
            let words = self.d.sync().unwrap_or_default();
            taken[0] |= has(words, 0x31);
            taken[1] |= has(words, 0x71);
            taken[0] || taken[1]
        };
        while !self.d.block(wake(1)) {
            take();
        }
        self.sleep.store(1, Ordering::Release);
        if careful {
            fence(Ordering::SeqCst);
        }
        if take() {
            self.sleep.store(0, Ordering::Release);
            self.d.run_on(on(1));
            return false;
        }
        self.runs.store(0, Ordering::Release);
        true
    }

    /// It gets a CPU again, and enters.
    fn enter(&self, cpu: u32, taken: &mut [bool; 2]) {
        self.runs.store(cpu.into(), Ordering::Release);
        self.d.run_on(on(cpu));
        let words = self.d.sync().unwrap_or_default();
        taken[0] |= has(words, 0x31);
        taken[1] |= has(words, 0x71);
    }
}

fn halt_against_posts(vectors: &'static [u8], careful: bool) {
    let v = Shared::new();
    let others: Vec<_> = vectors
        .iter()
        .map(|&vector| {
            let v = v.clone();
            thread::spawn(move || v.post(vector))
        })
        .collect();
    let mut taken = [false; 2];
    let slept = v.halt(&mut taken, careful);
    for other in others {
        other.join().unwrap();
    }
    if slept {
        assert!(v.woken.load(Ordering::Acquire) != 0, "sleeps for ever");
        v.enter(2, &mut taken);
    } else {
        // It goes on, and looks before its next entry.
        v.enter(1, &mut taken);
    }
    for (n, _) in vectors.iter().enumerate() {
        assert!(taken[n], "vector {n} is lost");
    }
}

#[test]
fn a_halt_against_a_post_sleeps_only_if_woken() {
    loom::model(|| halt_against_posts(&[0x31], true));
}

#[test]
fn a_halt_against_two_posts_loses_neither() {
    // All interleavings of three threads are too many: those with at most three switches that nothing forces.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| halt_against_posts(&[0x31, 0x71], true));
}

/// Without the fence both may miss each other. Shows that the two checks above can fail.
#[test]
#[should_panic(expected = "sleeps for ever")]
fn without_the_fence_a_halt_may_miss_a_post() {
    loom::model(|| halt_against_posts(&[0x31], false));
}

/// A vCPU that moves while it is posted to: the notification reaches where it runs, or the entry there has taken the vector.
#[test]
fn a_move_against_a_post_is_told_or_found() {
    loom::model(|| {
        let v = Shared::new();
        let other = {
            let v = v.clone();
            thread::spawn(move || v.post(0x31))
        };
        let mut taken = [false; 2];
        v.d.preempt();
        v.runs.store(0, Ordering::SeqCst);
        v.enter(2, &mut taken);
        other.join().unwrap();
        // In guest mode on CPU 2 the processor takes what is there when the notification comes.
        let told = v.notified.load(Ordering::Acquire) == 2;
        assert!(taken[0] || told && v.d.sync().is_some_and(|w| has(w, 0x31)));
    });
}

/// A message at any moment of the handler is dispatched, or has a notification of its own outstanding.
#[test]
fn a_message_during_the_handler_is_served_or_notified() {
    loom::model(|| {
        let d = running(0);
        d.post(0x40);
        let other = poster(&d, 0x31);
        let (mut seen, mut ended) = (Vec::new(), 0);
        msi::serve(&d, 0x30..=0xdf, 2, |v| seen.push(v), || ended += 1);
        let told = other.join().unwrap();
        assert_eq!((seen.iter().filter(|&&v| v == 0x40).count(), ended), (1, 1));
        let again = told == Post::Notify(on(0)) && d.is_notified();
        assert!(seen.contains(&0x31) || again, "{told:?}");
    });
}

/// The handler without its last look. Shows that the check above can fail.
#[test]
#[should_panic(expected = "lost")]
fn without_the_last_look_a_message_is_lost() {
    loom::model(|| {
        let d = running(0);
        d.post(0x40);
        let other = poster(&d, 0x31);
        let seen = has(d.take(), 0x31);
        d.clear_on();
        let told = other.join().unwrap();
        assert!(seen || told == Post::Notify(on(0)), "lost: {told:?}");
    });
}
