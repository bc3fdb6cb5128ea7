//! What clients of the store rely on, request by request.
#![forbid(unsafe_code)]

mod common;

use common::Store;
use dom0_shim::xenstored::host::DomainState;
use xen_abi::io::xs_wire::kind;
use xen_abi::{DomId, Errno};

#[test]
fn values_and_children() {
    let mut s = Store::new();
    let c = s.control();
    s.write(c, 0, "/a/b/c", "one").unwrap();
    s.write(c, 0, "/a/x", "").unwrap();
    assert_eq!(s.read(c, 0, "/a/b/c").as_deref(), Ok("one"));
    assert_eq!(s.read(c, 0, "/a").as_deref(), Ok(""));
    assert_eq!(s.list(c, 0, "/a").as_deref(), Ok("b x"));
    assert_eq!(s.list(c, 0, "/").as_deref(), Ok("tool a"));
    assert_eq!(s.read(c, 0, "/b"), Err(Errno::ENOENT));
    s.mkdir(c, 0, "/a/b/c").unwrap();
    assert_eq!(
        s.read(c, 0, "/a/b/c").as_deref(),
        Ok("one"),
        "mkdir leaves what is there"
    );
    s.rm(c, 0, "/a/b").unwrap();
    assert_eq!(s.read(c, 0, "/a/b/c"), Err(Errno::ENOENT));
    assert_eq!(s.rm(c, 0, "/a/b"), Ok(()), "its parent is there");
    assert_eq!(
        s.rm(c, 0, "/a/b/c"),
        Err(Errno::ENOENT),
        "its parent is not"
    );
    assert_eq!(s.rm(c, 0, "/"), Err(Errno::EINVAL));
    assert_eq!(
        s.ask(c, kind::WRITE, 0, b"/bin\0\x00\xff\x00"),
        Ok(b"OK\0".to_vec())
    );
    assert_eq!(
        s.ask(c, kind::READ, 0, b"/bin\0"),
        Ok(b"\x00\xff\x00".to_vec())
    );
    s.check();
}

#[test]
fn relative_paths_and_the_path_of_a_domain() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(3));
    s.write(c, 0, "domid", "0").unwrap();
    assert_eq!(s.read(c, 0, "/local/domain/0/domid").as_deref(), Ok("0"));
    s.write(g, 0, "data/x", "y").unwrap();
    assert_eq!(s.read(c, 0, "/local/domain/3/data/x").as_deref(), Ok("y"));
    assert_eq!(
        s.ask(g, kind::GET_DOMAIN_PATH, 0, b"3\0"),
        Ok(b"/local/domain/3\0".to_vec())
    );
    for bad in [&b"3"[..], b"", b"3\x004\0", b"x\0"] {
        assert_eq!(s.ask(g, kind::GET_DOMAIN_PATH, 0, bad), Err(Errno::EINVAL));
    }
}

#[test]
fn malformed_requests() {
    let mut s = Store::new();
    let c = s.control();
    for payload in [&b""[..], b"/a", b"a b\0", b"/a\0/b\0", b"//\0"] {
        assert_eq!(
            s.ask(c, kind::READ, 0, payload),
            Err(Errno::EINVAL),
            "{payload:?}"
        );
    }
    assert_eq!(s.ask(c, kind::WRITE, 0, b"/no-nul"), Err(Errno::EINVAL));
    assert_eq!(s.ask(c, kind::SET_PERMS, 0, b"/\0"), Err(Errno::EINVAL));
    assert_eq!(s.ask(c, kind::SET_PERMS, 0, b"/\0q1\0"), Err(Errno::EINVAL));
    assert_eq!(
        s.ask(c, kind::TRANSACTION_END, 0, b"T\0"),
        Err(Errno::ENOENT)
    );
    assert_eq!(
        s.ask(c, kind::TRANSACTION_END, 9, b"T\0"),
        Err(Errno::ENOENT)
    );
    for unknown in [20, 15, 16, 23, 0xffff, u32::MAX] {
        assert_eq!(s.ask(c, unknown, 0, b"\0"), Err(Errno::ENOSYS), "{unknown}");
    }
    assert_eq!(
        s.ask(c, kind::READ, 5, b"/\0"),
        Err(Errno::ENOENT),
        "no such transaction"
    );
}

