//! One AMD IOMMU: its control register, command buffer and event log.

use x86_model::Hpa;
use x86_model::acpi::ivrs;
use x86_model::iommu::amd::command::{self, Command};
use x86_model::iommu::amd::{self, Event, Features, reg};
use x86_model::iommu::reporter::{Reporter, Verdict};

use super::super::registers::{Registers, wait};
use super::super::shared::Shared;
use super::config;
use crate::{error, warn};

/// Microseconds that a batch of commands may take.
const PATIENCE_US: u64 = 1_000_000;
/// Offsets in the unit's memory: the two rings, and the word that completions are written to.
const EVENTS: usize = amd::RING_BYTES as usize;
const DONE: usize = 2 * amd::RING_BYTES as usize;

/// One unit.
pub struct Unit {
    /// For the log.
    pub number: usize,
    /// Address of its registers.
    pub at: Hpa,
    /// PCI segment.
    pub segment: u16,
    /// Its own PCI function.
    pub device: u16,
    flags: u8,
    registers: Registers,
    features: Features,
    memory: Option<Shared>,
    control: u64,
    tail: u64,
    waits: u64,
    /// It did not answer once: it is not asked again.
    dead: bool,
    events: Reporter,
}

impl Unit {
    /// Maps the registers and looks at the unit. `None`, with a line, if it does not answer.
    pub fn probe(number: usize, of: &ivrs::Unit) -> Option<Self> {
        let at = Hpa(of.registers);
        let registers = Registers::map(at, reg::SIZE);
        let features = registers.as_ref().map(|r| r.read64(reg::FEATURES));
        let (Some(registers), Some(0..=0xffff_ffff_ffff_fffe)) = (registers, features) else {
            warn!(
                "AMD-Vi unit {number} at {:#x} does not answer, not used",
                at.0
            );
            return None;
        };
        Some(Self {
            number,
            at,
            segment: of.segment,
            device: of.device,
            flags: of.flags,
            features: Features(features.unwrap_or(0)),
            registers,
            memory: None,
            control: 0,
            tail: 0,
            waits: 0,
            dead: false,
            events: Reporter::new(),
        })
    }

    /// What it can do.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Turns off whatever firmware or an earlier system left on.
    pub fn stop(&mut self) {
        self.registers.write64(reg::CONTROL, 0);
        let running = amd::COMMANDS_RUNNING | amd::EVENT_RUNNING;
        let stopped = wait(PATIENCE_US, || {
            self.registers.read64(reg::STATUS) & running == 0
        });
        if !stopped {
            warn!(
                "AMD-Vi unit {} at {:#x} does not stop",
                self.number, self.at.0
            );
        }
    }

