//! Clients that break the rules, flood the store or never read: nothing panics, memory stays bounded, others are served,
//! and refusals are logged with domain, quota and limit.
#![forbid(unsafe_code)]

mod common;

use common::Store;
use dom0_shim::xenstored::server::{ConnId, GUEST_EVENTS, STAND_INS};
use proptest::prelude::*;
use xen_abi::io::xs_wire::{SockMsg, kind};
use xen_abi::{DomId, Errno};
use zerocopy::IntoBytes;

fn message(kind: u32, tx_id: u32, payload: &[u8]) -> Vec<u8> {
    let header = SockMsg {
        kind,
        req_id: 1,
        tx_id,
        len: payload.len() as u32,
    };
    [header.as_bytes(), payload].concat()
}

#[track_caller]
fn logged(store: &Store, line: &str) {
    assert!(
        store.host.lines.iter().any(|l| l.starts_with(line)),
        "{line:?} not in {:?}",
        store.host.lines
    );
}

#[test]
fn nodes() {
    let mut s = Store::new();
    let g = s.guest(4);
    // Spread over directories, for a directory's names count as its size.
    let mut made = 1;
    let end = loop {
        match s.write(g, 0, &format!("{}/{}", made / 100, made % 100), "x") {
            Ok(()) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(end, Errno::ENOSPC);
    logged(
        &s,
        "d4: refused by quota nodes: limit is 1000 nodes per domain",
    );
    // The same inside a transaction, and after something was freed.
    let t = s.start(g).unwrap();
    assert_eq!(s.mkdir(g, t, "more"), Err(Errno::ENOSPC));
    s.rm(g, t, "0/5").unwrap();
    s.mkdir(g, t, "more").unwrap();
    s.end(g, t, true).unwrap();
    assert_eq!(s.mkdir(g, 0, "other"), Err(Errno::ENOSPC));
    // Two transactions that are each within it, but not together.
    s.rm(g, 0, "more").unwrap();
    let (t, u) = (s.start(g).unwrap(), s.start(g).unwrap());
    s.mkdir(g, t, "1/t").unwrap();
    s.mkdir(g, u, "2/u").unwrap();
    s.end(g, t, true).unwrap();
    assert_eq!(s.end(g, u, true), Err(Errno::ENOSPC));
    s.check();
}

#[test]
fn sizes() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(4));
    // Fixed part 24, one entry 8, one byte below 2048.
    s.write(g, 0, "v", &"x".repeat(2047 - 32)).unwrap();
    assert_eq!(
        s.write(g, 0, "v", &"x".repeat(2048 - 32)),
        Err(Errno::ENOSPC)
    );
    logged(
        &s,
        "d4: refused by quota node-size: limit is 2048 bytes per node",
    );
    let many = (0..600)
        .map(|i| s.mkdir(g, 0, &format!("d/{i:09}")))
        .find_map(Result::err);
    assert_eq!(many, Some(Errno::ENOSPC), "names of children count");
    s.write(c, 0, "/local/domain/4/big", &"x".repeat(4000))
        .unwrap();
    s.write(g, 0, "big", "").unwrap();
    let long = format!("/{}", "p".repeat(2048));
    assert_eq!(s.write(c, 0, &long, ""), Err(Errno::EINVAL));
    assert_eq!(
        s.set_perms(g, 0, "v", &["n4", "r1", "r2", "r3", "r5", "r6"]),
        Err(Errno::ENOSPC)
    );
    logged(
        &s,
        "d4: refused by quota permissions: limit is 5 permission entries per node",
    );
    s.set_perms(g, 0, "v", &["n4", "r1", "r2", "r3", "r5"])
        .unwrap_err();
    s.write(g, 0, "v", "x").unwrap();
    s.set_perms(g, 0, "v", &["n4", "r1", "r2", "r3", "r5"])
        .unwrap();
}