#[test]
fn permissions() {
    let mut s = Store::new();
    let (c, g, h) = (s.control(), s.guest(1), s.guest(2));
    s.write(c, 0, "/secret/a", "x").unwrap();
    assert_eq!(s.read(g, 0, "/secret/a"), Err(Errno::EACCES));
    assert_eq!(
        s.read(g, 0, "/secret/none"),
        Err(Errno::EACCES),
        "not told that it is not there"
    );
    assert_eq!(s.write(g, 0, "/mine", "x"), Err(Errno::EACCES));
    s.set_perms(c, 0, "/secret/a", &["n0", "r1", "w2"]).unwrap();
    assert_eq!(s.read(g, 0, "/secret/a").as_deref(), Ok("x"));
    assert_eq!(s.write(g, 0, "/secret/a", "y"), Err(Errno::EACCES));
    assert_eq!(s.read(h, 0, "/secret/a"), Err(Errno::EACCES));
    s.write(h, 0, "/secret/a", "z").unwrap();
    assert_eq!(s.perms(g, 0, "/secret/a").as_deref(), Ok("n0,r1,w2"));
    // What a guest makes is its own, with the rest inherited.
    s.set_perms(c, 0, "/secret/a", &["n0", "b1", "r2"]).unwrap();
    s.write(g, 0, "/secret/a/b", "q").unwrap();
    assert_eq!(s.perms(g, 0, "/secret/a/b").as_deref(), Ok("n1,b1,r2"));
    assert_eq!(s.read(h, 0, "/secret/a/b").as_deref(), Ok("q"));
    // Only the owner changes entries, and not the owner.
    assert_eq!(
        s.set_perms(h, 0, "/secret/a/b", &["n2"]),
        Err(Errno::EACCES)
    );
    assert_eq!(s.set_perms(g, 0, "/secret/a/b", &["n2"]), Err(Errno::EPERM));
    s.set_perms(g, 0, "/secret/a/b", &["n1"]).unwrap();
    assert_eq!(s.read(h, 0, "/secret/a/b"), Err(Errno::EACCES));
    // A domain that is not there gets nothing, and owns nothing.
    s.host.states.insert(DomId(9), DomainState::Gone);
    assert_eq!(s.set_perms(c, 0, "/secret", &["n9"]), Err(Errno::ENOENT));
    s.set_perms(c, 0, "/secret", &["n0", "b9"]).unwrap();
    assert_eq!(s.perms(c, 0, "/secret").as_deref(), Ok("n0"));
    s.check();
}

#[test]
fn only_the_control_domain_manages_domains() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(1));
    for (kind, payload) in [
        (kind::INTRODUCE, "2\x001\x002\0"),
        (kind::RELEASE, "1\0"),
        (kind::IS_DOMAIN_INTRODUCED, "1\0"),
        (kind::RESUME, "1\0"),
        (kind::SET_TARGET, "1\x000\0"),
        (kind::CONTROL, "check\0"),
    ] {
        assert_eq!(
            s.ask(g, kind, 0, payload.as_bytes()),
            Err(Errno::EACCES),
            "{kind}"
        );
    }
    let is = |s: &mut Store, d: &str| {
        s.ask(
            c,
            kind::IS_DOMAIN_INTRODUCED,
            0,
            format!("{d}\0").as_bytes(),
        )
        .unwrap()
    };
    assert_eq!(is(&mut s, "1"), b"T\0");
    assert_eq!(is(&mut s, "2"), b"F\0");
    assert_eq!(is(&mut s, "32752"), b"T\0", "the caller itself");
    assert_eq!(s.ok(c, kind::RELEASE, 0, "2\0"), Err(Errno::ENOENT));
    assert_eq!(s.ok(c, kind::RELEASE, 0, "0\0"), Err(Errno::EINVAL));
    for bad in [
        "2\x001\x000\0",
        "32752\x001\x001\0",
        "2\x001\0",
        "x\x001\x001\0",
    ] {
        assert_eq!(
            s.ok(c, kind::INTRODUCE, 0, bad),
            Err(Errno::EINVAL),
            "{bad:?}"
        );
    }
    s.host.refuse = true;
    assert_eq!(
        s.ok(c, kind::INTRODUCE, 0, "4\x001\x002\0"),
        Err(Errno::EINVAL)
    );
    assert_eq!(is(&mut s, "4"), b"F\0");
}

