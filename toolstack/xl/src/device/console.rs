//! The console: nodes for xenconsoled.

use super::Node;
use crate::build::special;
use xen_abi::DomId;

/// Where the guest's end is.
pub fn front(domid: DomId) -> String {
    format!("/local/domain/{}/console", domid.0)
}

/// Its nodes.
pub fn nodes(domid: DomId, port: u32) -> Vec<Node> {
    let guest = domid.0;
    let front = front(domid);
    let back = format!("/local/domain/0/backend/console/{guest}/0");
    let kept = format!("/libxl/{guest}/device/console/0");
    let read = [format!("n{guest}"), "r0".to_owned()];
    let front_perms = [format!("n{guest}"), "r0".to_owned()];
    // What the control domain believes must not be the guest's to change.
    let own = ["n0".to_owned(), format!("r{guest}")];
    let mut nodes = vec![
        Node::dir(&kept, &["n0".to_owned()]),
        Node::value(format!("{kept}/frontend"), &front),
        Node::value(format!("{kept}/backend"), &back),
        Node::dir(&front, &front_perms),
        Node::dir(&back, &own),
    ];
    let values = [
        ("backend", back.clone()),
        ("backend-id", "0".to_owned()),
        ("limit", "1048576".to_owned()),
        ("type", "xenconsoled".to_owned()),
        ("output", "pty".to_owned()),
        ("port", port.to_string()),
        ("ring-ref", special::CONSOLE.to_string()),
    ];
    for (name, value) in values {
        nodes.push(Node::value(format!("{front}/{name}"), value).perms(&own));
    }
    nodes.push(Node::value(format!("{front}/tty"), "").perms(&read));
    let values = [
        ("frontend", front.clone()),
        ("frontend-id", guest.to_string()),
        ("online", "1".to_owned()),
        ("state", "1".to_owned()),
        ("protocol", "vt100".to_owned()),
    ];
    for (name, value) in values {
        nodes.push(Node::value(format!("{back}/{name}"), value));
    }
    nodes
}
