//! Interrupts of devices as event channels: the numbers (pirqs) that a domain gives to lines and messages, and the ports that
//! it binds them to, where it has them (`dom0=hvm-pirq`, a guest's `hvm_pirq=1`).
//!
//! A number is mapped first (`PHYSDEVOP_map_pirq`, `PHYSDEVOP_get_free_pirq`), then bound to a port. A line is routed when its
//! number is bound; a message when the guest writes one that names the number in place of a vector.

use alloc::collections::BTreeMap;

use hv_hw::machine::LineMode;
use xen_abi::Errno;

/// Numbers beside those of the lines.
const MESSAGES: u32 = 512;
/// Lines below this one are those of the ISA bus. They cannot be mapped: without a legacy interrupt controller, Linux has
/// given their numbers away when it maps the first one, and dies.
const ISA_LINES: u32 = 16;
/// How the others are signalled.
pub const PCI_LINE: LineMode = LineMode {
    level: true,
    low: true,
};

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line, which is signalled as [`PCI_LINE`].
    Gsi(u32),
    /// A message.
    Msi,
}

#[derive(Clone, Copy, Debug)]
struct Pirq {
    kind: Kind,
    /// Port; 0: not bound yet.
    port: u32,
}

/// The numbers of a domain.
#[derive(Debug)]
pub struct Pirqs {
    used: BTreeMap<u32, Pirq>,
    /// One more than the highest line.
    lines: u32,
}

impl Pirqs {
    /// For a machine with lines 0 to `lines - 1`.
    pub fn new(lines: u32) -> Self {
        Pirqs {
            used: BTreeMap::new(),
            lines,
        }
    }

    /// One more than the highest number.
    fn count(&self) -> u32 {
        self.lines.saturating_add(MESSAGES)
    }

    /// Takes a free number: of messages from the top, of lines from the first beyond the ISA bus. ENOSPC.
    pub fn take_free(&mut self, message: bool) -> Result<u32, Errno> {
        let free = |n: &u32| !self.used.contains_key(n);
        let found = if message {
            (self.lines..self.count()).rev().find(free)
        } else {
            (ISA_LINES..self.lines).find(free)
        };
        let pirq = found.ok_or(Errno::ENOSPC)?;
        if message {
            self.insert(pirq, Kind::Msi);
        }
        Ok(pirq)
    }

    fn insert(&mut self, pirq: u32, kind: Kind) {
        self.used.insert(pirq, Pirq { kind, port: 0 });
    }

    /// Gives a line a number: this one, or one of our choice, which is that of the line if it is free. The number that the
    /// line has already is kept. EINVAL: no such line or number. EEXIST: the number stands for something else.
    pub fn map_line(&mut self, gsi: u32, wanted: Option<u32>) -> Result<u32, Errno> {
        if !(ISA_LINES..self.lines).contains(&gsi) || wanted.is_some_and(|n| n >= self.count()) {
            return Err(Errno::EINVAL);
        }
        if let Some((pirq, _)) = self.of_line(gsi) {
            return Ok(pirq);
        }
        let pirq = match wanted {
            Some(n) if self.used.contains_key(&n) => return Err(Errno::EEXIST),
            Some(n) => n,
            None if !self.used.contains_key(&gsi) => gsi,
            None => self.take_free(false)?,
        };
        self.insert(pirq, Kind::Gsi(gsi));
        Ok(pirq)
    }

    /// Gives a message a number: this one, which may be reserved already, or a free one. EINVAL, EEXIST, ENOSPC.
    pub fn map_message(&mut self, wanted: Option<u32>) -> Result<u32, Errno> {
        let Some(pirq) = wanted else {
            return self.take_free(true);
        };
        if pirq >= self.count() {
            return Err(Errno::EINVAL);
        }
        match self.used.get(&pirq).map(|p| p.kind) {
            Some(Kind::Gsi(_)) => Err(Errno::EEXIST),
            Some(Kind::Msi) => Ok(pirq),
            None => {
                self.insert(pirq, Kind::Msi);
                Ok(pirq)
            }
        }
    }