#[test]
fn transactions_are_apart_until_committed() {
    let mut s = Store::new();
    let (a, b) = (s.control(), s.control());
    s.write(a, 0, "/x", "0").unwrap();
    let t = s.start(a).unwrap();
    s.write(a, t, "/x", "1").unwrap();
    s.write(a, t, "/y/z", "2").unwrap();
    assert_eq!(s.read(a, t, "/x").as_deref(), Ok("1"));
    assert_eq!(s.list(a, t, "/y").as_deref(), Ok("z"));
    assert_eq!(s.read(b, 0, "/x").as_deref(), Ok("0"));
    assert_eq!(s.read(b, 0, "/y"), Err(Errno::ENOENT));
    assert_eq!(
        s.read(b, t, "/x"),
        Err(Errno::ENOENT),
        "another client's transaction"
    );
    s.end(a, t, true).unwrap();
    assert_eq!(s.read(b, 0, "/y/z").as_deref(), Ok("2"));
    assert_eq!(s.end(a, t, true), Err(Errno::ENOENT));
    let t = s.start(a).unwrap();
    s.rm(a, t, "/y").unwrap();
    s.end(a, t, false).unwrap();
    assert_eq!(s.read(b, 0, "/y/z").as_deref(), Ok("2"));
    let t = s.start(a).unwrap();
    assert_eq!(
        s.ask(a, kind::TRANSACTION_START, t, b"\0"),
        Err(Errno::EBUSY)
    );
    s.rm(a, t, "/y").unwrap();
    s.write(a, t, "/y/n", "3").unwrap();
    s.end(a, t, true).unwrap();
    assert_eq!(s.list(b, 0, "/y").as_deref(), Ok("n"));
    s.check();
}

#[test]
fn a_conflict_is_what_was_seen_and_has_changed() {
    let mut s = Store::new();
    let (a, b) = (s.control(), s.control());
    s.write(a, 0, "/x", "0").unwrap();
    // Seen and changed; seen to be missing and made; written and changed.
    type Act = fn(&mut Store, dom0_shim::xenstored::server::ConnId, u32);
    let conflicts: [(Act, Act); 4] = [
        (
            |s, c, t| drop(s.read(c, t, "/x")),
            |s, c, t| s.write(c, t, "/x", "1").unwrap(),
        ),
        (
            |s, c, t| drop(s.read(c, t, "/new")),
            |s, c, t| s.write(c, t, "/new", "").unwrap(),
        ),
        (
            |s, c, t| s.write(c, t, "/x", "3").unwrap(),
            |s, c, t| s.rm(c, t, "/x").unwrap(),
        ),
        (
            |s, c, t| drop(s.list(c, t, "/")),
            |s, c, t| s.mkdir(c, t, "/child").unwrap(),
        ),
    ];
    for (i, (inside, outside)) in conflicts.iter().enumerate() {
        s.write(a, 0, "/x", "0").unwrap();
        let t = s.start(a).unwrap();
        inside(&mut s, a, t);
        outside(&mut s, b, 0);
        s.write(a, t, "/done", "x").unwrap();
        assert_eq!(s.end(a, t, true), Err(Errno::EAGAIN), "{i}");
        assert_eq!(s.read(a, 0, "/done"), Err(Errno::ENOENT));
    }
    // What it has not seen may change.
    s.write(b, 0, "/other/deep", "1").unwrap();
    let t = s.start(a).unwrap();
    s.write(a, t, "/x", "4").unwrap();
    s.write(b, 0, "/other/deep", "2").unwrap();
    s.end(a, t, true).unwrap();
    assert_eq!(s.read(b, 0, "/x").as_deref(), Ok("4"));
    s.check();
}

#[test]
fn watches() {
    let mut s = Store::new();
    let (c, w) = (s.control(), s.control());
    s.watch(w, "/a/b", "t").unwrap();
    assert_eq!(s.events(w), ["/a/b t"], "at once, though nothing is there");
    assert_eq!(s.watch(w, "/a/b", "t"), Err(Errno::EEXIST));
    s.write(c, 0, "/a/b/c", "1").unwrap();
    s.write(c, 0, "/a/bb", "1").unwrap();
    s.write(c, 0, "/a", "1").unwrap();
    assert_eq!(s.events(w), ["/a/b/c t"]);
    s.set_perms(c, 0, "/a/b", &["r0"]).unwrap();
    s.mkdir(c, 0, "/a/b").unwrap();
    assert_eq!(
        s.events(w),
        ["/a/b t"],
        "mkdir of what is there is no change"
    );
    s.rm(c, 0, "/a").unwrap();
    assert_eq!(
        s.events(w),
        ["/a/b t"],
        "its own path when a tree around it goes"
    );
    // Relative in, relative out.
    s.watch(w, "device", "r").unwrap();
    s.write(c, 0, "/local/domain/0/device/vbd", "").unwrap();
    assert_eq!(s.events(w), ["device r", "device/vbd r"]);
    // Inside a transaction nothing, at its end one event for each node.
    let t = s.start(c).unwrap();
    s.write(c, t, "/a/b", "1").unwrap();
    s.write(c, t, "/a/b", "2").unwrap();
    assert!(s.events(w).is_empty());
    s.end(c, t, true).unwrap();
    assert_eq!(s.events(w), ["/a/b t"]);
    assert_eq!(
        s.ok(w, kind::UNWATCH, 0, "/a/b\0nope\0"),
        Err(Errno::ENOENT)
    );
    s.ok(w, kind::UNWATCH, 0, "/a/b\0t\0").unwrap();
    s.write(c, 0, "/a/b", "3").unwrap();
    assert!(s.events(w).is_empty());
    s.ok(w, kind::RESET_WATCHES, 0, "\0").unwrap();
    s.write(c, 0, "/local/domain/0/device/vbd", "").unwrap();
    assert!(s.events(w).is_empty());
}

