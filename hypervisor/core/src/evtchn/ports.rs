//! The ports of one domain: what each is bound to, and which are free. Knows nothing of how events are shown to guests.

use alloc::vec::Vec;

use xen_abi::event_channel::fifo;
use xen_abi::{DomId, Errno};

/// Ports are made in groups, so that a guest can ask about (closed) ports up to the end of the last group.
pub const GROUP: u32 = 64;

/// What a port is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing; may be allocated.
    Free,
    /// Port 0: never allocated.
    Reserved,
    /// Waits for `remote` to bind to it.
    Unbound {
        /// Who may.
        remote: DomId,
    },
    /// Connected with a port of a domain (maybe the same one).
    Interdomain {
        /// The other domain.
        remote: DomId,
        /// Its port.
        port: u32,
    },
    /// A virtual interrupt.
    Virq(u32),
    /// A device's interrupt.
    Pirq(u32),
    /// An inter-processor interrupt of the domain's own.
    Ipi,
}

impl State {
    /// Whether the port is bound to anything.
    pub fn in_use(self) -> bool {
        !matches!(self, State::Free | State::Reserved)
    }
}

/// One port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// What it is bound to.
    pub state: State,
    /// The vCPU that is notified.
    pub vcpu: u32,
    /// FIFO format: priority of the next delivery.
    pub priority: u8,
    /// FIFO format: vCPU and priority of the queue that it was last put on.
    pub last_queue: (u32, u8),
    /// FIFO format: raised before its event word existed.
    pub remembered: bool,
}

impl Port {
    const FREE: Port = Port {
        state: State::Free,
        vcpu: 0,
        priority: fifo::PRIORITY_DEFAULT as u8,
        last_queue: (0, fifo::PRIORITY_DEFAULT as u8),
        remembered: false,
    };
}

/// All ports of a domain.
pub struct Ports {
    groups: Vec<Vec<Port>>,
    /// No port below this one is free.
    lowest_free: u32,
    limit: u32,
}

impl Ports {
    /// The first ports, all free apart from port 0; at most `limit` (port 0 included) can be used. ENOMEM.
    pub fn new(limit: u32) -> Result<Self, Errno> {
        let mut ports = Ports {
            groups: Vec::new(),
            lowest_free: 1,
            limit: limit.min(fifo::NR_CHANNELS),
        };
        ports.grow()?;
        Ok(ports)
    }

    /// One past the highest port that exists.
    pub fn len(&self) -> u32 {
        self.groups.len() as u32 * GROUP
    }

    /// A port that exists. EINVAL for others.
    pub fn get(&self, port: u32) -> Result<&Port, Errno> {
        self.groups
            .get((port / GROUP) as usize)
            .and_then(|g| g.get((port % GROUP) as usize))
            .ok_or(Errno::EINVAL)
    }

    /// A port that exists. EINVAL for others.
    pub fn get_mut(&mut self, port: u32) -> Result<&mut Port, Errno> {
        self.groups
            .get_mut((port / GROUP) as usize)
            .and_then(|g| g.get_mut((port % GROUP) as usize))
            .ok_or(Errno::EINVAL)
    }

    /// Takes the lowest free port that `busy` does not hold back and binds it. ENOSPC at the domain's limit or at
    /// `abi_limit`, ENOMEM without memory.
    pub fn allocate(
        &mut self,
        abi_limit: u32,
        state: State,
        vcpu: u32,
        busy: impl Fn(u32) -> bool,
    ) -> Result<u32, Errno> {
        let mut first = None;
        let mut port = self.lowest_free;
        loop {
            if port >= self.limit.min(abi_limit) {
                return Err(Errno::ENOSPC);
            }
            if port >= self.len() {
                self.grow()?;
            }
            if self.get(port)?.state == State::Free {
                first.get_or_insert(port);
                if !busy(port) {
                    break;
                }
            }
            port += 1;
        }
        // Everything below the first free one was in use; the chosen one is gone if it was that one.
        self.lowest_free = first.map_or(port, |f| if f == port { port + 1 } else { f });
        let slot = self.get_mut(port)?;
        *slot = Port {
            state,
            vcpu,
            last_queue: slot.last_queue,
            ..Port::FREE
        };
        Ok(port)
    }

    fn grow(&mut self) -> Result<(), Errno> {
        let mut group = Vec::new();
        group
            .try_reserve_exact(GROUP as usize)
            .map_err(|_| Errno::ENOMEM)?;
        self.groups.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        group.resize(GROUP as usize, Port::FREE);
        if self.groups.is_empty()
            && let Some(zero) = group.first_mut()
        {
            zero.state = State::Reserved;
        }
        self.groups.push(group);
        Ok(())
    }

    /// Frees a port. The queue that it was last on is remembered for its next use: the queue may still have it as tail.
    pub fn free(&mut self, port: u32) {
        if let Ok(p) = self.get_mut(port) {
            *p = Port {
                last_queue: p.last_queue,
                ..Port::FREE
            };
            self.lowest_free = self.lowest_free.min(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNBOUND: State = State::Unbound { remote: DomId(1) };

    #[test]
    fn lowest_free_first() {
        let mut ports = Ports::new(200).unwrap();
        let allocate = |p: &mut Ports| p.allocate(4096, UNBOUND, 0, |_| false);
        for expected in 1..150 {
            assert_eq!(allocate(&mut ports), Ok(expected));
        }
        ports.free(40);
        ports.free(7);
        assert_eq!(allocate(&mut ports), Ok(7));
        assert_eq!(allocate(&mut ports), Ok(40));
        assert_eq!(allocate(&mut ports), Ok(150));
        assert_eq!(ports.get(0).map(|p| p.state), Ok(State::Reserved));
        assert_eq!(ports.len(), 192);
        assert!(ports.get(192).is_err());
    }

    #[test]
    fn limits() {
        let mut ports = Ports::new(3).unwrap();
        assert_eq!(ports.allocate(4096, UNBOUND, 0, |_| false), Ok(1));
        assert_eq!(ports.allocate(2, UNBOUND, 0, |_| false), Err(Errno::ENOSPC));
        assert_eq!(ports.allocate(4096, UNBOUND, 0, |_| false), Ok(2));
        assert_eq!(
            ports.allocate(4096, UNBOUND, 0, |_| false),
            Err(Errno::ENOSPC)
        );
    }

    #[test]
    fn busy_ports_are_passed_over_but_not_forgotten() {
        let mut ports = Ports::new(100).unwrap();
        assert_eq!(ports.allocate(4096, UNBOUND, 0, |p| p < 3), Ok(3));
        assert_eq!(ports.allocate(4096, UNBOUND, 0, |_| false), Ok(1));
        assert_eq!(ports.allocate(4096, UNBOUND, 0, |_| false), Ok(2));
        assert_eq!(ports.allocate(4096, UNBOUND, 0, |_| false), Ok(4));
    }
}
