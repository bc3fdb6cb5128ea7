//! Who may do what with a node.
//!
//! A node has a list of entries, each a letter and a domain. The first names the owner, who may do everything; its letter
//! is what domains not named later may do. The control domain may always do everything.

use std::rc::Rc;
use xen_abi::{DomId, Errno};

/// What may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// See value, children and entries.
    pub read: bool,
    /// Change the value, create children, remove.
    pub write: bool,
}

impl Access {
    /// Letter `n`.
    pub const NONE: Access = Access {
        read: false,
        write: false,
    };
    /// Letter `r`.
    pub const READ: Access = Access {
        read: true,
        write: false,
    };
    /// Letter `w`.
    pub const WRITE: Access = Access {
        read: false,
        write: true,
    };
    /// Letter `b`.
    pub const BOTH: Access = Access {
        read: true,
        write: true,
    };

    fn letter(self) -> char {
        match (self.read, self.write) {
            (false, false) => 'n',
            (true, false) => 'r',
            (false, true) => 'w',
            (true, true) => 'b',
        }
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Whom it is about.
    pub domid: DomId,
    /// What that domain may do.
    pub access: Access,
}

impl Entry {
    /// Reads the wire's form, without NUL, for example `r12`.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn parse(text: &[u8]) -> Result<Entry, Errno> {
        let (letter, number) = text.split_first().ok_or(Errno::EINVAL)?;
        let access = match letter {
            b'n' => Access::NONE,
            b'r' => Access::READ,
            b'w' => Access::WRITE,
            b'b' => Access::BOTH,
            _ => return Err(Errno::EINVAL),
        };
        let domid = super::number::decimal(number).ok_or(Errno::EINVAL)?;
        Ok(Entry {
            domid: DomId(domid),
            access,
        })
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.access.letter(), self.domid.0)
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// The domain.
    pub domid: DomId,
    /// The domain on whose behalf it may act, set by the control domain.
    pub target: Option<DomId>,
}

impl Who {
    /// The control domain.
    pub const CONTROL: Who = Who {
        domid: DomId::DOM0,
        target: None,
    };

    /// Whether no permission and no quota limits it.
    pub fn is_privileged(self) -> bool {
        self.domid == DomId::DOM0
    }

    fn is(self, domid: DomId) -> bool {
        domid == self.domid || self.target == Some(domid)
    }
}

/// A node's entries: at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Perms(Rc<[Entry]>);

impl Perms {
    /// Owner `domid`, and `access` for everyone else.
    pub fn new(domid: DomId, access: Access) -> Perms {
        Perms([Entry { domid, access }].into())
    }

    /// A whole list; `None` if it is empty.
    pub fn from_entries(entries: Vec<Entry>) -> Option<Perms> {
        (!entries.is_empty()).then(|| Perms(entries.into()))
    }

    /// All entries, the owner's first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Who owns the node and whom it is charged to.
    pub fn owner(&self) -> DomId {
        self.0[0].domid
    }

    /// What `who` may do.
    pub fn access(&self, who: Who) -> Access {
        if self.is_owner(who) {
            return Access::BOTH;
        }
        let named = self.0[1..].iter().find(|e| who.is(e.domid));
        named.unwrap_or(&self.0[0]).access
    }

    /// Whether `who` may do what only the owner may.
    pub fn is_owner(&self, who: Who) -> bool {
        who.is_privileged() || who.is(self.owner())
    }

    /// What a new node gets from the one around it: the same, but a guest owns what it creates.
    pub fn inherited_by(&self, creator: Who) -> Perms {
        if creator.is_privileged() || self.owner() == creator.domid {
            return self.clone();
        }
        let mut entries = self.0.to_vec();
        entries[0].domid = creator.domid;
        Perms(entries.into())
    }

    /// The list without `domid`, so that a later domain of that number gets nothing from it; the control domain takes
    /// over what it owned. `None` if it is not named.
    pub fn without(&self, domid: DomId) -> Option<Perms> {
        if !self.0.iter().any(|e| e.domid == domid) {
            return None;
        }
        let mut owner = self.0[0];
        if owner.domid == domid {
            owner.domid = DomId::DOM0;
        }
        let rest = self.0[1..].iter().copied().filter(|e| e.domid != domid);
        Some(Perms(std::iter::once(owner).chain(rest).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perms(text: &str) -> Perms {
        let entries = text.split(',').map(|e| Entry::parse(e.as_bytes()).unwrap());
        Perms::from_entries(entries.collect()).unwrap()
    }

    fn guest(domid: u16) -> Who {
        Who {
            domid: DomId(domid),
            target: None,
        }
    }

    #[test]
    fn text() {
        for good in ["n0", "r1", "w22", "b65535"] {
            assert_eq!(Entry::parse(good.as_bytes()).unwrap().to_string(), good);
        }
        for bad in ["", "r", "x1", "r-1", "r65536", "r1 ", "rr1", "r+1"] {
            assert_eq!(Entry::parse(bad.as_bytes()), Err(Errno::EINVAL), "{bad}");
        }
    }

    #[test]
    fn owner_named_and_everyone_else() {
        let p = perms("r1,w2,n3,b2");
        assert_eq!(p.access(guest(1)), Access::BOTH);
        assert_eq!(p.access(guest(2)), Access::WRITE, "the first entry counts");
        assert_eq!(p.access(guest(3)), Access::NONE);
        assert_eq!(p.access(guest(4)), Access::READ);
        assert_eq!(p.access(Who::CONTROL), Access::BOTH);
        assert!(p.is_owner(guest(1)) && p.is_owner(Who::CONTROL) && !p.is_owner(guest(2)));
    }

    #[test]
    fn a_target_lends_what_it_has() {
        let p = perms("n1,w2");
        let who = |target| Who {
            domid: DomId(9),
            target: Some(DomId(target)),
        };
        assert!(p.is_owner(who(1)));
        assert_eq!(p.access(who(2)), Access::WRITE);
        assert_eq!(p.access(who(3)), Access::NONE);
    }

    #[test]
    fn inheritance() {
        assert_eq!(perms("n0,b5").inherited_by(guest(5)), perms("n5,b5"));
        assert_eq!(perms("n4,r5").inherited_by(Who::CONTROL), perms("n4,r5"));
    }

    #[test]
    fn a_domain_that_is_gone() {
        assert_eq!(perms("n1,r2,b1").without(DomId(1)), Some(perms("n0,r2")));
        assert_eq!(perms("n1,r2").without(DomId(2)), Some(perms("n1")));
        assert_eq!(perms("n1,r2").without(DomId(3)), None);
    }
}
