//! All threads of the cores at once: each core is left with one CPU, or gets the others back.

use x86_model::siblings;

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use xen_abi::Errno;

use super::{Progress, Stage};
use crate::hypervisor::Hypervisor;

/// Bits of an APIC ID below the core's, 0 where cores have one thread.
fn thread_bits(hv: &Hypervisor) -> u32 {
    let leaf = |n: u32| (hv.hw.cpuid(n & 0x8000_0000, 0)[0] >= n).then(|| hv.hw.cpuid(n, 0));
    siblings::thread_bits(leaf(0xb), leaf(0x8000_001e))
}

impl Hypervisor {
    /// Takes all siblings away (`up` false) or brings them back, one at a time and a step at each call. The boot CPU, and
    /// on each other core the CPU with the lowest APIC ID, are left as they are. EOPNOTSUPP: cores have one thread. Else the
    /// error of the first CPU that cannot go or come ([`Self::cpu_down`], [`Self::cpu_up`]); the others before it have. Hold
    /// no lock.
    pub fn siblings(&self, up: bool) -> Result<Progress, Errno> {
        let bits = thread_bits(self);
        if bits == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let cpus = || (0..self.hw.cpu_count()).map(CpuId);
        let id = |cpu| self.hw.cpu_ids(cpu).map(|(apic, _)| apic);
        let boot = id(CpuId(0)).ok_or(Errno::EOPNOTSUPP)?;
        let wanted = if up { Stage::Online } else { Stage::Offline };
        let next = cpus()
            .filter(|&cpu| self.cpu_stage(cpu) != Some(wanted))
            .find(|&cpu| {
                id(cpu).is_some_and(|i| siblings::is_sibling(i, boot, cpus().filter_map(id), bits))
            });
        match next {
            Some(cpu) if up => self.cpu_up(cpu).map(|()| Progress::Again),
            // Not over when this one is: others may be left.
            Some(cpu) => self.cpu_down(cpu).map(|_| Progress::Again),
            None => {
                hv_hw::info!(
                    "All sibling threads are {}",
                    if up { "online" } else { "offline" }
                );
                Ok(Progress::Done)
            }
        }
    }
}
