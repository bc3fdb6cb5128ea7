//! The hypervisor's console towards people: input for the control domain, and the debug keys.

pub mod input;
mod keys;

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hv_hw::Machine;

use crate::hypervisor::Hypervisor;
use input::{Input, Switch, Typed};

pub use keys::KEYS;

/// Bytes taken from the hardware at a time, and how often at most; the rest waits for the next interrupt.
const CHUNK: usize = 64;
const CHUNKS: usize = 16;

impl Hypervisor {
    /// Input waits at the consoles: what is the control domain's is kept for it, and it is told; debug keys are served.
    pub fn console_input(&self) {
        let (input, keys) = self.sort_input();
        if input {
            self.raise_global_virq(xen_abi::virq::nr::CONSOLE);
        }
        for key in keys {
            self.debug_key(key);
        }
    }

    /// Bytes for the control domain, those that no interrupt has announced yet included; returns how many.
    pub fn console_take(&self, to: &mut [u8]) -> usize {
        let (_, keys) = self.sort_input();
        for key in keys {
            self.debug_key(key);
        }
        self.input.lock().take(to)
    }

    /// Takes what was typed. Whether the control domain has new input, and the debug keys.
    fn sort_input(&self) -> (bool, Vec<u8>) {
        let (mut new, mut keys) = (false, Vec::new());
        for _ in 0..CHUNKS {
            let mut chunk = [0; CHUNK];
            let mut typed = [Typed::Nothing; CHUNK];
            // Taken and sorted under one lock: the interrupt and the control domain's own look, on two CPUs at once, would
            // put bytes in another order, and a switch key among them would not be understood.
            let mut input = self.input.lock();
            let n = self.hw.console_read(&mut chunk);
            for (typed, byte) in typed.iter_mut().zip(&chunk[..n]) {
                *typed = input.byte(*byte);
            }
            let letter = input.letter();
            drop(input);
            for typed in typed {
                match typed {
                    Typed::Nothing => {}
                    Typed::Input => new = true,
                    Typed::Key(key) => keys.push(key),
                    Typed::Switched(ours) => self.say_whose(ours, letter),
                }
            }
            if n < CHUNK {
                break;
            }
        }
        (new, keys)
    }

    /// The control domain starts: says who gets what is typed from here on.
    pub fn start_input(&self, switch: Switch) {
        *self.input.lock() = Input::new(switch);
        self.say_whose(switch.stay, switch.letter.map(char::from));
    }

    fn say_whose(&self, ours: bool, letter: Option<char>) {
        let whose = if ours { "Xen" } else { "DOM0" };
        match letter {
            Some(letter) => self.say(format_args!(
                "*** Serial input to {whose} (type 'CTRL-{letter}' three times to switch input)"
            )),
            None => self.say(format_args!("*** Serial input to {whose}")),
        }
    }

    /// A line on the consoles, whatever the levels are: for somebody who asked.
    pub(crate) fn say(&self, line: core::fmt::Arguments<'_>) {
        let text = alloc::format!("(XEN) {line}\n");
        self.hw.console_write(text.as_bytes(), true);
    }

    /// What the control domain prints: it goes to the consoles, and to the log only if the administrator wants that.
    pub fn guest_output(&self, bytes: &[u8]) {
        self.hw.console_write(bytes, self.console_to_ring);
    }

    /// Whether there are lines in the log that the control domain has not been told of.
    #[inline]
    pub fn has_log_news(&self) -> bool {
        self.hw.log_end() != self.log_told.load(Ordering::Relaxed)
    }

    /// Tells the control domain that the log has more lines. Any CPU may have printed them, with any lock held: each looks
    /// from its run loop instead, where none is held.
    #[cold]
    pub fn tell_log_news(&self) {
        let end = self.hw.log_end();
        if self.log_told.swap(end, Ordering::Relaxed) != end {
            self.raise_global_virq(xen_abi::virq::nr::CON_RING);
        }
    }
}
