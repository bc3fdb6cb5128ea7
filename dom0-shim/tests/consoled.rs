//! The console daemon against a stand-in for the machine: guests that behave, that die, and that do not behave.

mod fake_console;

use dom0_shim::consoled::consoles::{Consoles, Key};
use dom0_shim::consoled::guest::{LINGER, Overflow};
use dom0_shim::consoled::ring::{INPUT_SIZE, Nonsense, OUTPUT_SIZE, Ring};
use fake_console::{Fake, Frontend, word};
use proptest::prelude::*;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_sys::evtchn::LocalPort;
use xen_sys::page::SharedPage;

const GUEST: DomId = DomId(7);

fn one_guest(overflow: Overflow) -> (Fake, Consoles<Fake>, Frontend, Instant) {
    let now = Instant::now();
    let mut fake = Fake::default();
    let frontend = fake.add(GUEST, "web");
    let mut consoles = Consoles::new(overflow);
    consoles.scan(now, &mut fake);
    (fake, consoles, frontend, now)
}

#[test]
fn output_goes_to_the_terminal_and_the_log_and_typing_comes_back() {
    let (mut fake, mut consoles, frontend, now) = one_guest(Overflow::Discard);
    assert_eq!(fake.published[&GUEST], "/dev/pts/1");
    let port = fake.port(GUEST);
    frontend.print(b"hello\r\n");
    consoles.fired(&[port], false, now, &mut fake);
    assert_eq!(fake.terminals[0].borrow().shown, b"hello\r\n");
    assert_eq!(*fake.logs["web"].borrow(), b"hello\r\n");
    assert_eq!((&fake.notified, &fake.unmasked), (&vec![port], &vec![port]));
    fake.terminals[0].borrow_mut().typed.extend(b"ls\r");
    consoles.terminal_ready(Key::Of(GUEST), &mut fake);
    assert_eq!(frontend.read(), b"ls\r");
    assert_eq!(fake.notified.len(), 2);
    // A ring that is full takes no more, and what is typed waits in the terminal.
    fake.terminals[0].borrow_mut().typed.extend([b'x'; 1500]);
    consoles.terminal_ready(Key::Of(GUEST), &mut fake);
    assert_eq!(
        fake.terminals[0].borrow().typed.len(),
        1500 - INPUT_SIZE as usize
    );
    assert!(!consoles.terminals().next().unwrap().2);
    assert_eq!(frontend.read().len(), INPUT_SIZE as usize);
    assert!(consoles.terminals().next().unwrap().2);
}

#[test]
fn what_was_printed_before_the_daemon_came_is_there() {
    let mut fake = Fake::default();
    let frontend = fake.add(GUEST, "early");
    frontend.print(b"early words");
    let mut consoles = Consoles::<Fake>::new(Overflow::Discard);
    consoles.scan(Instant::now(), &mut fake);
    assert_eq!(fake.terminals[0].borrow().shown, b"early words");
}

#[test]
fn nodes_that_come_late_and_change() {
    let now = Instant::now();
    let mut fake = Fake::default();
    let first = fake.add(GUEST, "late");
    let nodes = fake.nodes.remove(&GUEST).unwrap();
    let mut consoles = Consoles::new(Overflow::Discard);
    consoles.scan(now, &mut fake);
    assert!(consoles.guest(GUEST).is_none() && fake.watched.contains(&GUEST));
    fake.nodes.insert(GUEST, nodes.clone());
    consoles.look(GUEST, now, &mut fake);
    first.print(b"one");
    consoles.fired(&[fake.port(GUEST)], false, now, &mut fake);
    // The same nodes again: nothing happens. Another port: the ring is taken anew, the terminal stays.
    consoles.look(GUEST, now, &mut fake);
    assert_eq!(fake.bound.len(), 1);
    fake.nodes.get_mut(&GUEST).unwrap().port += 1;
    consoles.look(GUEST, now, &mut fake);
    assert_eq!((fake.unbound.len(), fake.terminals.len()), (1, 1));
    first.print(b"two");
    consoles.fired(
        &[consoles.guest(GUEST).unwrap().port().unwrap()],
        false,
        now,
        &mut fake,
    );
    assert_eq!(fake.terminals[0].borrow().shown, b"onetwo");
}

