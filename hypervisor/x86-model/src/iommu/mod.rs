//! I/O memory management units as data: tables, entries, messages, commands and records of Intel's VT-d and AMD-Vi.
//!
//! Only the interrupt half so far. DMA passes untranslated; its tables will stand beside these.

pub mod amd;
pub mod decide;
pub mod reporter;
pub mod requester;
pub mod slots;
pub mod vtd;

pub use requester::Requester;

/// Where a remapped interrupt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// APIC ID, or logical destination.
    pub dest: u32,
    /// `dest` is a logical destination.
    pub logical: bool,
    /// Delivered to one of the addressed CPUs (lowest priority) instead of all.
    pub lowest: bool,
    /// Vector.
    pub vector: u8,
    /// Level-triggered: the CPU tells the IO-APICs when it has ended.
    pub level: bool,
}

/// Address and data of a message that goes through remapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemappedMessage {
    /// Message address; the high half is always 0.
    pub address: u32,
    /// Message data.
    pub data: u32,
}

/// Entries for a shared table: enough for every device vector of all CPUs and every IO-APIC pin, as a power of two from
/// 1024 to 65536.
pub fn table_entries(cpus: u32, vectors_per_cpu: u32, pins: u32) -> u32 {
    cpus.saturating_mul(vectors_per_cpu)
        .saturating_add(pins)
        .clamp(1024, 65536)
        .next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_sizes() {
        assert_eq!(table_entries(1, 176, 24), 1024);
        assert_eq!(table_entries(8, 176, 24), 2048);
        assert_eq!(table_entries(288, 176, 24), 65536);
        assert_eq!(table_entries(u32::MAX, 176, u32::MAX), 65536);
    }
}