#[test]
fn watches_and_transactions() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(4));
    (0..128).for_each(|i| s.watch(g, "x", &i.to_string()).unwrap());
    assert_eq!(s.watch(g, "x", "one more"), Err(Errno::E2BIG));
    logged(
        &s,
        "d4: refused by quota watches: limit is 128 watches per domain",
    );
    let ids: Vec<u32> = (0..10).map(|_| s.start(g).unwrap()).collect();
    assert_eq!(s.start(g), Err(Errno::ENOSPC));
    logged(
        &s,
        "d4: refused by quota transactions: limit is 10 open transactions per domain",
    );
    for i in 0..1100 {
        s.write(c, 0, &format!("/pub/{}/{i}", i / 300), "").unwrap();
        s.set_perms(c, 0, &format!("/pub/{}/{i}", i / 300), &["r0"])
            .unwrap();
    }
    let read = (0..1100)
        .map(|i| s.read(g, ids[0], &format!("/pub/{}/{i}", i / 300)))
        .find_map(Result::err);
    assert_eq!(read, Some(Errno::ENOSPC));
    logged(
        &s,
        "d4: refused by quota transaction-nodes: limit is 1024 nodes per transaction",
    );
    // The control domain has no such limits.
    (0..200).for_each(|i| s.watch(c, "x", &i.to_string()).unwrap());
    (0..20).for_each(|_| assert!(s.start(c).is_ok()));
}

#[test]
fn memory() {
    let mut s = Store::new();
    let g = s.guest(4);
    let value = "x".repeat(2000);
    // Ten transactions that each change all nodes would hold ten times as much.
    (0..900).for_each(|i| s.write(g, 0, &format!("{}/{i}", i / 100), &value).unwrap());
    let t = s.start(g).unwrap();
    let end = (0..900).find_map(|i| s.write(g, t, &format!("{}/{i}", i / 100), &value).err());
    assert_eq!(end, Some(Errno::ENOSPC));
    logged(
        &s,
        "d4: refused by quota memory: limit is 2621440 bytes of all nodes per domain",
    );
    s.end(g, t, false).unwrap();
}

/// A path of many new nodes counts as a whole.
#[test]
fn memory_of_a_long_path() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(4));
    s.ask(c, kind::CONTROL, 0, b"quota\0set\0memory\x0050000\0")
        .unwrap();
    let before = s.server.tree().owned_by(DomId(4));
    // 90 names of up to 1.8 kB: 84 kB together.
    let deep = ["xxxxxxxxxxxxxxxxxxx"; 90].join("/");
    assert_eq!(s.mkdir(g, 0, &deep), Err(Errno::ENOSPC));
    assert_eq!(s.server.tree().owned_by(DomId(4)), before);
    s.mkdir(g, 0, &deep[..deep.len() / 2 - 10]).unwrap();
}

/// A guest that asks and never fetches is not read any more; all that waits for it is bounded.
#[test]
fn never_reads_replies() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(4));
    s.write(c, 0, "/local/domain/4/big", &"x".repeat(4000))
        .unwrap();
    let flood = message(kind::READ, 0, b"big\0").repeat(1000);
    let taken = s.push(g, &flood);
    assert_eq!(taken, 20 * (16 + 4));
    assert!(s.server.buffered(g) <= 20 * 4112);
    logged(
        &s,
        "d4: refused by quota outstanding: limit is 20 outstanding requests per domain",
    );
    assert_eq!(s.fetch(g).len(), 20);
    assert!(
        s.push(g, &flood[taken..]) > 0,
        "it is served again once it has fetched"
    );
}

/// Events of which a guest fetches none: stand-ins for the rest, no loss of the fact that something changed.
#[test]
fn never_reads_events() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(4));
    s.set_perms(c, 0, "/", &["r0"]).unwrap();
    for i in 0..100 {
        s.watch(g, "/w", &format!("{}{i}", "t".repeat(900)))
            .unwrap();
    }
    s.events(g);
    for i in 0..2000 {
        s.write(c, 0, &format!("/w/{}/{i}", i / 300), "").unwrap();
    }
    assert!(
        s.server.buffered(g) <= GUEST_EVENTS + STAND_INS,
        "{}",
        s.server.buffered(g)
    );
    let events = s.events(g);
    let stand_ins = events.iter().filter(|e| e.starts_with("/w t")).count();
    assert_eq!(stand_ins, 100, "every watch has its stand-in");
    s.write(c, 0, "/w/again", "").unwrap();
    assert_eq!(s.events(g).len(), 100);
}