#[test]
fn a_guest_is_told_only_of_what_it_can_see() {
    let mut s = Store::new();
    let (c, g) = (s.control(), s.guest(1));
    s.watch(g, "/", "all").unwrap();
    s.events(g);
    s.write(c, 0, "/secret", "1").unwrap();
    assert!(s.events(g).is_empty());
    s.set_perms(c, 0, "/secret", &["r0"]).unwrap();
    assert_eq!(s.events(g), ["/secret all"]);
    s.set_perms(c, 0, "/secret", &["n0"]).unwrap();
    assert_eq!(s.events(g), ["/secret all"], "it could see it before");
    s.set_perms(c, 0, "/secret", &["r0"]).unwrap();
    s.events(g);
    let t = s.start(c).unwrap();
    s.rm(c, t, "/secret").unwrap();
    s.end(c, t, true).unwrap();
    assert_eq!(s.events(g), ["/secret all"], "it could see what went");
}

#[test]
fn domains_come_and_go() {
    let mut s = Store::new();
    let w = s.control();
    s.watch(w, "@introduceDomain", "i").unwrap();
    s.watch(w, "@releaseDomain", "r").unwrap();
    s.events(w);
    let g = s.guest(5);
    assert_eq!(s.events(w), ["@introduceDomain i"]);
    assert_eq!(s.host.calls, ["connect d5 1 5", "reset d5"]);
    s.write(g, 0, "data", "x").unwrap();
    s.write(w, 0, "/shared", "x").unwrap();
    s.set_perms(w, 0, "/shared", &["n0", "b5"]).unwrap();
    s.events(w);
    // Introduced again: a fresh start on the same page.
    s.watch(g, "data", "t").unwrap();
    let t = s.start(g).unwrap();
    s.events(g);
    s.ok(w, kind::INTRODUCE, 0, "5\x001\x006\0").unwrap();
    assert!(s.events(w).is_empty());
    assert_eq!(s.host.calls[2..], ["rebind d5 6", "reset d5"]);
    assert_eq!(s.end(g, t, true), Err(Errno::ENOENT));
    s.write(w, 0, "/local/domain/5/data", "y").unwrap();
    assert!(s.events(g).is_empty());
    // Shut down: told once, and again after it was resumed.
    s.host.states.insert(DomId(5), DomainState::Shutdown);
    for expected in [&["@releaseDomain r"][..], &[]] {
        s.server.sweep(&mut s.host);
        assert_eq!(s.events(w), expected);
    }
    s.ok(w, kind::RESUME, 0, "5\0").unwrap();
    s.server.sweep(&mut s.host);
    assert_eq!(s.events(w), ["@releaseDomain r"]);
    // A transaction that would give the number rights again cannot succeed after its end.
    let t = s.start(w).unwrap();
    s.write(w, t, "/late", "").unwrap();
    s.set_perms(w, t, "/late", &["n0", "b5"]).unwrap();
    s.host.states.insert(DomId(5), DomainState::Gone);
    s.server.sweep(&mut s.host);
    assert_eq!(s.events(w), ["@releaseDomain r"]);
    assert_eq!(s.host.calls.last().unwrap(), "disconnect d5");
    assert_eq!(s.end(w, t, true), Err(Errno::EAGAIN));
    assert_eq!(s.read(w, 0, "/local/domain/5"), Err(Errno::ENOENT));
    assert_eq!(s.perms(w, 0, "/shared").as_deref(), Ok("n0"));
    assert_eq!(s.ok(w, kind::RELEASE, 0, "5\0"), Err(Errno::ENOENT));
    s.check();
}

