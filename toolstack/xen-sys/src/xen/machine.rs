//! The machine: processors, memory, console, debug keys.

use super::Xen;
use crate::hypercalls::Slot;
use std::io;
use xen_abi::sysctl::{
    AvailHeap, CpuTopo, CpuTopoInfo, DebugKeys, MemInfo, NumaInfo, PciTopoInfo, PhysInfo,
    ReadConsole, SchedId, op,
};
use zerocopy::{FromZeros, IntoBytes};

/// How much of the console is read at a time.
const CONSOLE: usize = 16 << 10;

impl Xen {
    /// Counts of processors and memory.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn physinfo(&self) -> io::Result<PhysInfo> {
        let mut own = PhysInfo::default();
        self.do_sysctl(op::PHYSINFO, &mut own, &mut [])?;
        Ok(own)
    }

    /// Core, socket and node of each CPU number; all ones where there is none.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn cpu_topology(&self) -> io::Result<Vec<CpuTopo>> {
        let mut size = CpuTopoInfo::default();
        self.do_sysctl(op::CPUTOPOINFO, &mut size, &mut [])?;
        let mut cpus = vec![CpuTopo::new_zeroed(); size.num_cpus as usize];
        let slot = Slot {
            field: 8,
            bytes: cpus.as_mut_bytes(),
        };
        let mut own = size;
        self.do_sysctl(op::CPUTOPOINFO, &mut own, &mut [slot])?;
        cpus.truncate(own.num_cpus as usize);
        Ok(cpus)
    }

    /// Memory of each node, and the square of distances between them, row by row.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn nodes(&self) -> io::Result<(Vec<MemInfo>, Vec<u32>)> {
        let mut own = NumaInfo::default();
        self.do_sysctl(op::NUMAINFO, &mut own, &mut [])?;
        let nodes = own.num_nodes as usize;
        let mut memory = vec![MemInfo::new_zeroed(); nodes];
        let mut distances = vec![0u32; nodes * nodes];
        let slots = &mut [
            Slot {
                field: 8,
                bytes: memory.as_mut_bytes(),
            },
            Slot {
                field: 16,
                bytes: distances.as_mut_bytes(),
            },
        ];
        self.do_sysctl(op::NUMAINFO, &mut own, slots)?;
        let found = (own.num_nodes as usize).min(nodes);
        memory.truncate(found);
        distances.truncate(found * nodes);
        Ok((memory, distances))
    }

    /// The node of each of these PCI devices, given as segment << 16 | bus << 8 | devfn; `None` if the hypervisor does not
    /// know it.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn device_nodes(&self, devices: &[u32]) -> io::Result<Vec<Option<u32>>> {
        let mut nodes = Vec::new();
        while nodes.len() < devices.len() {
            let rest = &devices[nodes.len()..];
            // Segment, bus and devfn are separate fields: u16, u8, u8.
            let word = |d: &u32| [(d >> 16) as u8, (d >> 24) as u8, (d >> 8) as u8, *d as u8];
            let mut list: Vec<u8> = rest.iter().flat_map(word).collect();
            let mut found = vec![0u32; rest.len()];
            let mut own = PciTopoInfo {
                num_devs: rest.len() as u32,
                ..PciTopoInfo::default()
            };
            let slots = &mut [
                Slot {
                    field: 8,
                    bytes: &mut list,
                },
                Slot {
                    field: 16,
                    bytes: found.as_mut_bytes(),
                },
            ];
            self.do_sysctl(op::PCITOPOINFO, &mut own, slots)?;
            let done = (own.num_devs as usize).min(rest.len());
            if done == 0 {
                break;
            }
            // The two highest numbers: no node, no such device.
            let known = |n: &u32| (*n < u32::MAX - 1).then_some(*n);
            nodes.extend(found[..done].iter().map(known));
        }
        nodes.resize(devices.len(), None);
        Ok(nodes)
    }

    /// The hypervisor's log, emptied afterwards if `clear`.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn console(&self, clear: bool) -> io::Result<Vec<u8>> {
        Ok(self.console_from(0, clear)?.0)
    }

    /// The hypervisor's log from a place on, emptied afterwards if `clear`; and the place at which it ends.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn console_from(&self, mut index: u32, clear: bool) -> io::Result<(Vec<u8>, u32)> {
        let (mut text, mut buffer) = (Vec::new(), vec![0u8; CONSOLE]);
        loop {
            let mut own = ReadConsole {
                clear: clear.into(),
                incremental: 1,
                index,
                count: CONSOLE as u32,
                ..ReadConsole::default()
            };
            let slot = Slot {
                field: 8,
                bytes: &mut buffer,
            };
            self.do_sysctl(op::READCONSOLE, &mut own, &mut [slot])?;
            let count = (own.count as usize).min(CONSOLE);
            if count == 0 {
                return Ok((text, index));
            }
            text.extend_from_slice(&buffer[..count]);
            index = own.index;
        }
    }

    /// Acts as if these keys had been pressed on the hypervisor's console.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn debug_keys(&self, keys: &str) -> io::Result<()> {
        let mut bytes = keys.as_bytes().to_vec();
        let mut own = DebugKeys {
            nr_keys: bytes.len() as u32,
            ..DebugKeys::default()
        };
        let slot = Slot {
            field: 0,
            bytes: &mut bytes,
        };
        self.do_sysctl(op::DEBUG_KEYS, &mut own, &mut [slot])
    }

    /// The scheduler of the first pool: one of [`xen_abi::domctl::scheduler`].
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn scheduler(&self) -> io::Result<u32> {
        let mut own = SchedId::default();
        self.do_sysctl(op::SCHED_ID, &mut own, &mut [])?;
        Ok(own.sched_id)
    }

    /// Free memory below an address of this many bits (0: anywhere), in bytes, on all nodes.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn free_memory(&self, bits: u32) -> io::Result<u64> {
        let mut own = AvailHeap {
            max_bitwidth: bits,
            node: -1,
            ..AvailHeap::default()
        };
        self.do_sysctl(op::AVAILHEAP, &mut own, &mut [])?;
        Ok(own.avail_bytes)
    }
}
