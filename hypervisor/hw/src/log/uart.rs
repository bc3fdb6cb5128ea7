//! 16550-compatible serial port: polled, with its FIFO used in bursts, so that a line costs few port accesses.
//!
//! Owned by the console list (see [`crate::log`]); the panic path may take it over from an interrupted CPU, which at
//! worst garbles one line.

#[cfg(target_os = "none")]
use crate::x86::asm;

/// Byte-wide port access, so that the driver runs against a fake in tests.
pub trait Ports {
    /// Reads a port.
    fn read(&mut self, port: u16) -> u8;
    /// Writes a port.
    fn write(&mut self, port: u16, value: u8);
}

/// The machine's ports.
#[cfg(target_os = "none")]
pub struct Native;

#[cfg(target_os = "none")]
impl Ports for Native {
    fn read(&mut self, port: u16) -> u8 {
        asm::inb(port)
    }
    fn write(&mut self, port: u16, value: u8) {
        // SAFETY: only the UART's own eight ports are used, and a UART cannot touch memory.
        unsafe { asm::outb(port, value) }
    }
}

/// Register offsets.
const DATA: u16 = 0;
const INTERRUPTS: u16 = 1;
const FIFO: u16 = 2;
const LINE: u16 = 3;
const MODEM: u16 = 4;
const STATUS: u16 = 5;
const SCRATCH: u16 = 7;

/// Status bits.
const RECEIVED: u8 = 1;
const TRANSMIT_EMPTY: u8 = 1 << 5;
/// Bytes that the transmit FIFO takes when it is empty.
const BURST: usize = 16;
/// Polls of the status register before a byte is given up: a dead port must not stop the boot.
const PATIENCE: u32 = 200_000;

/// How the line is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSettings {
    /// Divisor of the port's clock; `None` keeps the firmware's.
    pub divisor: Option<u16>,
    /// Value of the line control register: word length, parity, stop bits.
    pub control: u8,
}

impl LineSettings {
    /// 115200 bits per second with the usual clock, 8 data bits, no parity, 1 stop bit.
    pub const DEFAULT: LineSettings = LineSettings {
        divisor: Some(1),
        control: 3,
    };
}

/// A 16550 at an I/O port.
pub struct Uart<P> {
    ports: P,
    base: u16,
    /// Polls left until the port counts as dead; refilled by every byte that leaves.
    patience: u32,
}

impl<P: Ports> Uart<P> {
    /// A port that answers: sets it up and returns it. `None` if nothing is there.
    pub fn probe(mut ports: P, base: u16, line: LineSettings) -> Option<Self> {
        ports.write(base + SCRATCH, 0x5a);
        if ports.read(base + SCRATCH) != 0x5a {
            return None;
        }
        ports.write(base + INTERRUPTS, 0);
        if let Some(divisor) = line.divisor {
            ports.write(base + LINE, 0x80 | line.control);
            ports.write(base + DATA, divisor as u8);
            ports.write(base + INTERRUPTS, (divisor >> 8) as u8);
        }
        ports.write(base + LINE, line.control);
        // FIFO on, both directions cleared; DTR, RTS and OUT2 on.
        ports.write(base + FIFO, 7);
        ports.write(base + MODEM, 0xb);
        Some(Uart {
            ports,
            base,
            patience: PATIENCE,
        })
    }

    /// First of the eight ports.
    pub fn base(&self) -> u16 {
        self.base
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        for burst in bytes.chunks(BURST) {
            while self.ports.read(self.base + STATUS) & TRANSMIT_EMPTY == 0 {
                match self.patience.checked_sub(1) {
                    Some(left) => self.patience = left,
                    None => return,
                }
                core::hint::spin_loop();
            }
            self.patience = PATIENCE;
            for &b in burst {
                self.ports.write(self.base + DATA, b);
            }
        }
    }

    /// Takes received bytes; returns how many.
    pub fn read(&mut self, buf: &mut [u8]) -> usize {
        for (n, slot) in buf.iter_mut().enumerate() {
            let status = self.ports.read(self.base + STATUS);
            // All-ones: the device is gone.
            if status & RECEIVED == 0 || status == 0xff {
                return n;
            }
            *slot = self.ports.read(self.base + DATA);
        }
        buf.len()
    }

    /// Asks for an interrupt on received bytes, or stops that.
    pub fn set_receive_interrupt(&mut self, on: bool) {
        self.ports.write(self.base + INTERRUPTS, u8::from(on));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[derive(Default)]
    struct Fake {
        scratch: u8,
        sent: Vec<u8>,
        status_reads: usize,
        input: Vec<u8>,
        dead: bool,
        divisor_latch: bool,
    }

    impl Ports for Fake {
        fn read(&mut self, port: u16) -> u8 {
            match port & 7 {
                SCRATCH => self.scratch,
                STATUS => {
                    self.status_reads += 1;
                    let tx = if self.dead { 0 } else { TRANSMIT_EMPTY };
                    tx | u8::from(!self.input.is_empty())
                }
                DATA => self.input.remove(0),
                _ => 0,
            }
        }
        fn write(&mut self, port: u16, value: u8) {
            match port & 7 {
                SCRATCH => self.scratch = value,
                LINE => self.divisor_latch = value & 0x80 != 0,
                DATA if !self.divisor_latch => self.sent.push(value),
                _ => {}
            }
        }
    }

    fn uart(fake: Fake) -> Uart<Fake> {
        Uart::probe(fake, 0x3f8, LineSettings::DEFAULT).expect("the fake answers")
    }

    #[test]
    fn writes_in_bursts() {
        let mut u = uart(Fake::default());
        u.write(&[b'x'; 40]);
        assert_eq!(u.ports.sent.len(), 40);
        assert_eq!(u.ports.status_reads, 3);
    }

    #[test]
    fn a_dead_transmitter_costs_bounded_time() {
        let mut u = uart(Fake {
            dead: true,
            ..Fake::default()
        });
        u.write(b"lost");
        u.write(b"lost");
        assert!(u.ports.sent.is_empty());
        assert!(u.ports.status_reads <= PATIENCE as usize + 10);
    }

    #[test]
    fn reads_what_is_there() {
        let mut u = uart(Fake {
            input: b"abc".to_vec(),
            ..Fake::default()
        });
        let mut buf = [0; 2];
        assert_eq!(u.read(&mut buf), 2);
        assert_eq!(&buf, b"ab");
        assert_eq!(u.read(&mut buf), 1);
        assert_eq!(u.read(&mut buf), 0);
    }
}
