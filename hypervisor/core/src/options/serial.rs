//! `com1=` and `com2=`: positional fields, then `name=value` pairs.

use alloc::format;
use alloc::string::String;

use super::value::integer;

/// Line rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baud {
    /// As the firmware or boot loader left it.
    Auto,
    /// Bits per second.
    Rate(u32),
}

/// Parity bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the values'")]
pub enum Parity {
    None,
    Odd,
    Even,
    Mark,
    Space,
}

/// Settings of a 16550-compatible serial port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialSetup {
    /// Whether the command line has the option at all.
    pub given: bool,
    /// Line rate.
    pub baud: Baud,
    /// Clock in Hz, sixteen times the highest line rate.
    pub clock_hz: u32,
    /// 5 to 8.
    pub data_bits: u8,
    /// Parity.
    pub parity: Parity,
    /// 1 or 2.
    pub stop_bits: u8,
    /// First I/O port.
    pub io_base: u16,
    /// Interrupt; 0 polls.
    pub irq: u8,
    /// log2 of the distance between registers.
    pub reg_shift: u8,
    /// Bytes per register access: 1 or 4.
    pub reg_width: u8,
}

impl SerialSetup {
    /// The usual port at this address: rate left alone, 8n1.
    pub const fn at(io_base: u16, irq: u8) -> Self {
        Self {
            given: false,
            baud: Baud::Auto,
            clock_hz: 1_843_200,
            data_bits: 8,
            parity: Parity::None,
            stop_bits: 1,
            io_base,
            irq,
            reg_shift: 0,
            reg_width: 1,
        }
    }

    /// Divisor for the rate, `None` to leave the port's own.
    pub fn divisor(&self) -> Option<u16> {
        match self.baud {
            Baud::Auto => None,
            Baud::Rate(rate) => u16::try_from(self.clock_hz / 16 / rate.max(1))
                .ok()
                .map(|d| d.max(1)),
        }
    }

    /// Reads the option's value. On error nothing has changed.
    pub(super) fn parse(&mut self, text: &str) -> Result<(), String> {
        let mut new = Self {
            given: true,
            ..*self
        };
        for (place, field) in text.split(',').enumerate() {
            match field.split_once('=') {
                Some((name, value)) => new.named(name, value)?,
                None if field.is_empty() => {}
                None => new.positional(place, field)?,
            }
        }
        *self = new;
        Ok(())
    }

    fn positional(&mut self, place: usize, field: &str) -> Result<(), String> {
        match place {
            0 => self.set_baud(field),
            1 => {
                let &[bits, parity, stop] = field.as_bytes() else {
                    return Err(format!("{field:?} is not a format such as 8n1"));
                };
                self.data_bits = ranged(char::from(bits).to_digit(10), 5, 8, field)?;
                self.parity = parity_of(char::from(parity), field)?;
                self.stop_bits = ranged(char::from(stop).to_digit(10), 1, 2, field)?;
                Ok(())
            }
            2 => self.set_io_base(field),
            3 => self.set_irq(field),
            _ => Err(format!("{field:?}: PCI serial ports are not supported")),
        }
    }

    fn named(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "baud" => self.set_baud(value)?,
            "clock-hz" => self.clock_hz = number(value)?.max(16),
            "data-bits" => self.data_bits = ranged(Some(number(value)?), 5, 8, value)?,
            "parity" => {
                let mut chars = value.chars();
                self.parity = match (chars.next(), chars.next()) {
                    (Some(c), None) => parity_of(c, value)?,
                    _ => return Err(format!("{value:?} is not a parity (n, o, e, m or s)")),
                };
            }
            "stop-bits" => self.stop_bits = ranged(Some(number(value)?), 1, 2, value)?,
            "io-base" => self.set_io_base(value)?,
            "irq" => self.set_irq(value)?,
            "reg-shift" => self.reg_shift = ranged(Some(number(value)?), 0, 4, value)?,
            "reg-width" => {
                self.reg_width = match value {
                    "1" => 1,
                    "4" => 4,
                    _ => return Err(format!("reg-width {value:?} is not 1 or 4")),
                };
            }
            "dev" | "port" | "bridge" => {
                return Err(format!(
                    "{name}={value}: PCI serial ports are not supported"
                ));
            }
            _ => return Err(format!("{name:?} is not a serial port setting")),
        }
        Ok(())
    }

    fn set_baud(&mut self, text: &str) -> Result<(), String> {
        let (rate, base) = match text.split_once('/') {
            Some((rate, base)) => (rate, Some(base)),
            None => (text, None),
        };
        if let Some(base) = base {
            self.clock_hz = number(base)?
                .checked_mul(16)
                .filter(|&hz| hz > 0)
                .ok_or_else(|| format!("base rate {base:?} is out of range"))?;
        }
        self.baud = match rate {
            "auto" => Baud::Auto,
            _ => match number(rate)? {
                0 => return Err(String::from("line rate 0")),
                n => Baud::Rate(n),
            },
        };
        Ok(())
    }

    fn set_io_base(&mut self, text: &str) -> Result<(), String> {
        if matches!(text, "pci" | "amt") {
            return Err(format!("{text:?}: PCI serial ports are not supported"));
        }
        self.io_base = u16::try_from(number(text)?)
            .ok()
            .filter(|&port| port != 0 && port <= 0xfff8)
            .ok_or_else(|| format!("{text:?} is not an I/O port"))?;
        Ok(())
    }

    fn set_irq(&mut self, text: &str) -> Result<(), String> {
        if text == "msi" {
            return Err(String::from("\"msi\": PCI serial ports are not supported"));
        }
        self.irq = ranged(Some(number(text)?), 0, 255, text)?;
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    integer(text)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| format!("{text:?} is not a number"))
}

fn ranged(value: Option<u32>, low: u8, high: u8, text: &str) -> Result<u8, String> {
    value
        .and_then(|v| u8::try_from(v).ok())
        .filter(|v| (low..=high).contains(v))
        .ok_or_else(|| format!("{text:?}: a number from {low} to {high} is needed"))
}

fn parity_of(c: char, text: &str) -> Result<Parity, String> {
    Ok(match c {
        'n' => Parity::None,
        'o' => Parity::Odd,
        'e' => Parity::Even,
        'm' => Parity::Mark,
        's' => Parity::Space,
        _ => return Err(format!("{text:?}: the parity is not n, o, e, m or s")),
    })
}