#[test]
fn last_words_wait_for_a_reader() {
    let (mut fake, mut consoles, frontend, now) = one_guest(Overflow::Discard);
    fake.terminals[0].borrow_mut().room = 4;
    // Printed without an event: the guest died before it could send one.
    frontend.print(b"panic: no init");
    fake.living.remove(&GUEST);
    consoles.scan(now, &mut fake);
    assert_eq!(*fake.logs["web"].borrow(), b"panic: no init");
    assert_eq!(fake.unbound.len(), 1);
    // Its memory is free although its words wait.
    assert_eq!(Rc::strong_count(&frontend.page), 1);
    assert_eq!(
        (consoles.dead(), fake.terminals[0].borrow().shown.len()),
        (1, 4)
    );
    let deadline = consoles.deadline(now).unwrap();
    assert!(deadline > now && deadline < now + Duration::from_secs(1));
    // Somebody reads.
    fake.terminals[0].borrow_mut().room = 100;
    fake.terminals[0].borrow_mut().unread = 14;
    let key = consoles.terminals().next().unwrap().0;
    consoles.terminal_ready(key, &mut fake);
    assert_eq!(fake.terminals[0].borrow().shown, b"panic: no init");
    consoles.tick(now, &mut fake);
    assert_eq!(consoles.dead(), 1);
    fake.terminals[0].borrow_mut().unread = 0;
    consoles.tick(now, &mut fake);
    assert_eq!(consoles.dead(), 0);
    // The number is free for another domain.
    fake.add(GUEST, "next");
    consoles.scan(now, &mut fake);
    assert_eq!(fake.published[&GUEST], "/dev/pts/2");
}

#[test]
fn last_words_do_not_wait_for_ever() {
    let (mut fake, mut consoles, frontend, now) = one_guest(Overflow::Discard);
    fake.terminals[0].borrow_mut().room = 0;
    frontend.print(b"x");
    fake.living.remove(&GUEST);
    consoles.scan(now, &mut fake);
    consoles.tick(now + LINGER - Duration::from_millis(1), &mut fake);
    assert_eq!(consoles.dead(), 1);
    consoles.tick(now + LINGER, &mut fake);
    assert_eq!(consoles.dead(), 0);
}

#[test]
fn many_dead_guests_keep_only_so_much() {
    let now = Instant::now();
    let mut fake = Fake::default();
    let mut consoles = Consoles::new(Overflow::Discard);
    for number in 1..=100 {
        let domid = DomId(number);
        let frontend = fake.add(domid, "short");
        frontend.print(b"bye");
        consoles.scan(now, &mut fake);
        fake.terminals.last().unwrap().borrow_mut().unread = 3;
        fake.living.remove(&domid);
        consoles.scan(now, &mut fake);
    }
    assert_eq!(consoles.dead(), 32);
    assert_eq!(fake.watched.len(), 0);
    // All of them went on in one log.
    assert_eq!(fake.logs["short"].borrow().len(), 300);
}

#[test]
fn output_that_nobody_reads() {
    for (overflow, lost) in [(Overflow::Discard, true), (Overflow::Keep, false)] {
        let (mut fake, mut consoles, frontend, now) = one_guest(overflow);
        fake.nodes.get_mut(&GUEST).unwrap().limit = 3000;
        consoles.look(GUEST, now, &mut fake);
        fake.terminals[0].borrow_mut().room = 0;
        let mut printed = 0;
        for _ in 0..10 {
            printed += frontend.print(&[b'x'; 1000]);
            consoles.fired(&[fake.port(GUEST)], false, now, &mut fake);
        }
        assert_eq!(
            consoles.guest(GUEST).unwrap().lost() > 0,
            lost,
            "{overflow:?}"
        );
        // With `keep` the guest sees a ring that stays full.
        assert_eq!(printed < 10_000, !lost, "{overflow:?}: {printed}");
        fake.terminals[0].borrow_mut().room = 1 << 20;
        for _ in 0..10 {
            consoles.terminal_ready(Key::Of(GUEST), &mut fake);
        }
        let shown = fake.terminals[0].borrow().shown.len();
        assert_eq!(shown, if lost { 3000 } else { printed }, "{overflow:?}");
    }
}

