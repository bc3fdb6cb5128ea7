//! Which virtual interrupts exist and how far each reaches.

use xen_abi::virq::nr;

/// Number of virtual interrupts.
pub const COUNT: usize = nr::COUNT as usize;

/// How far a virtual interrupt reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Bound once per vCPU and always delivered to it.
    Vcpu,
    /// Bound once per domain, initially to vCPU 0.
    Global,
}

/// The scope of virtual interrupt `virq`; `None` for numbers that do not exist.
pub const fn scope(virq: u32) -> Option<Scope> {
    match virq {
        nr::TIMER | nr::DEBUG | nr::XENOPROF | nr::XENPMU => Some(Scope::Vcpu),
        _ if virq < nr::COUNT => Some(Scope::Global),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        assert_eq!(scope(nr::TIMER), Some(Scope::Vcpu));
        assert_eq!(scope(nr::XENPMU), Some(Scope::Vcpu));
        assert_eq!(scope(nr::CONSOLE), Some(Scope::Global));
        assert_eq!(scope(nr::ARCH_0), Some(Scope::Global));
        assert_eq!(scope(23), Some(Scope::Global));
        assert_eq!(scope(24), None);
        assert_eq!(scope(u32::MAX), None);
    }
}
