//! Operations that may concern two domains: connecting, sending, closing. Generic over what a domain is, so that they can
//! be tested without one.
//!
//! Two tables are locked in ascending order of domain identifiers. Which domain is the peer is only known from the table,
//! so closing looks, locks both, and looks again.

use hv_hw::sync::{SpinGuard, rank};
use xen_abi::{DomId, Errno};

use super::ports::State;
use super::table::EvtchnTable;
use super::{Notify, PortOwner};

type Guard<'a> = SpinGuard<'a, EvtchnTable, { rank::PORT }>;

/// Closing gives up after the peer has changed this often in between, which takes a guest that rebinds the port meanwhile.
const CLOSE_TRIES: u32 = 16;

/// Locks two domains' tables; the guards are in the order of the arguments.
fn lock_both<'a, D: PortOwner>(a: &'a D, b: &'a D) -> (Guard<'a>, Guard<'a>) {
    if a.id() < b.id() {
        let first = a.evtchn().table.lock();
        let second = b.evtchn().table.lock_second();
        (first, second)
    } else {
        let first = b.evtchn().table.lock();
        let second = a.evtchn().table.lock_second();
        (second, first)
    }
}

/// `EVTCHNOP_bind_interdomain`: connects a new port of `local` with `remote_port` of `remote` (which may be the same
/// domain). EINVAL: that port does not wait for `local`; ENOSPC, ENOMEM. The new port is raised once: what was sent to the
/// other one while it was unbound is lost. The notification is for `local`.
pub fn bind_interdomain<D: PortOwner>(
    local: &D,
    remote: &D,
    remote_port: u32,
) -> Result<(u32, Notify), Errno> {
    let mut out = Notify::default();
    if local.id() == remote.id() {
        let mut table = local.evtchn().table.lock();
        let port = connect(&mut table, None, local.id(), remote.id(), remote_port)?;
        table.raise(local, &local.evtchn().polling, port, &mut out);
        return Ok((port, out));
    }
    let (mut ours, mut theirs) = lock_both(local, remote);
    let port = connect(
        &mut ours,
        Some(&mut theirs),
        local.id(),
        remote.id(),
        remote_port,
    )?;
    drop(theirs);
    ours.raise(local, &local.evtchn().polling, port, &mut out);
    Ok((port, out))
}

/// Makes both ends point at each other; `theirs` is `None` if both are in `ours`. As in Xen a full table is found out
/// before a bad remote port, and a failure leaves nothing behind.
fn connect(
    ours: &mut EvtchnTable,
    mut theirs: Option<&mut EvtchnTable>,
    local: DomId,
    remote: DomId,
    remote_port: u32,
) -> Result<u32, Errno> {
    let state = State::Interdomain {
        remote,
        port: remote_port,
    };
    let port = ours.allocate(state, 0)?;
    let other = match &mut theirs {
        Some(t) => t.ports.get_mut(remote_port),
        None => ours.ports.get_mut(remote_port),
    };
    match other {
        Ok(p) if p.state == (State::Unbound { remote: local }) => {
            p.state = State::Interdomain {
                remote: local,
                port,
            };
            Ok(port)
        }
        _ => {
            ours.ports.free(port);
            Err(Errno::EINVAL)
        }
    }
}

/// Where a sent event went.
#[must_use]
pub enum Sent<P> {
    /// To the sender's own domain, or nowhere.
    Local(Notify),
    /// To another domain.
    Peer(P, Notify),
}