#[test]
fn a_flood_of_events_is_held_back() {
    let (mut fake, mut consoles, frontend, now) = one_guest(Overflow::Discard);
    let port = fake.port(GUEST);
    for _ in 0..29 {
        consoles.fired(&[port], false, now, &mut fake);
    }
    assert_eq!(fake.unmasked.len(), 29);
    frontend.print(b"word");
    consoles.fired(&[port], false, now, &mut fake);
    assert_eq!(fake.unmasked.len(), 29);
    let deadline = consoles.deadline(now).unwrap();
    frontend.print(b" later");
    consoles.tick(deadline - Duration::from_millis(1), &mut fake);
    assert_eq!(fake.terminals[0].borrow().shown, b"word");
    consoles.tick(deadline, &mut fake);
    assert_eq!(
        (fake.unmasked.len(), consoles.deadline(deadline)),
        (30, None)
    );
    assert_eq!(fake.terminals[0].borrow().shown, b"word later");
}

#[test]
fn a_ring_without_sense_is_told_once_and_recovers() {
    let (mut fake, mut consoles, frontend, now) = one_guest(Overflow::Discard);
    let port = fake.port(GUEST);
    for distance in [OUTPUT_SIZE + 1, u32::MAX, 1 << 31] {
        frontend.page.store(
            word::OUT_PROD,
            frontend.page.load(word::OUT_CONS).wrapping_add(distance),
        );
        consoles.fired(&[port], false, now, &mut fake);
    }
    frontend.page.store(word::IN_PROD, INPUT_SIZE + 1);
    fake.terminals[0].borrow_mut().typed.extend(b"typed");
    consoles.terminal_ready(Key::Of(GUEST), &mut fake);
    assert_eq!(fake.said.len(), 1);
    assert_eq!(
        (
            fake.terminals[0].borrow().shown.len(),
            fake.terminals[0].borrow().typed.len()
        ),
        (0, 5)
    );
    // It is not waited for typed text that cannot be given.
    assert!(!consoles.terminals().next().unwrap().2);
    frontend
        .page
        .store(word::OUT_PROD, frontend.page.load(word::OUT_CONS));
    frontend.page.store(word::IN_PROD, 0);
    frontend.print(b"sane");
    consoles.fired(&[port], false, now, &mut fake);
    assert_eq!(fake.terminals[0].borrow().shown, b"sane");
    assert_eq!(frontend.read(), b"typed");
}

#[test]
fn what_does_not_work_is_said_and_others_go_on() {
    let now = Instant::now();
    let mut fake = Fake::default();
    fake.add(DomId(1), "bad-port");
    fake.broken_ports.insert(fake.nodes[&DomId(1)].port);
    fake.add(DomId(2), "no-page");
    fake.pages.remove(&DomId(2));
    let good = fake.add(DomId(3), "good");
    let mut consoles = Consoles::new(Overflow::Discard);
    consoles.scan(now, &mut fake);
    assert_eq!(fake.said.len(), 2);
    good.print(b"fine");
    // A port that is nobody's, and a lost list of ports.
    consoles.fired(&[LocalPort(99)], true, now, &mut fake);
    assert_eq!(fake.terminals[0].borrow().shown, b"fine");
    // The terminal breaks; there is a new one.
    fake.terminals[0].borrow_mut().broken = true;
    good.print(b" again");
    consoles.fired(&[], true, now, &mut fake);
    assert_eq!(fake.published[&DomId(3)], "/dev/pts/2");
    consoles.terminal_ready(Key::Of(DomId(3)), &mut fake);
    assert_eq!(fake.terminals[1].borrow().shown, b" again");
}

/// What a guest may do to its page.
#[derive(Clone, Debug)]
enum Act {
    Print(Vec<u8>),
    Read,
    Store(usize, u32),
    Fire(u32),
    Type(u16),
    Later(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let word = (0..1024_usize).prop_map(|w| w * 4);
    let index = prop_oneof![
        Just(word::IN_CONS),
        Just(word::IN_PROD),
        Just(word::OUT_CONS),
        Just(word::OUT_PROD)
    ];
    let value = prop_oneof![any::<u32>(), 0..5000_u32, (u32::MAX - 3000)..=u32::MAX];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..3000).prop_map(Act::Print),
        Just(Act::Read),
        (prop_oneof![1 => word, 4 => index], value).prop_map(|(w, v)| Act::Store(w, v)),
        (0..4_u32).prop_map(Act::Fire),
        (0..3000_u16).prop_map(Act::Type),
        (0..400_u64).prop_map(Act::Later),
    ]
}

