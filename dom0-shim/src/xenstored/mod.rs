//! `xenstored`: the tree of names and values through which the control domain and its guests find each other.
//!
//! From the inside out: [`tree`] and [`transaction`] hold nodes, [`view`] checks permissions and quotas for one request,
//! `requests` turns messages into calls of it, [`server`] has the connections and their bounded queues. All of that is
//! pure: it owns its state, runs on one thread and reaches the machine through [`host::Host`] only. Around it, [`conn`] are
//! the clients' ends, [`machine`] holds them and [`pump`] moves the bytes. Behaviour follows Xen
//! 4.17's xenstored, `docs/misc/xenstore.txt` there being the description of the protocol.

pub mod conn;
mod control;
pub mod daemon;
pub mod domains;
mod dump;
pub mod host;
pub mod machine;
pub mod message;
mod number;
pub mod options;
pub mod path;
pub mod perms;
pub mod pump;
pub mod quota;
mod requests;
pub mod server;
mod state;
pub mod transaction;
pub mod tree;
pub mod view;
pub mod watch;
mod xen;
