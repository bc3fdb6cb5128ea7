//! The local APIC drivers. A driver is three independent choices: how registers are reached, how messages between CPUs
//! name their targets, and how device interrupts name theirs. (Logical or physical is a property of each message, not of
//! the APIC's set-up, so the last two may differ; "mixed" takes the better one for each.)

/// How the local APIC's registers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// xAPIC: a page of memory, APIC IDs of 8 bits.
    Page,
    /// x2APIC: MSRs, APIC IDs of 32 bits.
    Msr,
}

/// How a message between CPUs names its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpiAddressing {
    /// One message for each target, by APIC ID.
    Physical,
    /// xAPIC flat: one message for any set of up to 8 CPUs, a bit each.
    Flat,
    /// x2APIC logical: one message for any set of CPUs of one cluster (16 consecutive APIC IDs).
    Cluster,
}

/// How a device interrupt names its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalAddressing {
    /// By APIC ID: the vector is taken on that CPU only.
    Physical,
    /// x2APIC logical: the vector is taken on every CPU of the cluster, so that moving the interrupt inside the cluster
    /// changes the destination only. The message's destination has 32 bits, which only an entry of full interrupt
    /// remapping has room for.
    Cluster,
}

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Name, as Xen prints it.
    pub name: &'static str,
    /// Registers.
    pub registers: Registers,
    /// Messages between CPUs.
    pub ipi: IpiAddressing,
    /// Device interrupts.
    pub external: ExternalAddressing,
}

impl Driver {
    /// xAPIC, flat logical messages between CPUs: at most 8 CPUs.
    pub const XAPIC_FLAT: Self = Self {
        name: "default",
        registers: Registers::Page,
        ipi: IpiAddressing::Flat,
        external: ExternalAddressing::Physical,
    };
    /// xAPIC, physical.
    pub const XAPIC_PHYSICAL: Self = Self {
        name: "bigsmp",
        ipi: IpiAddressing::Physical,
        ..Self::XAPIC_FLAT
    };
    /// x2APIC, physical.
    pub const X2APIC_PHYSICAL: Self = Self {
        name: "x2apic_phys",
        registers: Registers::Msr,
        ..Self::XAPIC_PHYSICAL
    };
    /// x2APIC, by cluster for everything.
    pub const X2APIC_CLUSTER: Self = Self {
        name: "x2apic_cluster",
        ipi: IpiAddressing::Cluster,
        external: ExternalAddressing::Cluster,
        ..Self::X2APIC_PHYSICAL
    };
    /// x2APIC, by cluster between CPUs, by APIC ID for device interrupts.
    pub const X2APIC_MIXED: Self = Self {
        name: "x2apic_mixed",
        external: ExternalAddressing::Physical,
        ..Self::X2APIC_CLUSTER
    };
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::XAPIC_FLAT,
        Self::XAPIC_PHYSICAL,
        Self::X2APIC_PHYSICAL,
        Self::X2APIC_CLUSTER,
        Self::X2APIC_MIXED,
    ];

    /// Whether the registers are MSRs.
    pub const fn x2apic(self) -> bool {
        matches!(self.registers, Registers::Msr)
    }
}
