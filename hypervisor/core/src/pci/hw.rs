//! Physical configuration space through the machine: the port mechanism for what it reaches, memory-mapped windows for
//! the rest.

use hv_hw::Machine;
use x86_model::acpi::ConfigWindow;
use x86_model::pci::{Bdf, PORT_ADDRESS, PORT_DATA, ecam_offset};
use x86_model::{Hpa, Width};

/// Access to the machine's configuration space. The port pair is shared: all users hold the same lock.
#[derive(Clone, Copy, Debug)]
pub struct HwConfig<'a, M> {
    /// The machine.
    pub machine: &'a M,
    /// Its memory-mapped windows.
    pub windows: &'a [ConfigWindow],
}

impl<M: Machine> HwConfig<'_, M> {
    /// Reads a register; all ones where nothing answers. Naturally aligned, at most 4 bytes.
    pub fn read(&self, bdf: Bdf, register: u16, width: Width) -> u32 {
        let ones = width.mask() as u32;
        if let Some(port) = self.select(bdf, register) {
            return self.machine.port_in(port, width) & ones;
        }
        self.window(bdf, register)
            .and_then(|at| self.machine.mmio_read(at, width))
            .map_or(ones, |v| v as u32 & ones)
    }

    /// Writes a register.
    pub fn write(&self, bdf: Bdf, register: u16, width: Width, value: u32) {
        if let Some(port) = self.select(bdf, register) {
            self.machine.port_out(port, width, value);
        } else if let Some(at) = self.window(bdf, register) {
            // Refused only for addresses that are not device memory: then nothing is there.
            let _ = self.machine.mmio_write(at, width, value.into());
        }
    }

    /// Sets the address latch; the data port to use. `None` if the port mechanism does not reach the register.
    fn select(&self, bdf: Bdf, register: u16) -> Option<u16> {
        if bdf.segment != 0 || register > 0xff {
            return None;
        }
        let address = 1 << 31
            | u32::from(bdf.bus) << 16
            | u32::from(bdf.devfn) << 8
            | u32::from(register & 0xfc);
        self.machine.port_out(PORT_ADDRESS, Width::B4, address);
        Some(PORT_DATA + (register & 3))
    }

    fn window(&self, bdf: Bdf, register: u16) -> Option<Hpa> {
        self.windows
            .iter()
            .filter(|w| w.segment == bdf.segment && (w.first_bus..=w.last_bus).contains(&bdf.bus))
            .find_map(|w| {
                w.base
                    .checked_add(ecam_offset(bdf) + u64::from(register))
                    .map(Hpa)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hv_hw::host::FakeMachine;

    #[test]
    fn ports_below_256_and_windows_above() {
        let hw = FakeMachine::new(1);
        let windows = [ConfigWindow {
            base: 0xb000_0000,
            segment: 0,
            first_bus: 0,
            last_bus: 0xff,
        }];
        let c = HwConfig {
            machine: &hw,
            windows: &windows,
        };
        let bdf = Bdf::new(1, 2, 3);
        c.write(bdf, 0x3e, Width::B2, 0x1234);
        c.write(bdf, 0x104, Width::B4, 0xdead_beef);
        assert_eq!(
            hw.seen.lock().unwrap().port_writes,
            [(0xcf8, Width::B4, 0x8001_133c), (0xcfe, Width::B2, 0x1234)]
        );
        assert_eq!(c.read(bdf, 0x104, Width::B4), 0xdead_beef);
        assert_eq!(hw.mmio_read(Hpa(0xb011_3104), Width::B4), Some(0xdead_beef));
        assert_eq!(c.read(bdf, 0, Width::B2), 0xffff);
        // No window there.
        let none = HwConfig {
            machine: &hw,
            windows: &[],
        };
        assert_eq!(none.read(bdf, 0x104, Width::B4), u32::MAX);
        assert_eq!(none.read(Bdf { segment: 1, ..bdf }, 0, Width::B2), 0xffff);
    }
}
