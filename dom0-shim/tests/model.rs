//! The store against a model: a plain map of names, permissions looked up in the most naive way.
//!
//! Transactions are checked by what they promise: one that commits answered every request as if all of them had been made
//! at once at the time of the commit; one that fails leaves no trace; one that nothing interfered with never fails.
#![forbid(unsafe_code)]

mod common;

use common::Store;
use dom0_shim::xenstored::server::ConnId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use xen_abi::Errno;

#[derive(Clone, Debug)]
enum Op {
    Read(String),
    List(String),
    Perms(String),
    Write(String, String),
    Mkdir(String),
    Rm(String),
    SetPerms(String, Vec<String>),
}

#[derive(Default)]
struct Model(BTreeMap<String, (String, Vec<String>)>);

type Answer = Result<String, Errno>;

fn parent(path: &str) -> &str {
    match path.rfind('/').unwrap() {
        0 => "/",
        at => &path[..at],
    }
}

impl Model {
    fn rights(&self, path: &str, who: u16) -> (bool, bool) {
        let perms = &self.0[path].1;
        let is = |p: &String, d: u16| p[1..] == d.to_string();
        if who == 0 || is(&perms[0], who) {
            return (true, true);
        }
        let entry = perms[1..].iter().find(|p| is(p, who)).unwrap_or(&perms[0]);
        let letter = entry.as_bytes()[0];
        (b"rb".contains(&letter), b"wb".contains(&letter))
    }

    fn check(&self, path: &str, who: u16, write: bool) -> Result<(), Errno> {
        let may = |at: &str| {
            let (r, w) = self.rights(at, who);
            if write { w } else { r }
        };
        if self.0.contains_key(path) {
            return if may(path) {
                Ok(())
            } else {
                Err(Errno::EACCES)
            };
        }
        let mut at = parent(path);
        while !self.0.contains_key(at) {
            at = parent(at);
        }
        Err(if may(at) {
            Errno::ENOENT
        } else {
            Errno::EACCES
        })
    }

    fn make(&mut self, path: &str, who: u16, value: &str) {
        if !self.0.contains_key(parent(path)) {
            self.make(parent(path), who, "");
        }
        let mut perms = self.0[parent(path)].1.clone();
        if who != 0 {
            perms[0] = format!("{}{who}", &perms[0][..1]);
        }
        self.0.insert(path.into(), (value.into(), perms));
    }

    fn run(&mut self, op: &Op, who: u16) -> Answer {
        match op {
            Op::Read(path) => self
                .check(path, who, false)
                .map(|()| self.0[path].0.clone()),
            Op::Perms(path) => self
                .check(path, who, false)
                .map(|()| self.0[path].1.join(",")),
            Op::List(path) => {
                self.check(path, who, false)?;
                let inside = self.0.keys().filter(|k| *k != "/" && parent(k) == path);
                Ok(inside
                    .map(|k| k.rsplit('/').next().unwrap())
                    .collect::<Vec<_>>()
                    .join(" "))
            }
            Op::Write(path, value) => match self.check(path, who, true) {
                Ok(()) => {
                    self.0.get_mut(path).unwrap().0 = value.clone();
                    Ok("".into())
                }
                Err(Errno::ENOENT) => {
                    self.make(path, who, value);
                    Ok("".into())
                }
                Err(e) => Err(e),
            },
            Op::Mkdir(path) => match self.check(path, who, true) {
                Err(Errno::ENOENT) => {
                    self.make(path, who, "");
                    Ok("".into())
                }
                other => other.map(|()| "".into()),
            },
            Op::Rm(path) => match self.check(path, who, true) {
                Ok(()) if path == "/" => Err(Errno::EINVAL),
                Ok(()) => {
                    self.0
                        .retain(|k, _| k != path && !k.starts_with(&format!("{path}/")));
                    Ok("".into())
                }
                Err(Errno::ENOENT) if self.0.contains_key(parent(path)) => Ok("".into()),
                Err(e) => Err(e),
            },
            Op::SetPerms(path, perms) => {
                self.check(path, who, true)?;
                let owner = &self.0[path].1[0];
                if who != 0 && owner[1..] != who.to_string() {
                    return Err(Errno::EACCES);
                }
                if who != 0 && owner[1..] != perms[0][1..] {
                    return Err(Errno::EPERM);
                }
                self.0.get_mut(path).unwrap().1 = perms.clone();
                Ok("".into())
            }
        }
    }
}