/// `EVTCHNOP_send`. `find` looks a domain up. Events on an unbound port vanish. EINVAL: no such port, or one that only
/// the hypervisor raises.
pub fn send<D, P>(
    local: &D,
    port: u32,
    find: impl FnOnce(DomId) -> Option<P>,
) -> Result<Sent<P>, Errno>
where
    D: PortOwner,
    P: core::ops::Deref<Target = D>,
{
    let mut out = Notify::default();
    let mut table = local.evtchn().table.lock();
    let (remote, remote_port) = match table.ports.get(port)?.state {
        State::Interdomain { remote, port } => (remote, port),
        State::Ipi => {
            table.raise(local, &local.evtchn().polling, port, &mut out);
            return Ok(Sent::Local(out));
        }
        State::Unbound { .. } => return Ok(Sent::Local(out)),
        _ => return Err(Errno::EINVAL),
    };
    if remote == local.id() {
        table.raise(local, &local.evtchn().polling, remote_port, &mut out);
        return Ok(Sent::Local(out));
    }
    drop(table);
    let Some(peer) = find(remote) else {
        return Ok(Sent::Local(out));
    };
    let mut table = peer.evtchn().table.lock();
    // The pair may have been closed, and the port number reused, since the lock of our side was released.
    let expected = State::Interdomain {
        remote: local.id(),
        port,
    };
    if table
        .ports
        .get(remote_port)
        .is_ok_and(|p| p.state == expected)
    {
        table.raise(&*peer, &peer.evtchn().polling, remote_port, &mut out);
    }
    drop(table);
    Ok(Sent::Peer(peer, out))
}

/// `EVTCHNOP_close`. The other end of a pair becomes unbound, waiting for this domain again. EINVAL: no such port, or not
/// in use; EAGAIN: other vCPUs keep rebinding it.
pub fn close<D, P>(local: &D, port: u32, find: impl Fn(DomId) -> Option<P>) -> Result<(), Errno>
where
    D: PortOwner,
    P: core::ops::Deref<Target = D>,
{
    for _ in 0..CLOSE_TRIES {
        let mut table = local.evtchn().table.lock();
        let state = table.ports.get(port)?.state;
        let (remote, remote_port) = match state {
            State::Free | State::Reserved => return Err(Errno::EINVAL),
            State::Interdomain { remote, port } => (remote, port),
            State::Unbound { .. } | State::Virq(_) | State::Pirq(_) | State::Ipi => {
                table.close_own(port);
                return Ok(());
            }
        };
        if remote == local.id() {
            table.free(port);
            disconnect(&mut table, remote_port, local.id(), port);
            return Ok(());
        }
        drop(table);
        let Some(peer) = find(remote) else {
            // A domain closes its ports before it goes, so this end is about to become unbound, or just has.
            let mut table = local.evtchn().table.lock();
            if table.ports.get(port)?.state == state {
                table.free(port);
                return Ok(());
            }
            continue;
        };
        let (mut ours, mut theirs) = lock_both(local, &*peer);
        if ours.ports.get(port)?.state == state {
            ours.free(port);
            disconnect(&mut theirs, remote_port, local.id(), port);
            return Ok(());
        }
    }
    Err(Errno::EAGAIN)
}

/// Makes a port unbound if it is connected with `port` of `closer`.
fn disconnect(table: &mut EvtchnTable, at: u32, closer: DomId, port: u32) {
    let expected = State::Interdomain {
        remote: closer,
        port,
    };
    if let Ok(p) = table.ports.get_mut(at)
        && p.state == expected
    {
        p.state = State::Unbound { remote: closer };
    }
}

/// `EVTCHNOP_reset`, and the end of a domain: closes every port from `first` on, at most `budget` of them. `None` when
/// done, and the domain is back in the 2-level format; else where to go on.
pub fn reset<D, P>(
    local: &D,
    first: u32,
    budget: u32,
    find: impl Fn(DomId) -> Option<P>,
) -> Result<Option<u32>, Errno>
where
    D: PortOwner,
    P: core::ops::Deref<Target = D>,
{
    let mut left = budget;
    let mut port = first.max(1);
    loop {
        let len = local.evtchn().table.lock().ports.len();
        if port >= len {
            break;
        }
        if left == 0 {
            return Ok(Some(port));
        }
        left -= 1;
        match close(local, port, &find) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(e) => return Err(e),
        }
        port += 1;
    }
    local.evtchn().table.lock().reset_abi();
    Ok(None)
}