    /// Takes a number back; what it stood for, and its port. EINVAL: it stands for nothing.
    pub fn unmap(&mut self, pirq: u32) -> Result<Kind, Errno> {
        let p = self.used.remove(&pirq).ok_or(Errno::EINVAL)?;
        Ok(p.kind)
    }

    /// What a number stands for, and its port if it was bound. EINVAL: nothing.
    pub fn get(&self, pirq: u32) -> Result<(Kind, u32), Errno> {
        let p = self.used.get(&pirq).ok_or(Errno::EINVAL)?;
        Ok((p.kind, p.port))
    }

    /// Notes the port of a number. One that stands for nothing is then a message's, as on Xen. EINVAL: no such number.
    pub fn set_port(&mut self, pirq: u32, port: u32) -> Result<Kind, Errno> {
        if pirq >= self.count() {
            return Err(Errno::EINVAL);
        }
        let fresh = Pirq {
            kind: Kind::Msi,
            port: 0,
        };
        let p = self.used.entry(pirq).or_insert(fresh);
        p.port = port;
        Ok(p.kind)
    }

    /// Whether a number exists.
    pub fn exists(&self, pirq: u32) -> bool {
        pirq < self.count()
    }

    /// Number and port of a line.
    pub fn of_line(&self, gsi: u32) -> Option<(u32, u32)> {
        self.used
            .iter()
            .find(|(_, p)| matches!(p.kind, Kind::Gsi(g) if g == gsi))
            .map(|(&n, p)| (n, p.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_number_if_they_can() {
        let mut p = Pirqs::new(24);
        assert_eq!(p.map_line(19, None), Ok(19));
        assert_eq!(p.get(19), Ok((Kind::Gsi(19), 0)));
        assert_eq!(p.map_line(19, Some(100)), Ok(19));
        assert_eq!(p.map_line(20, Some(19)), Err(Errno::EEXIST));
        assert_eq!(p.map_line(20, Some(300)), Ok(300));
        assert_eq!(p.get(300), Ok((Kind::Gsi(20), 0)));
        for (gsi, pirq) in [(24, None), (9, None), (21, Some(24 + 512))] {
            assert_eq!(p.map_line(gsi, pirq), Err(Errno::EINVAL), "{gsi}");
        }
        assert_eq!(p.of_line(20), Some((300, 0)));
        assert_eq!(p.set_port(300, 7), Ok(Kind::Gsi(20)));
        assert_eq!(p.of_line(20), Some((300, 7)));
        assert_eq!(p.unmap(300), Ok(Kind::Gsi(20)));
        assert_eq!(p.unmap(300), Err(Errno::EINVAL));
        assert_eq!(p.of_line(20), None);
        // A line whose own number is taken gets another.
        assert_eq!(p.set_port(17, 1), Ok(Kind::Msi));
        assert_eq!(p.map_line(17, None), Ok(16));
    }

    #[test]
    fn messages_take_numbers_from_the_top_until_there_are_none() {
        let mut p = Pirqs::new(24);
        assert_eq!(p.take_free(true), Ok(535));
        assert_eq!(p.map_message(None), Ok(534));
        assert_eq!(p.map_message(Some(535)), Ok(535));
        assert_eq!(p.map_message(Some(100)), Ok(100));
        assert_eq!(p.map_message(Some(536)), Err(Errno::EINVAL));
        assert_eq!(p.map_line(19, None), Ok(19));
        assert_eq!(p.map_message(Some(19)), Err(Errno::EEXIST));
        let more = std::iter::from_fn(|| p.take_free(true).ok()).count();
        assert_eq!(more, 512 - 3);
        assert_eq!(p.take_free(true), Err(Errno::ENOSPC));
        assert_eq!(p.unmap(200), Ok(Kind::Msi));
        assert_eq!(p.take_free(true), Ok(200));
    }
}
