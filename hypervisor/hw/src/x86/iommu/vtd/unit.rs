//! One VT-d unit: its switches, its invalidation queue, its fault records.

use x86_model::Hpa;
use x86_model::iommu::reporter::{Reporter, Verdict};
use x86_model::iommu::vtd::{self, Cap, ExtCap, FaultRecord, fault, queue, reg};

use super::super::registers::{Registers, wait};
use super::super::shared::Shared;
use crate::{error, warn};

/// Microseconds that a switch or an invalidation may take.
const PATIENCE_US: u64 = 1_000_000;

/// One unit.
pub struct Unit {
    /// For the log.
    pub number: usize,
    /// Address of its registers.
    pub at: Hpa,
    registers: Registers,
    cap: Cap,
    ext: ExtCap,
    /// The queue's ring, and in the page behind it the word that a wait descriptor writes.
    ring: Option<Shared>,
    tail: usize,
    waits: u32,
    /// It did not answer once: it is not asked again.
    dead: bool,
    faults: Reporter,
}

/// Offset of the word that completions are written to.
const DONE: usize = 4096;

impl Unit {
    /// Maps the registers and looks at the unit. `None`, with a line, if it does not answer.
    pub fn probe(number: usize, at: Hpa, bytes: u64) -> Option<Self> {
        let mut registers = Registers::map(at, bytes as usize);
        let version = registers.as_ref().map(|r| r.read32(reg::VERSION));
        if let (Some(r), Some(1..=0xff)) = (&registers, version) {
            let cap = Cap(r.read64(reg::CAP));
            // Where the fault records are may lie beyond what the table said.
            let needed = cap.fault_offset() + cap.fault_count() * 16;
            if needed > r.len() {
                registers = Registers::map(at, needed as u64 as usize);
            }
        }
        let (Some(registers), Some(1..=0xff)) = (registers, version) else {
            warn!(
                "VT-d unit {number} at {:#x} does not answer, not used",
                at.0
            );
            return None;
        };
        let (cap, ext) = (
            Cap(registers.read64(reg::CAP)),
            ExtCap(registers.read64(reg::ECAP)),
        );
        Some(Self {
            number,
            at,
            registers,
            cap,
            ext,
            ring: None,
            tail: 0,
            waits: 0,
            dead: false,
            faults: Reporter::new(),
        })
    }

    /// What it can do.
    pub fn abilities(&self) -> (Cap, ExtCap) {
        (self.cap, self.ext)
    }

