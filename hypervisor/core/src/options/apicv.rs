//! `apicv=`: what the processor may do for guests' local APICs, where it can.

use alloc::string::String;

use super::list;
use super::value::Arg;

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apicv {
    /// Handle xAPIC mode.
    pub xapic: bool,
    /// Handle x2APIC mode.
    pub x2apic: bool,
    /// Let guests read registers.
    pub registers: bool,
    /// Deliver interrupts.
    pub delivery: bool,
    /// Take what is posted to a vCPU in guest mode.
    pub post: bool,
}

impl Apicv {
    /// All parts alike, but for posting, which is asked for by name.
    pub const fn all(on: bool) -> Self {
        Apicv {
            xapic: on,
            x2apic: on,
            registers: on,
            delivery: on,
            post: false,
        }
    }

    pub(super) fn parse(&mut self, arg: Arg<'_>) -> Result<(), String> {
        if arg.value.is_none() {
            *self = Self::all(arg.boolean()?);
            return Ok(());
        }
        list::each(arg.text()?, |item| {
            match item.name {
                "no" | "off" | "false" | "disable" | "0" => *self = Self::all(false),
                "yes" | "on" | "true" | "enable" | "1" => *self = Self::all(true),
                "xapic" => self.xapic = item.on,
                "x2apic" => self.x2apic = item.on,
                "registers" => self.registers = item.on,
                "delivery" => self.delivery = item.on,
                "post" => self.post = item.on,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }
}
