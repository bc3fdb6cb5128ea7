//! Random hypercalls with hostile arguments: whatever guests pass, one at a time or several at once, the dispatcher returns,
//! and no frame is lost.
//!
//! `XENOLITH_CASES` sets the number of cases (a short slice by default), `XENOLITH_SEED` the seed; both stand in the message
//! of a failing run. The end of the machine that the control domain asks for is no failure.

mod common;
mod hostile_calls;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use common::System;
use hostile_calls::{Case, Random};
use hv_core::domain::Domain;
use hv_core::p2m::PageType;
use x86_model::Gfn;

/// Cases after which a fresh system is taken.
const ROUND: u64 = 500;
/// No case of a round takes anywhere near as long.
const STUCK: Duration = Duration::from_secs(300);
/// The unprivileged domain.
const GUEST: u16 = 1;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

/// The tests look at the frames of the process: one at a time. Power actions, which are panics here, are not printed.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !is_power_action(info.payload()) {
                print(info);
            }
        }));
    });
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_power_action(payload: &(dyn Any + Send)) -> bool {
    payload
        .downcast_ref::<String>()
        .is_some_and(|text| text.starts_with("power action"))
}

/// How a case ended.
enum End {
    Returned {
        /// It did what was asked.
        accepted: bool,
    },
    /// The machine is off: take another one.
    PoweredOff,
}

/// Pages of RAM in a domain's map, found one by one.
fn ram(d: &Domain) -> usize {
    let mut from = Gfn(0);
    let mut pages = 0;
    while let Some((gfn, leaf)) = d.p2m.stage2().next_leaf(from) {
        if leaf.tag == PageType::Ram as u8 {
            pages += 1 << leaf.order;
        }
        from = Gfn((gfn.0 | ((1 << leaf.order) - 1)) + 1);
    }
    pages
}

/// Runs a case; an error names it.
fn run(system: &System, dom: &Arc<Domain>, vcpu: u32, case: &Case) -> Result<End, String> {
    for (gpa, bytes) in &case.memory {
        // The page may be gone; then the call meets a hole.
        let _ = hv_core::guest::access::write_phys(&dom.p2m, x86_model::Gpa(*gpa), bytes);
    }
    match catch_unwind(AssertUnwindSafe(|| {
        system.call_in(dom, vcpu, case.number, case.args, case.narrow)
    })) {
        Ok((answer, _)) => Ok(End::Returned {
            accepted: answer >= 0,
        }),
        Err(why) if is_power_action(&*why) => Ok(End::PoweredOff),
        Err(_) => Err(format!("{} vCPU {vcpu}: {case:x?}", dom.id)),
    }
}

#[test]
fn one_guest_at_a_time() {
    let _alone = alone();
    let cases = number("XENOLITH_CASES", 20_000);
    let seed = number("XENOLITH_SEED", 0x5eed_1234_5678);
    let mut random = Random::new(seed);
    let (mut done, mut accepted) = (0, 0);
    let mut free = None;
    while done < cases {
        let system = System::new(2);
        let guest = system.add_guest(GUEST, 2);
        for _ in 0..ROUND {
            done += 1;
            let case = Case::new(&mut random);
            let dom = if random.one_in(4) {
                &guest
            } else {
                &system.dom
            };
            match run(&system, dom, (done % 2) as u32, &case) {
                Ok(End::Returned { accepted: yes }) => accepted += u64::from(yes),
                Ok(End::PoweredOff) => break,
                Err(what) => panic!("case {done} seed {seed}: {what}"),
            }
        }
        for d in system.hv.domains() {
            assert_eq!(
                d.p2m.pages(),
                ram(&d),
                "case {done} seed {seed}: {} is counted wrong",
                d.id
            );
        }
        drop((guest, system));
        let now = hv_hw::mem::free_frames();
        assert_eq!(
            *free.get_or_insert(now),
            now,
            "free frames changed before case {done} seed {seed}"
        );
    }
    // Refusals alone would show little.
    assert!(
        accepted * 4 > done,
        "only {accepted} of {done} cases were well-formed"
    );
    println!("{accepted} of {done} calls accepted");
}

#[test]
fn two_vcpus_and_a_second_domain_at_once() {
    let _alone = alone();
    let cases = number("XENOLITH_CASES", 20_000) / 2;
    let seed = number("XENOLITH_SEED", 0x5eed_1234_5678);
    let mut done = 0;
    let mut free = None;
    while done < cases {
        done += concurrent_round(seed.wrapping_add(done));
        let now = hv_hw::mem::free_frames();
        assert_eq!(
            *free.get_or_insert(now),
            now,
            "free frames changed before case {done} seed {seed}"
        );
    }
}

/// Three vCPUs of two domains call at the same time, each from its own thread. Returns the number of cases.
fn concurrent_round(seed: u64) -> u64 {
    let system = Arc::new(System::new(2));
    let guest = system.add_guest(GUEST, 1);
    let callers = [(system.dom.clone(), 0), (system.dom.clone(), 1), (guest, 0)];
    let (report, reports) = channel();
    let threads: Vec<_> = (1..)
        .zip(callers)
        .map(|(salt, (dom, vcpu))| {
            let (system, report) = (system.clone(), report.clone());
            std::thread::spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(salt));
                let mut result = Ok(0);
                for i in 1..=ROUND {
                    let case = Case::new(&mut random);
                    match run(&system, &dom, vcpu, &case) {
                        Ok(End::Returned { .. }) => result = Ok(i),
                        // The others are stopped by an interrupt on a real machine.
                        Ok(End::PoweredOff) => break,
                        Err(what) => {
                            result = Err(what);
                            break;
                        }
                    }
                }
                // Not before: the main thread counts frames.
                drop((system, dom));
                let _ = report.send(result);
            })
        })
        .collect();
    drop((system, report));
    let mut done = 0;
    for _ in &threads {
        match reports.recv_timeout(STUCK) {
            Ok(Ok(n)) => done += n,
            Ok(Err(what)) => panic!("seed {seed}: {what}"),
            Err(RecvTimeoutError::Timeout) => panic!("seed {seed}: a vCPU is stuck"),
            Err(RecvTimeoutError::Disconnected) => panic!("seed {seed}: a thread died"),
        }
    }
    for t in threads {
        t.join().expect("the thread has reported");
    }
    done.max(1)
}