#[test]
fn a_guest_may_be_allowed_to_see_domains_go() {
    let mut s = Store::new();
    let (c, g, h) = (s.control(), s.guest(1), s.guest(2));
    s.watch(g, "@releaseDomain", "r").unwrap();
    s.watch(h, "@releaseDomain", "r").unwrap();
    s.events(g);
    s.events(h);
    assert_eq!(
        s.set_perms(g, 0, "@releaseDomain", &["n0", "r1"]),
        Err(Errno::EACCES)
    );
    s.set_perms(c, 0, "@releaseDomain", &["n0", "r1"]).unwrap();
    assert_eq!(s.set_perms(c, 0, "@nonsense", &["n0"]), Err(Errno::EINVAL));
    s.guest(3);
    s.ok(c, kind::RELEASE, 0, "3\0").unwrap();
    assert_eq!(
        (s.events(g), s.events(h)),
        (vec!["@releaseDomain r".into()], vec![])
    );
}

#[test]
fn a_target_lends_its_rights_while_it_lives() {
    let mut s = Store::new();
    let (c, stub, _guest) = (s.control(), s.guest(7), s.guest(6));
    s.write(c, 0, "/local/domain/6/x", "1").unwrap();
    assert_eq!(s.read(stub, 0, "/local/domain/6/x"), Err(Errno::EACCES));
    assert_eq!(
        s.ok(c, kind::SET_TARGET, 0, "7\x0099\0"),
        Err(Errno::ENOENT)
    );
    s.ok(c, kind::SET_TARGET, 0, "7\x006\0").unwrap();
    assert_eq!(s.read(stub, 0, "/local/domain/6/x").as_deref(), Ok("1"));
    s.ok(c, kind::RELEASE, 0, "6\0").unwrap();
    s.guest(6);
    s.write(c, 0, "/local/domain/6/x", "2").unwrap();
    assert_eq!(s.read(stub, 0, "/local/domain/6/x"), Err(Errno::EACCES));
}

#[test]
fn long_lists_come_in_parts() {
    let mut s = Store::new();
    let c = s.control();
    for i in 0..700 {
        s.write(c, 0, &format!("/d/child-{i}"), "").unwrap();
    }
    assert_eq!(s.list(c, 0, "/d"), Err(Errno::E2BIG));
    let (mut all, mut generation) = (Vec::new(), None);
    loop {
        let reply = s
            .ask(
                c,
                kind::DIRECTORY_PART,
                0,
                format!("/d\0{}\0", all.len()).as_bytes(),
            )
            .unwrap();
        let at = reply.iter().position(|b| *b == 0).unwrap();
        let first = generation
            .get_or_insert_with(|| reply[..at].to_vec())
            .clone();
        assert_eq!(first, &reply[..at]);
        let part = &reply[at + 1..];
        let last = part.ends_with(b"\0\0") || part == b"\0";
        all.extend_from_slice(if last { &part[..part.len() - 1] } else { part });
        if last {
            break;
        }
    }
    let expected: String = (0..700).map(|i| format!("child-{i}\0")).collect();
    assert_eq!(all, expected.as_bytes());
    assert_eq!(
        s.ask(c, kind::DIRECTORY_PART, 0, b"/d\0x\0"),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        s.ask(c, kind::DIRECTORY_PART, 0, b"/d\0"),
        Err(Errno::EINVAL)
    );
}

#[test]
fn control_commands() {
    let mut s = Store::new();
    let c = s.control();
    s.guest(1);
    let text = |s: &mut Store, command: &str| {
        s.ask(c, kind::CONTROL, 0, command.as_bytes())
            .map(|t| String::from_utf8(t).unwrap())
    };
    assert_eq!(text(&mut s, "check\0").as_deref(), Ok("OK\0"));
    assert!(text(&mut s, "help\0").unwrap().contains("quota\t"));
    assert!(
        text(&mut s, "quota\0")
            .unwrap()
            .contains("nodes            :     1000 nodes per domain\n")
    );
    assert_eq!(
        text(&mut s, "quota\0set\0nodes\x0012\0").as_deref(),
        Ok("OK\0")
    );
    assert!(
        text(&mut s, "quota\0")
            .unwrap()
            .contains("nodes            :       12 ")
    );
    assert!(
        text(&mut s, "quota\x001\0")
            .unwrap()
            .starts_with("Domain 1:\nnodes           :        1\n")
    );
    assert_eq!(text(&mut s, "quota\x009\0"), Err(Errno::ENOENT));
    for bad in [
        "nonsense\0",
        "quota\0set\0x\x001\0",
        "quota\0set\0nodes\0-1\0",
        "\0",
        "",
    ] {
        assert_eq!(text(&mut s, bad), Err(Errno::EINVAL), "{bad:?}");
    }
    text(&mut s, "log\0on\0").unwrap();
    s.read(c, 0, "/").unwrap();
    assert!(s.host.lines.last().unwrap().contains("message type 2"));
}
