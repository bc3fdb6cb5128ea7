//! The domains that the store knows: those introduced to it, and those that nodes name in their permissions.

use super::host::{DomainState, Host};
use super::perms::Who;
use super::server::{ConnId, INTRODUCE_DOMAIN, RELEASE_DOMAIN, Server};
use super::view::View;
use std::collections::BTreeMap;
use xen_abi::{DomId, Errno};

/// A connected domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its connection.
    pub conn: ConnId,
    /// Its ring page, as the toolstack said.
    pub gfn: u64,
    /// Its own port of the event channel.
    pub port: u32,
    /// Its shutdown has been announced.
    pub shutdown: bool,
}

/// All known domains; `None` for one that is only named.
#[derive(Debug, Default)]
pub struct Domains(pub(super) BTreeMap<DomId, Option<Link>>);

impl Domains {
    /// The connection of an introduced domain.
    pub fn connection(&self, domid: DomId) -> Option<ConnId> {
        self.link(domid).map(|l| l.conn)
    }

    /// An introduced domain.
    pub fn link(&self, domid: DomId) -> Option<Link> {
        self.0.get(&domid).copied().flatten()
    }

    fn link_mut(&mut self, domid: DomId) -> Option<&mut Link> {
        self.0.get_mut(&domid)?.as_mut()
    }
}

impl Server {
    /// Connects a domain, or an introduced domain anew. Either way it starts afresh: empty ring, no watches, no
    /// transactions.
    ///
    /// # Errors
    /// `EINVAL` for a domain or port that cannot be; whatever the machine answers.
    pub fn introduce(
        &mut self,
        domid: DomId,
        gfn: u64,
        port: u32,
        host: &mut dyn Host,
    ) -> Result<(), Errno> {
        if !domid.is_ordinary() || port == 0 {
            return Err(Errno::EINVAL);
        }
        let new = match self.domains.link_mut(domid) {
            Some(link) => {
                (link.gfn, link.port) = (gfn, port);
                let conn = link.conn;
                self.reset(conn);
                if let Err(errno) = host.rebind(domid, port) {
                    host.log(&format!(
                        "{domid}: cannot bind its event channel port {port}: {errno:?}"
                    ));
                }
                false
            }
            None => {
                host.connect(domid, gfn, port)?;
                self.link_up(domid, gfn, port, false);
                true
            }
        };
        self.dirty = true;
        host.reset_ring(domid);
        if new && domid != DomId::DOM0 {
            self.publish_special(INTRODUCE_DOMAIN, host);
        }
        Ok(())
    }

    /// Notes a connected domain.
    pub(super) fn link_up(&mut self, domid: DomId, gfn: u64, port: u32, shutdown: bool) -> ConnId {
        let conn = self.add_conn(
            Who {
                domid,
                target: None,
            },
            Some(domid),
        );
        self.domains.0.insert(
            domid,
            Some(Link {
                conn,
                gfn,
                port,
                shutdown,
            }),
        );
        conn
    }

    /// Lets go of an introduced domain and forgets all about it.
    ///
    /// # Errors
    /// `ENOENT` if it is not introduced.
    pub fn release(&mut self, domid: DomId, host: &mut dyn Host) -> Result<(), Errno> {
        self.domains.link(domid).ok_or(Errno::ENOENT)?;
        self.forget(domid, host);
        Ok(())
    }

    /// Whether permissions may name a domain; it is known from now on.
    pub(super) fn may_name(&mut self, domid: DomId, host: &mut dyn Host) -> bool {
        if domid == DomId::DOM0 || self.domains.0.contains_key(&domid) {
            return true;
        }
        let exists = domid.is_ordinary() && host.state(domid) != DomainState::Gone;
        if exists {
            self.domains.0.insert(domid, None);
        }
        exists
    }

    /// Something happened to some domain: finds out what, and tells. Call when the hypervisor says so.
    pub fn sweep(&mut self, host: &mut dyn Host) {
        let known: Vec<DomId> = self
            .domains
            .0
            .keys()
            .copied()
            .filter(|d| *d != DomId::DOM0)
            .collect();
        let mut announce = false;
        for domid in known {
            match host.state(domid) {
                DomainState::Running => {}
                DomainState::Gone => self.forget(domid, host),
                DomainState::Shutdown => {
                    if let Some(link) = self.domains.link_mut(domid).filter(|l| !l.shutdown) {
                        link.shutdown = true;
                        announce = true;
                        self.dirty = true;
                    }
                }
            }
        }
        if announce {
            self.publish_special(RELEASE_DOMAIN, host);
        }
    }

    /// A domain's shutdown will be announced again.
    pub(super) fn resume(&mut self, domid: DomId) -> Result<(), Errno> {
        self.domains.link_mut(domid).ok_or(Errno::ENOENT)?.shutdown = false;
        self.dirty = true;
        Ok(())
    }

    /// Lets a domain act for another one.
    pub(super) fn set_target(&mut self, domid: DomId, target: DomId) -> Result<(), Errno> {
        let conn = self.domains.connection(domid).ok_or(Errno::ENOENT)?;
        self.domains.link(target).ok_or(Errno::ENOENT)?;
        if let Some(c) = self.conns.get_mut(&conn) {
            c.who.target = Some(target);
        }
        self.dirty = true;
        Ok(())
    }

    /// Removes a domain and every trace of its number: its nodes with all below them, its entries in permissions. A later
    /// domain may get the same number.
    pub(super) fn forget(&mut self, domid: DomId, host: &mut dyn Host) {
        let link = self.domains.0.remove(&domid).flatten();
        self.dirty = true;
        if let Some(link) = link {
            self.close(link.conn);
            host.disconnect(domid);
        }
        self.quotas.forget(domid);
        for conn in self.conns.values_mut() {
            conn.who.target = conn.who.target.filter(|t| *t != domid);
            conn.transactions
                .values_mut()
                .for_each(|t| t.forget_domain(domid));
        }
        let owned: Vec<_> = self
            .tree
            .iter()
            .filter(|(_, n)| n.perms.owner() == domid)
            .map(|(p, _)| p.clone())
            .collect();
        let mut view = View {
            tree: &mut self.tree,
            transaction: None,
            who: Who::CONTROL,
            quotas: &mut self.quotas,
            kept_bytes: 0,
            changes: Vec::new(),
            log: Vec::new(),
        };
        for path in owned {
            // The control domain has no quota, so this cannot be refused; those already gone are passed over.
            let _ = view.remove_tree(&path);
        }
        let changes = view.changes;
        let named = self
            .tree
            .iter()
            .filter_map(|(path, node)| Some((path.clone(), node.perms.without(domid)?)));
        for (path, perms) in named.collect::<Vec<_>>() {
            if let Some(node) = self.tree.get(&path) {
                let node = super::tree::Node {
                    perms,
                    ..super::tree::Node::clone(node)
                };
                self.tree.put(&path, node);
            }
        }
        for name in [INTRODUCE_DOMAIN, RELEASE_DOMAIN] {
            if let Some(perms) = self.special.of(name) {
                *perms = perms.without(domid).unwrap_or_else(|| perms.clone());
            }
        }
        self.publish(changes, host);
        if link.is_some() {
            self.publish_special(RELEASE_DOMAIN, host);
        }
    }
}
