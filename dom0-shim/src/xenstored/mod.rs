//! `xenstored`: the tree of names and values through which the control domain and its guests find each other.
//!
//! From the inside out: [`tree`] and [`transaction`] hold nodes, [`view`] checks permissions and quotas for one request,
//! `requests` turns messages into calls of it, [`server`] has the connections and their bounded queues. All of that is
//! pure: it owns its state, runs on one thread and reaches the machine through [`host::Host`] only. Behaviour follows Xen
//! 4.17's xenstored, `docs/misc/xenstore.txt` there being the description of the protocol.

mod control;
pub mod domains;
pub mod host;
pub mod message;
mod number;
pub mod path;
pub mod perms;
pub mod quota;
mod requests;
pub mod server;
pub mod transaction;
pub mod tree;
pub mod view;
pub mod watch;