proptest! {
    /// Whatever a guest writes into its page and however often it fires: nothing panics, every step moves a bounded number
    /// of bytes, and another guest is served as if it were alone.
    #[test]
    fn a_guest_that_does_as_it_likes(acts in proptest::collection::vec(act(), 1..60), keep in any::<bool>()) {
        let overflow = if keep { Overflow::Keep } else { Overflow::Discard };
        let (mut fake, mut consoles, bad, mut now) = one_guest(overflow);
        let good = fake.add(DomId(8), "good");
        consoles.scan(now, &mut fake);
        let (bad_port, good_port) = (fake.port(GUEST), fake.port(DomId(8)));
        let mut said = Vec::new();
        for (number, act) in acts.into_iter().enumerate() {
            let before = fake.logs["web"].borrow().len();
            match act {
                Act::Print(bytes) => _ = bad.print(&bytes),
                Act::Read => _ = bad.read(),
                Act::Store(at, value) => bad.page.store(at, value),
                Act::Fire(times) => (0..=times).for_each(|_| consoles.fired(&[bad_port], false, now, &mut fake)),
                Act::Type(count) => {
                    fake.terminals[0].borrow_mut().typed.extend(std::iter::repeat_n(b't', count.into()));
                    consoles.terminal_ready(Key::Of(GUEST), &mut fake);
                }
                Act::Later(millis) => {
                    now += Duration::from_millis(millis);
                    consoles.tick(now, &mut fake);
                }
            }
            let moved = fake.logs["web"].borrow().len() - before;
            prop_assert!(moved <= 4 * OUTPUT_SIZE as usize, "{moved} bytes in one step");
            let line = format!("line {number}\n");
            good.print(line.as_bytes());
            said.extend_from_slice(line.as_bytes());
            consoles.fired(&[good_port], false, now, &mut fake);
            now += Duration::from_millis(10);
            prop_assert_eq!(&fake.terminals[1].borrow().shown, &said);
        }
        prop_assert!(fake.said.len() <= 1, "{:?}", fake.said);
        // The end comes however the page looks.
        fake.living.remove(&GUEST);
        consoles.scan(now, &mut fake);
        consoles.tick(now + LINGER, &mut fake);
        prop_assert_eq!(consoles.dead(), 0);
        prop_assert_eq!(Rc::strong_count(&bad.page), 1);
    }

    /// Bytes come through in order wherever the indices begin, also over the wrap.
    #[test]
    fn bytes_keep_their_order(start in prop_oneof![any::<u32>(), Just(u32::MAX - 5), Just(2047_u32)], parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2500), 1..20)) {
        let page = Rc::new(SharedPage::private().unwrap());
        for at in [word::IN_CONS, word::IN_PROD, word::OUT_CONS, word::OUT_PROD] {
            page.store(at, start);
        }
        let frontend = Frontend { page: page.clone() };
        let mut ring = Ring::attach(page);
        for part in parts {
            let count = frontend.print(&part);
            prop_assert_eq!(count, part.len().min(OUTPUT_SIZE as usize));
            prop_assert_eq!(ring.has_output(), count > 0);
            prop_assert_eq!(ring.take_output(), Ok(part[..count].to_vec()));
            let count = ring.give_input(&part).unwrap();
            prop_assert_eq!(count, part.len().min(INPUT_SIZE as usize));
            prop_assert_eq!(ring.room(), Ok(INPUT_SIZE as usize - count));
            prop_assert_eq!(frontend.read(), &part[..count]);
            prop_assert_eq!(ring.take_notify(), count > 0);
        }
        frontend.page.store(word::OUT_PROD, frontend.page.load(word::OUT_CONS).wrapping_sub(1));
        prop_assert_eq!(ring.take_output(), Err(Nonsense));
    }
}