/// A client of the control domain that does not fetch events is dropped in the end.
#[test]
fn a_socket_that_never_reads_events() {
    let mut s = Store::new();
    let (c, w) = (s.control(), s.control());
    for i in 0..3500 {
        s.watch(w, "/w", &format!("{}{i}", "t".repeat(3000)))
            .unwrap();
    }
    s.write(c, 0, "/w/x", "").unwrap();
    assert!(s.server.is_dead(w));
    assert!(s.server.buffered(w) < 10 << 20);
    assert!(
        s.host
            .lines
            .iter()
            .any(|l| l.ends_with("does not fetch its watch events and is dropped"))
    );
    s.write(c, 0, "/w/y", "").unwrap();
}

#[test]
fn too_long_a_message() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(4));
    s.watch(g, "x", "t").unwrap();
    assert_eq!(s.events(g), ["x t"]);
    let header = SockMsg {
        kind: kind::WRITE,
        req_id: 1,
        tx_id: 0,
        len: 4097,
    };
    s.push(g, header.as_bytes());
    assert!(s.server.is_dead(g));
    assert_eq!(s.server.wanted(g), 0);
    s.write(c, 0, "/local/domain/4/x", "").unwrap();
    assert!(s.events(g).is_empty());
    // The domain is still known, and its end is noticed.
    assert_eq!(
        s.ask(c, kind::IS_DOMAIN_INTRODUCED, 0, b"4\0"),
        Ok(b"T\0".to_vec())
    );
    s.ok(c, kind::RELEASE, 0, "4\0").unwrap();
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let path = prop::sample::select(vec![
        "/",
        "/a",
        "/a/b",
        "x",
        "x/y",
        "/local/domain/1",
        "/local/domain/2/x",
        "@releaseDomain",
        "",
        "//",
        "1",
        "2",
        "T",
        "F",
        "n1",
        "r2",
        "b0",
        "w1",
        "quota",
        "32752",
        "4294967296",
        "-1",
    ]);
    let words = prop::collection::vec(path, 0..5).prop_map(|w| {
        w.iter()
            .flat_map(|w| [w.as_bytes(), b"\0"].concat())
            .collect()
    });
    prop_oneof![4 => words, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

/// A message that may be wrong in each part.
fn wire() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![20 => Just(None), 1 => any::<u32>().prop_map(Some), 1 => (0..64_u32).prop_map(Some)];
    let kind = prop_oneof![20 => 0..26_u32, 1 => any::<u32>()];
    (kind, 0..5_u32, payload(), len).prop_map(|(kind, tx_id, payload, len)| {
        let header = SockMsg {
            kind,
            req_id: 9,
            tx_id,
            len: len.unwrap_or(payload.len() as u32),
        };
        [header.as_bytes(), &payload[..]].concat()
    })
}

proptest! {
    #![proptest_config(common::cases())]

    /// Two guests and the control domain send anything, in any pieces, and fetch when they like. The tree stays whole, what
    /// a guest makes the store keep stays bounded, and a client that is in order is still served.
    #[test]
    fn anything_from_anyone(steps in prop::collection::vec((0..3_usize, wire(), any::<bool>(), 1..40_usize), 1..100)) {
        let mut s = Store::new();
        let control = s.control();
        let clients: [ConnId; 3] = [control, s.guest(1), s.guest(2)];
        for (client, bytes, fetch, cut) in steps {
            let conn = clients[client];
            for piece in bytes.chunks(cut) {
                s.push(conn, piece);
            }
            if fetch && !s.server.outgoing(conn).is_empty() {
                let n = s.server.outgoing(conn).len().min(cut);
                s.server.sent(conn, n);
            }
            for guest in &clients[1..] {
                prop_assert!(s.server.buffered(*guest) <= GUEST_EVENTS + STAND_INS + 21 * 4112);
            }
        }
        s.check();
        let fresh = s.control();
        s.write(fresh, 0, "/still/here", "1").unwrap();
        prop_assert_eq!(s.read(fresh, 0, "/still/here"), Ok("1".to_owned()));
    }
}
