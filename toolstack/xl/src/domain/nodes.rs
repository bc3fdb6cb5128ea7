//! What a domain's part of the store looks like, after libxl.

use crate::build::special;
use crate::cfg::domain::{DomainConfig, uuid_text};
use crate::device::Node;
use xen_abi::DomId;

/// The skeleton, written before anything else.
pub fn skeleton(config: &DomainConfig, uuid: [u8; 16], domid: DomId, started: f64) -> Vec<Node> {
    let n = domid.0;
    let root = format!("/local/domain/{n}");
    let vm = format!("/vm/{}", uuid_text(uuid));
    let read = ["n0".to_owned(), format!("r{n}")];
    let own = [format!("n{n}")];
    let none = ["n0".to_owned()];
    let mut nodes = vec![
        Node::dir(&root, &read),
        Node::dir(&vm, &read),
        Node::dir(format!("/libxl/{n}"), &none),
        Node::dir(format!("/libxl/{n}/device"), &none),
        Node::value(format!("/libxl/{n}/type"), "pvh"),
        Node::value(most_memory(domid), config.maxmem),
        Node::value(format!("/libxl/{n}/dm-version"), "qemu_xen"),
        Node::value(format!("{root}/vm"), &vm),
        Node::value(format!("{root}/name"), &config.name),
    ];
    for dir in ["cpu", "memory", "device", "control"] {
        nodes.push(Node::dir(format!("{root}/{dir}"), &read));
    }
    for leaf in [
        "device/suspend/event-channel",
        "control/shutdown",
        "control/feature-poweroff",
        "control/feature-reboot",
        "control/feature-suspend",
        "control/sysrq",
        "data",
        "drivers",
        "feature",
        "attr",
        "error",
    ] {
        nodes.push(Node::value(format!("{root}/{leaf}"), "").perms(&own));
    }
    for feature in ["multiprocessor-suspend", "xs_reset_watches"] {
        nodes.push(Node::value(
            format!("{root}/control/platform-feature-{feature}"),
            1,
        ));
    }
    nodes.extend([
        Node::value(format!("{vm}/uuid"), uuid_text(uuid)),
        Node::value(format!("{vm}/name"), &config.name),
        Node::value(format!("{vm}/start_time"), format!("{started:.2}")),
    ]);
    nodes
}

/// Where the most memory that a domain may have stands, in KiB. `memory/static-max` is no less, but may be more or older: it is what
/// the domain's kernel reads at its start, and what other toolstacks change.
pub fn most_memory(domid: DomId) -> String {
    format!("/libxl/{}/maxmem", domid.0)
}

/// What follows when the domain is built.
pub fn built(config: &DomainConfig, domid: DomId, store_port: u32) -> Vec<Node> {
    let root = format!("/local/domain/{}", domid.0);
    let mut nodes = vec![
        // Not `maxmem`: Linux takes what this is above the memory that it finds at its start for memory to be given back, and
        // subtracts it from every target.
        Node::value(format!("{root}/memory/static-max"), config.memory),
        Node::value(format!("{root}/memory/target"), config.memory),
        Node::value(format!("{root}/memory/videoram"), 0),
        Node::value(format!("{root}/domid"), domid.0),
        Node::value(format!("{root}/store/port"), store_port),
        Node::value(format!("{root}/store/ring-ref"), special::XENSTORE),
    ];
    for vcpu in 0..config.maxvcpus {
        let state = if vcpu < config.vcpus {
            "online"
        } else {
            "offline"
        };
        nodes.push(Node::value(
            format!("{root}/cpu/{vcpu}/availability"),
            state,
        ));
    }
    nodes
}