fn run(store: &mut Store, conn: ConnId, tx: u32, op: &Op) -> Answer {
    let nothing = |r: Result<(), Errno>| r.map(|()| String::new());
    match op {
        Op::Read(path) => store.read(conn, tx, path),
        Op::Perms(path) => store.perms(conn, tx, path),
        // The store lists in order of creation, the model by name.
        Op::List(path) => store.list(conn, tx, path).map(|l| {
            let mut names: Vec<_> = l.split(' ').collect();
            names.sort();
            names.join(" ")
        }),
        Op::Write(path, value) => nothing(store.write(conn, tx, path, value)),
        Op::Mkdir(path) => nothing(store.mkdir(conn, tx, path)),
        Op::Rm(path) => nothing(store.rm(conn, tx, path)),
        Op::SetPerms(path, perms) => {
            let perms: Vec<&str> = perms.iter().map(String::as_str).collect();
            nothing(store.set_perms(conn, tx, path, &perms))
        }
    }
}

/// What a client does next: a request, outside or inside its transaction, or the end of that.
#[derive(Clone, Debug)]
enum Step {
    Op { client: usize, inside: bool, op: Op },
    End { client: usize, commit: bool },
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just("/".to_owned()),
        12 => prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|p| format!("/{}", p.join("/"))),
    ]
}

fn perms() -> impl Strategy<Value = Vec<String>> {
    let entry = (prop::sample::select(vec!["n", "r", "w", "b"]), 0..3_u16);
    prop::collection::vec(entry.prop_map(|(l, d)| format!("{l}{d}")), 1..4)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        path().prop_map(Op::Read),
        path().prop_map(Op::List),
        path().prop_map(Op::Perms),
        (path(), "[xyz]{0,2}").prop_map(|(p, v)| Op::Write(p, v)),
        path().prop_map(Op::Mkdir),
        path().prop_map(Op::Rm),
        (path(), perms()).prop_map(|(p, e)| Op::SetPerms(p, e)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize, any::<bool>(), op()).prop_map(|(client, inside, op)| Step::Op { client, inside, op }),
        1 => (0..3_usize, prop::bool::weighted(0.8)).prop_map(|(client, commit)| Step::End { client, commit }),
    ]
}

#[derive(Default)]
struct Open {
    id: u32,
    log: Vec<(Op, Answer)>,
    /// Something else was changed since its start.
    disturbed: bool,
}

/// The model of a fresh store with two guests.
fn fresh() -> (Store, [ConnId; 3], Model) {
    let mut store = Store::new();
    let control = store.control();
    let clients = [control, store.guest(1), store.guest(2)];
    for top in ["/local", "/tool"] {
        store.rm(control, 0, top).unwrap();
    }
    store.set_perms(control, 0, "/", &["b0"]).unwrap();
    let model = Model([("/".into(), (String::new(), vec!["b0".into()]))].into());
    (store, clients, model)
}

proptest! {
    #![proptest_config(common::cases())]

    #[test]
    fn as_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let (mut store, clients, mut model) = fresh();
        let mut open: [Option<Open>; 3] = Default::default();
        for step in steps {
            // A write of what is there already counts as a change.
            let (actor, changed);
            match step {
                Step::Op { client, inside: true, op } => {
                    let conn = clients[client];
                    if open[client].is_none() {
                        open[client] = Some(Open { id: store.start(conn).unwrap(), ..Open::default() });
                    }
                    let tx = open[client].as_mut().unwrap();
                    let answer = run(&mut store, conn, tx.id, &op);
                    tx.log.push((op, answer));
                    (actor, changed) = (Some(client), false);
                }
                Step::Op { client, inside: false, op } => {
                    let answer = run(&mut store, clients[client], 0, &op);
                    prop_assert_eq!(&answer, &model.run(&op, client as u16), "{:?} by {}", op, client);
                    let reads = matches!(op, Op::Read(_) | Op::List(_) | Op::Perms(_));
                    (actor, changed) = (None, answer.is_ok() && !reads);
                }
                Step::End { client, commit } => {
                    let Some(tx) = open[client].take() else { continue };
                    let result = store.end(clients[client], tx.id, commit);
                    if commit && result.is_ok() {
                        for (op, answer) in tx.log {
                            prop_assert_eq!(model.run(&op, client as u16), answer, "{:?} at commit", op);
                        }
                    } else if commit {
                        prop_assert_eq!(result, Err(Errno::EAGAIN));
                        prop_assert!(tx.disturbed, "a conflict with nothing");
                    }
                    (actor, changed) = (Some(client), commit && result.is_ok());
                }
            }
            if changed {
                for (client, tx) in open.iter_mut().enumerate() {
                    if let Some(tx) = tx.as_mut().filter(|_| Some(client) != actor) {
                        tx.disturbed = true;
                    }
                }
            }
            store.check();
        }
        // The trees are the same.
        for (path, (value, perms)) in &model.0 {
            prop_assert_eq!(store.read(clients[0], 0, path), Ok(value.clone()));
            prop_assert_eq!(store.perms(clients[0], 0, path), Ok(perms.join(",")));
        }
        prop_assert_eq!(store.server.tree().len(), model.0.len());
    }
}