    /// Starts the unit with this device table (whole, 2 MiB).
    pub fn start(&mut self, devices: Hpa, bytes: u64, wide: bool) -> Result<(), &'static str> {
        self.stop();
        let memory = Shared::new(DONE + 8, false).ok_or("no memory for its rings")?;
        let base = memory.hpa().0;
        self.memory = Some(memory);
        let r = &mut self.registers;
        r.write64(reg::DEVICE_TABLE, amd::device_table_base(devices.0, bytes));
        r.write64(reg::COMMAND_BASE, amd::ring_base(base));
        r.write64(reg::EVENT_BASE, amd::ring_base(base + EVENTS as u64));
        for pointer in [
            reg::COMMAND_HEAD,
            reg::COMMAND_TAIL,
            reg::EVENT_HEAD,
            reg::EVENT_TAIL,
        ] {
            r.write64(pointer, 0);
        }
        r.write64(reg::STATUS, amd::EVENT_OVERFLOW | amd::EVENT_LOGGED);
        self.tail = 0;
        let format = if wide {
            amd::GUEST_APIC | amd::EXTENDED_IDS
        } else {
            0
        };
        self.control = amd::control_from_flags(self.flags)
            | format
            | amd::COHERENT
            | amd::ENABLE
            | amd::EVENT_LOG
            | amd::COMMANDS;
        r.write64(reg::CONTROL, self.control);
        if self.forget_everything() {
            Ok(())
        } else {
            Err("it does not carry out commands")
        }
    }

    /// Drops everything that the unit has cached.
    fn forget_everything(&mut self) -> bool {
        if self.features.invalidate_all() {
            return self.run(&[command::invalidate_all()]);
        }
        (0..=u16::MAX).all(|device| {
            // In batches that fit into the ring.
            device % 64 != 0
                || (0..64).all(|n| {
                    self.put(command::invalidate_device(device + n));
                    self.put(command::invalidate_interrupts(device + n));
                    true
                }) && self.complete()
        })
    }

    /// Carries out commands, fewer than the ring has room for. False if the unit does not answer; it is not asked again.
    pub fn run(&mut self, commands: &[Command]) -> bool {
        for &c in commands {
            self.put(c);
        }
        self.complete()
    }

    fn put(&mut self, command: Command) {
        if let Some(memory) = &self.memory {
            let at = self.tail as usize;
            memory.write(at, command[0]);
            memory.write(at + 8, command[1]);
            self.tail = amd::ring_next(self.tail);
        }
    }

    /// Submits what was put and waits until all of it is carried out.
    fn complete(&mut self) -> bool {
        if self.dead {
            return false;
        }
        self.waits += 1;
        let Some(done) = self.memory.as_ref().map(|m| m.hpa().0 + DONE as u64) else {
            return false;
        };
        self.put(command::completion_wait(done, self.waits));
        self.registers.write64(reg::COMMAND_TAIL, self.tail);
        let answered = wait(PATIENCE_US, || {
            self.memory
                .as_ref()
                .is_some_and(|m| m.read(DONE) == self.waits)
        });
        if !answered {
            self.dead = true;
            error!(
                "AMD-Vi unit {} at {:#x}: commands are not carried out (head {:#x}, tail {:#x}, status {:#x}): device interrupts may go astray",
                self.number,
                self.at.0,
                self.registers.read64(reg::COMMAND_HEAD),
                self.registers.read64(reg::COMMAND_TAIL),
                self.registers.read64(reg::STATUS)
            );
        }
        answered
    }

    /// Forgets the events so far, and has further ones raise `vector` on the CPU with this APIC ID: through the unit's own
    /// message, or where that does not reach (its destination has eight bits, and ports reach the first segment only) and the
    /// unit is `wide`, through its interrupt register. False if the unit cannot do either.
    pub fn arm_events(&mut self, apic_id: u32, vector: u8, wide: bool) -> bool {
        let by_message = apic_id < 0xff
            && self.segment == 0
            && config::set_message(self.device, 0xfee0_0000 | apic_id << 12, u16::from(vector));
        if !by_message && wide {
            let value = amd::own_interrupt(apic_id, vector);
            self.registers.write64(reg::OWN_INTERRUPT, value);
            self.control |= amd::OWN_INTERRUPTS;
        }
        let armed = by_message || wide;
        while self.next_event().is_some() {}
        if armed {
            self.control |= amd::EVENT_INTERRUPT;
            self.registers.write64(reg::CONTROL, self.control);
        }
        armed
    }

    /// Takes one record out of the log.
    fn next_event(&mut self) -> Option<Event> {
        let memory = self.memory.as_ref()?;
        let status = self.registers.read64(reg::STATUS);
        if status & amd::EVENT_OVERFLOW != 0 {
            // The log has stopped: it starts again, empty.
            let without = self.control & !amd::EVENT_LOG;
            self.registers.write64(reg::CONTROL, without);
            self.registers.write64(reg::EVENT_HEAD, 0);
            self.registers.write64(reg::EVENT_TAIL, 0);
            self.registers.write64(reg::STATUS, amd::EVENT_OVERFLOW);
            self.registers.write64(reg::CONTROL, self.control);
            return None;
        }
        let head = self.registers.read64(reg::EVENT_HEAD) & (amd::RING_BYTES - 16);
        let tail = self.registers.read64(reg::EVENT_TAIL) & (amd::RING_BYTES - 16);
        if head == tail {
            // Cleared before the last look at the tail, so that an event that comes now raises the interrupt again.
            self.registers.write64(reg::STATUS, amd::EVENT_LOGGED);
            if self.registers.read64(reg::EVENT_TAIL) & (amd::RING_BYTES - 16) == head {
                return None;
            }
        }
        let at = EVENTS + head as usize;
        let mut event = None;
        // The tail can be ahead of the record by a moment.
        wait(100, || {
            event = Event::decode([memory.read(at), memory.read(at + 8)]);
            event.is_some()
        });
        memory.write(at, 0);
        memory.write(at + 8, 0);
        self.registers
            .write64(reg::EVENT_HEAD, amd::ring_next(head));
        event
    }

    /// Reports what was logged, some of it (see [`Reporter`]).
    pub fn report_events(&mut self, now_ns: u64) {
        // A device that goes on faulting must not keep the CPU here. What is left then would raise no interrupt any more.
        let done = (0..2 * amd::RING_BYTES / 16).any(|_| match self.next_event() {
            None => true,
            Some(event) => {
                if let Verdict::Tell(count) = self.events.fault(event.key()) {
                    warn!("AMD-Vi unit {}: {event} ({count} so far)", self.number);
                }
                false
            }
        });
        if self.events.interrupt(now_ns) || !done {
            self.control &= !amd::EVENT_INTERRUPT;
            self.registers.write64(reg::CONTROL, self.control);
            warn!(
                "AMD-Vi unit {}: too many events ({} so far): no more are reported",
                self.number,
                self.events.total()
            );
        }
    }
}
