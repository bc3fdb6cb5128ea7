//! A guest's own pirqs: is it told of them, and can it take one, bind it, end it and give it back?
//!
//! Command line: `expect=have` (made with `hvm_pirq=1`), `expect=none`, or nothing: then what it can do must be what it is told.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{DOMID_SELF, PHYSDEV_OP, Ret, XEN_VERSION, call, op, ptr};
use guest_rt::{check, evtchn, fact, start};
use xen_abi::features::feature;
use xen_abi::physdev::{map_pirq, op as physdev};
use xen_abi::{DomId, physdev as abi};

guest_rt::entry!("pirqs", run);

const ENOSYS: Ret = Ret(-38);
const EINVAL: Ret = Ret(-22);

fn call_physdev<T>(sub: u32, arg: &mut T) -> Ret {
    op(PHYSDEV_OP, sub.into(), arg)
}

/// PHYSDEVOP_get_free_pirq for a message.
fn free_pirq() -> Result<u32, Ret> {
    let mut arg = abi::PhysdevGetFreePirq {
        kind: map_pirq::MSI,
        pirq: 0,
    };
    match call_physdev(physdev::GET_FREE_PIRQ, &mut arg) {
        Ret(0) => Ok(arg.pirq),
        why => Err(why),
    }
}

/// PHYSDEVOP_map_pirq.
fn map(kind: i32, index: i32, pirq: i32) -> Ret {
    let mut arg = abi::PhysdevMapPirq {
        domid: DomId(DOMID_SELF),
        kind,
        index,
        pirq,
        ..Default::default()
    };
    call_physdev(physdev::MAP_PIRQ, &mut arg)
}

fn end(pirq: u32) -> Ret {
    call_physdev(physdev::EOI, &mut abi::PhysdevEoi { irq: pirq })
}

fn has_pirqs() {
    let pirq = match free_pirq() {
        Ok(n) => n,
        Err(why) => {
            check!(false, "no free pirq: {why}");
            return;
        }
    };
    fact!("pirq", "{pirq}");
    let mapped = map(map_pirq::MSI, 0, pirq as i32);
    check!(mapped == Ret(0), "a message gets the number: {mapped}");
    let line = map(map_pirq::GSI, 17, -1);
    check!(line == EINVAL, "it has no lines: {line}");
    let port = match evtchn::bind_pirq(pirq) {
        Ok(port) => port,
        Err(why) => {
            check!(false, "not bound to a port: {why}");
            return;
        }
    };
    fact!("port", "{port}");
    check!(evtchn::bind_pirq(pirq).is_err(), "it is bound twice");
    let mut query = abi::PhysdevIrqStatusQuery {
        irq: pirq,
        flags: u32::MAX,
    };
    let status = call_physdev(physdev::IRQ_STATUS_QUERY, &mut query);
    fact!("status", "{status} {:#x}", query.flags);
    check!(end(pirq) == Ret(0), "ended");
    let closed = evtchn::close(port);
    check!(closed == Ret(0), "closed: {closed}");
    let mut back = abi::PhysdevUnmapPirq {
        domid: DomId(DOMID_SELF),
        pirq: pirq as i32,
        ..Default::default()
    };
    let unmapped = call_physdev(physdev::UNMAP_PIRQ, &mut back);
    check!(unmapped == Ret(0), "given back: {unmapped}");
    let stale = end(pirq);
    check!(stale == EINVAL, "the number means nothing now: {stale}");
}

fn has_none() {
    check!(free_pirq() == Err(ENOSYS), "a free pirq without any");
    let mapped = map(map_pirq::MSI, 0, -1);
    check!(mapped == ENOSYS, "nothing is mapped: {mapped}");
    check!(evtchn::bind_pirq(511).is_err(), "bound to nothing");
}

fn run() {
    let mut features = [0u32; 2];
    let ret = Ret(call(XEN_VERSION, [6, ptr(&mut features), 0, 0, 0]));
    check!(ret == Ret(0), "XENVER_get_features: {ret}");
    let told = features[1] & 1 << feature::HVM_PIRQS != 0;
    fact!("told", "{told}");
    match start::option("expect") {
        Some("have") => {
            check!(told, "told of pirqs");
        }
        Some("none") => {
            check!(!told, "not told of pirqs");
        }
        _ => {}
    }
    if told {
        has_pirqs();
    } else {
        has_none();
    }
}