    /// Sets or clears a switch and waits for the status to follow. `SET_TABLE` is a request: its status stays set.
    fn switch(&mut self, bit: u32, on: bool) -> Result<(), &'static str> {
        let status = self.registers.read32(reg::GSTS) & vtd::SWITCHES;
        let command = if on { status | bit } else { status & !bit };
        self.registers.write32(reg::GCMD, command);
        let follows = wait(PATIENCE_US, || {
            (self.registers.read32(reg::GSTS) & bit != 0) == on
        });
        follows.then_some(()).ok_or(match bit {
            vtd::TRANSLATION => "DMA remapping cannot be switched",
            vtd::QUEUE => "queued invalidation cannot be switched",
            vtd::SET_TABLE => "it does not take over the remapping table",
            _ => "interrupt remapping cannot be switched",
        })
    }

    /// Turns off whatever firmware or an earlier system left on.
    pub fn quiesce(&mut self) -> Result<(), &'static str> {
        self.mask_faults();
        let status = self.registers.read32(reg::GSTS);
        for bit in [vtd::REMAPPING, vtd::TRANSLATION, vtd::QUEUE] {
            if status & bit != 0 {
                self.switch(bit, false)?;
            }
        }
        if self.cap.protected_memory()
            && self.registers.read32(reg::PMEN) & (vtd::PMEN_ENABLE | vtd::PMEN_STATUS) != 0
        {
            self.registers.write32(reg::PMEN, 0);
            if !wait(PATIENCE_US, || {
                self.registers.read32(reg::PMEN) & vtd::PMEN_STATUS == 0
            }) {
                return Err("protected memory cannot be opened");
            }
        }
        Ok(())
    }

    /// Starts the queue.
    pub fn start_queue(&mut self) -> Result<(), &'static str> {
        // The unit always reads the queue coherently.
        let ring = Shared::new(DONE + 8, false).ok_or("no memory for its queue")?;
        self.registers.write64(reg::IQT, 0);
        self.registers
            .write64(reg::IQA, queue::address(ring.hpa().0));
        self.ring = Some(ring);
        self.tail = 0;
        self.switch(vtd::QUEUE, true)
    }

    /// Takes the table over and starts remapping; messages of the old format are blocked.
    pub fn start_remapping(&mut self, table: u64) -> Result<(), &'static str> {
        self.registers.write64(reg::IRTA, table);
        self.switch(vtd::SET_TABLE, true)?;
        if !self.invalidate(queue::flush_all()) {
            return Err("an invalidation is not completed");
        }
        if self.registers.read32(reg::GSTS) & vtd::COMPATIBILITY != 0 {
            self.switch(vtd::COMPATIBILITY, false)?;
        }
        self.switch(vtd::REMAPPING, true)
    }

    /// Gives up: off, whether or not it obeys.
    pub fn stop(&mut self) {
        self.mask_faults();
        for bit in [vtd::REMAPPING, vtd::QUEUE] {
            if self.registers.read32(reg::GSTS) & bit != 0 {
                let _ = self.switch(bit, false);
            }
        }
    }

    /// Submits a descriptor and waits until it is carried out. False if the unit does not answer; it is not asked again.
    pub fn invalidate(&mut self, descriptor: queue::Descriptor) -> bool {
        let Some(ring) = &self.ring else { return false };
        if self.dead {
            return false;
        }
        self.waits = self.waits.wrapping_add(1).max(1);
        let done = Hpa(ring.hpa().0 + DONE as u64);
        for d in [descriptor, queue::wait(done.0, self.waits)] {
            ring.write(self.tail * 16, d[0]);
            ring.write(self.tail * 16 + 8, d[1]);
            self.tail = queue::next(self.tail);
        }
        self.registers.write64(reg::IQT, queue::pointer(self.tail));
        let mut queue_error = 0;
        let answered = wait(PATIENCE_US, || {
            queue_error = self.registers.read32(reg::FSTS) & vtd::FSTS_QUEUE;
            ring.read(DONE) as u32 == self.waits || queue_error != 0
        });
        if answered && queue_error == 0 {
            return true;
        }
        self.dead = true;
        error!(
            "VT-d unit {} at {:#x}: an invalidation is not completed (queue head {:#x}, tail {:#x}, fault status {:#x}): device interrupts may go astray",
            self.number,
            self.at.0,
            self.registers.read64(reg::IQH),
            self.registers.read64(reg::IQT),
            self.registers.read32(reg::FSTS)
        );
        false
    }

    fn mask_faults(&mut self) {
        self.registers.write32(reg::FECTL, vtd::FECTL_MASK);
    }

    /// Forgets what was recorded so far, and has further faults raise `vector` on the CPU with this APIC ID.
    pub fn arm_faults(&mut self, apic_id: u32, vector: u8) {
        while self.next_fault().is_some() {}
        self.registers.write32(reg::FEDATA, vector.into());
        self.registers
            .write32(reg::FEADDR, 0xfee0_0000 | (apic_id & 0xff) << 12);
        self.registers.write32(reg::FEUADDR, apic_id & !0xff);
        self.registers.write32(reg::FECTL, 0);
    }

    /// Takes one record out. Clears the status when there is none left.
    fn next_fault(&mut self) -> Option<FaultRecord> {
        if self.registers.read32(reg::FSTS) & vtd::FSTS_PENDING != 0 {
            for n in 0..self.cap.fault_count() {
                let offset = self.cap.fault_offset() + n * 16;
                let (low, high) = (
                    self.registers.read64(offset),
                    self.registers.read64(offset + 8),
                );
                if let Some(record) = FaultRecord::decode(low, high) {
                    self.registers.write64(offset + 8, fault::FILLED);
                    return Some(record);
                }
            }
        }
        // Overflow; queue errors stay for `invalidate` to see.
        self.registers
            .write32(reg::FSTS, vtd::FSTS_CLEAR & !vtd::FSTS_QUEUE);
        None
    }

    /// Reports what was recorded, some of it (see [`Reporter`]).
    pub fn report_faults(&mut self, now_ns: u64) {
        // A device that goes on faulting must not keep the CPU here. What is left then would raise no interrupt any more.
        let done = (0..2 * self.cap.fault_count()).any(|_| match self.next_fault() {
            None => true,
            Some(record) => {
                if let Verdict::Tell(count) = self.faults.fault(record.key()) {
                    warn!("VT-d unit {}: {record} ({count} so far)", self.number);
                }
                false
            }
        });
        if self.faults.interrupt(now_ns) || !done {
            self.mask_faults();
            warn!(
                "VT-d unit {}: too many faults ({} so far): no more are reported",
                self.number,
                self.faults.total()
            );
        }
    }
}
