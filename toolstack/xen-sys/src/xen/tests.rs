//! The questions against the machine of [`crate::fake`].

use super::{Affinity, PoolParameters, Weight, Xen};
use crate::bits::BitSet;
use crate::fake::{FakeDomain, Machine};
use std::cell::RefCell;
use std::rc::Rc;
use xen_abi::domctl::{scheduler, trigger};
use xen_abi::{DomId, Errno};

fn machine(change: impl FnOnce(&mut Machine)) -> (Rc<RefCell<Machine>>, Xen) {
    let mut machine = Machine::new(4, 1024);
    for id in [0, 2, 7] {
        machine.domains.insert(id, FakeDomain::new(id, 2, 100, 4));
    }
    change(&mut machine);
    let (machine, calls) = machine.share();
    (machine, Xen::new(calls))
}

#[test]
fn each_version_is_found_and_a_missing_domain_is_missing_in_all() {
    for (domctl, sysctl) in [
        (0x15, 0x15),
        (0x16, 0x15),
        (0x17, 0x15),
        (0x17, 0x16),
        (0x18, 0x16),
    ] {
        let (_, xen) = machine(|m| (m.domctl, m.sysctl) = (domctl, sysctl));
        assert_eq!(xen.domctl_version().unwrap(), domctl);
        assert!(xen.domain(DomId(1)).unwrap().is_none());
        assert!(xen.domain(DomId(8)).unwrap().is_none());
        assert_eq!(xen.domain(DomId(2)).unwrap().unwrap().vcpus(), 2);
        let ids: Vec<u16> = xen.domains().unwrap().iter().map(|d| d.id().0).collect();
        assert_eq!(ids, [0, 2, 7]);
    }
}

#[test]
fn an_unknown_version_is_an_error() {
    let (_, xen) = machine(|m| (m.domctl, m.sysctl) = (0x40, 0x40));
    let errno = |e: std::io::Error| crate::errno_of(&e);
    assert_eq!(
        errno(xen.physinfo().unwrap_err()),
        Some(Errno::EACCES as i32)
    );
    assert_eq!(
        errno(xen.domctl_version().unwrap_err()),
        Some(Errno::EACCES as i32)
    );
}

#[test]
fn lists_longer_than_a_batch_are_whole() {
    let (_, xen) = machine(|m| {
        for id in 0..600 {
            m.domains.insert(id, FakeDomain::new(id, 1, 1, 4));
        }
    });
    assert_eq!(xen.domains().unwrap().len(), 600);
}

#[test]
fn affinities_go_there_and_back() {
    let (_, xen) = machine(|_| ());
    let all = BitSet::full(4);
    let before = xen.affinity(DomId(2), 1).unwrap();
    assert_eq!(
        before,
        Affinity {
            hard: all.clone(),
            soft: all.clone()
        }
    );
    let only: BitSet = [1, 3].into_iter().collect();
    let now = xen
        .set_affinity(DomId(2), 1, Some(&only), None, false)
        .unwrap();
    assert_eq!(now.hard.to_string(), "1,3");
    let after = xen.affinity(DomId(2), 1).unwrap();
    assert_eq!((after.hard.to_string().as_str(), after.soft), ("1,3", all));
    assert!(xen.affinity(DomId(2), 5).is_err());
    let none = BitSet::new(4);
    assert!(
        xen.set_affinity(DomId(2), 1, None, Some(&none), false)
            .is_err()
    );
}

#[test]
fn pools_and_shares_are_told_and_changed() {
    let (_, xen) = machine(|_| ());
    let pools = xen.pools().unwrap();
    assert_eq!(
        (pools.len(), pools[0].domains, pools[0].cpus.len()),
        (1, 3, 4)
    );
    assert!(xen.free_cpus().unwrap().is_empty());
    let quick = PoolParameters::Credit2 { ratelimit_us: 500 };
    xen.set_pool_parameters(&pools[0], quick).unwrap();
    assert_eq!(xen.pool_parameters(&pools[0]).unwrap(), quick);
    let share = Weight {
        weight: 512,
        cap: 50,
    };
    xen.set_weight(DomId(7), scheduler::CREDIT2, share).unwrap();
    assert_eq!(xen.weight(DomId(7), scheduler::CREDIT2).unwrap(), share);
    assert!(xen.weight(DomId(7), scheduler::CREDIT).is_err());
}

#[test]
fn the_console_is_read_whole_and_emptied_on_request() {
    let log: Vec<u8> = (0..50_000u32).map(|n| b'a' + (n % 26) as u8).collect();
    let (machine, xen) = machine(|m| m.console = log.clone());
    assert_eq!(xen.console(false).unwrap(), log);
    assert_eq!(xen.console(true).unwrap(), log);
    assert!(machine.borrow().console.is_empty());
    assert!(xen.console(true).unwrap().is_empty());
}

#[test]
fn the_machine_is_described() {
    let (_, xen) = machine(|m| m.version.build_id = vec![0xab, 0xcd]);
    assert_eq!(xen.cpu_bound().unwrap(), 4);
    assert_eq!(xen.cpu_topology().unwrap()[3].core, 3);
    let (memory, distances) = xen.nodes().unwrap();
    assert_eq!((memory[0].memsize, distances), (1 << 30, vec![10]));
    assert_eq!(xen.device_nodes(&[0, 8, 16]).unwrap(), [Some(0); 3]);
    let version = xen.version().unwrap();
    assert_eq!((version.major, version.minor), (4, 17));
    assert_eq!(version.build_id, [0xab, 0xcd]);
    assert_eq!(xen.sharing_freed_pages().unwrap(), 0);
    assert_eq!(xen.node_affinity(DomId(2)).unwrap().to_string(), "0");
    assert_eq!(xen.free_memory(0).unwrap(), 256 << 20);
}

#[test]
fn security_labels_come_from_flask_only() {
    let (_, xen) = machine(|_| ());
    assert_eq!((xen.enforcing().unwrap(), xen.label(1)), (None, None));
    let (_, xen) = machine(|m| m.enforcing = Some(true));
    assert_eq!(xen.enforcing().unwrap(), Some(true));
    assert_eq!(xen.label(1).unwrap(), "system_u:system_r:label_1");
}

#[test]
fn orders_reach_the_domain() {
    let (machine, xen) = machine(|_| ());
    xen.set_max_memory(DomId(2), 8192).unwrap();
    xen.trigger(DomId(2), trigger::NMI, 1).unwrap();
    xen.debug_keys("qd").unwrap();
    xen.destroy(DomId(7)).unwrap();
    let machine = machine.borrow();
    assert_eq!(machine.domains[&2].info.max_pages, 2048);
    assert_eq!(machine.log, ["trigger 0 of d2v1", "keys qd"]);
    assert!(!machine.domains.contains_key(&7));
}
