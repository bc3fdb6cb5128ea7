//! The daemon's end of a console ring (`io/console.h`).
//!
//! The page belongs to the guest, which may write anything into it at any time. Indices are read once for each step and
//! checked; bytes are copied out before anything is done with them.

use crate::shared::Page;
use std::mem::offset_of;
use xen_abi::console::XenconsInterface;

const INPUT: usize = offset_of!(XenconsInterface, input);
const OUTPUT: usize = offset_of!(XenconsInterface, output);
const IN_CONS: usize = offset_of!(XenconsInterface, in_cons);
const IN_PROD: usize = offset_of!(XenconsInterface, in_prod);
const OUT_CONS: usize = offset_of!(XenconsInterface, out_cons);
const OUT_PROD: usize = offset_of!(XenconsInterface, out_prod);
/// Bytes of the half to the guest.
pub const INPUT_SIZE: u32 = (OUTPUT - INPUT) as u32;
/// Bytes of the half from the guest.
pub const OUTPUT_SIZE: u32 = (IN_CONS - OUTPUT) as u32;

/// The indices make no sense: one half holds more than it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonsense;

/// The daemon's end.
#[derive(Debug)]
pub struct Ring<P> {
    page: P,
    /// The guest is to be sent an event.
    notify: bool,
}

impl<P: Page> Ring<P> {
    /// Goes on where the page says that a daemon was.
    pub fn attach(page: P) -> Ring<P> {
        Ring {
            page,
            notify: false,
        }
    }

    /// Whether the guest is to be sent an event; asking resets it.
    pub fn take_notify(&mut self) -> bool {
        std::mem::take(&mut self.notify)
    }

    /// Takes all that the guest has printed, at most [`OUTPUT_SIZE`] bytes.
    ///
    /// # Errors
    /// The indices make no sense; nothing is taken.
    pub fn take_output(&mut self) -> Result<Vec<u8>, Nonsense> {
        let memory = self.page.page();
        let (cons, prod) = (memory.load(OUT_CONS), memory.load(OUT_PROD));
        let count = filled(cons, prod, OUTPUT_SIZE)?;
        let mut bytes = vec![0; count as usize];
        let at = (cons % OUTPUT_SIZE) as usize;
        let (first, second) = bytes.split_at_mut((OUTPUT_SIZE as usize - at).min(count as usize));
        memory.copy_out(OUTPUT + at, first);
        memory.copy_out(OUTPUT, second);
        if count > 0 {
            memory.store(OUT_CONS, prod);
            self.notify = true;
        }
        Ok(bytes)
    }

    /// Whether the guest has printed something, sensible or not.
    pub fn has_output(&self) -> bool {
        let memory = self.page.page();
        memory.load(OUT_CONS) != memory.load(OUT_PROD)
    }

    /// How many bytes can be given to the guest now.
    ///
    /// # Errors
    /// The indices make no sense.
    pub fn room(&self) -> Result<usize, Nonsense> {
        let memory = self.page.page();
        let count = filled(memory.load(IN_CONS), memory.load(IN_PROD), INPUT_SIZE)?;
        Ok((INPUT_SIZE - count) as usize)
    }

    /// Gives the guest as many of the bytes as there is room for; returns how many.
    ///
    /// # Errors
    /// The indices make no sense; nothing is given.
    pub fn give_input(&mut self, bytes: &[u8]) -> Result<usize, Nonsense> {
        let memory = self.page.page();
        let (cons, prod) = (memory.load(IN_CONS), memory.load(IN_PROD));
        let room = INPUT_SIZE - filled(cons, prod, INPUT_SIZE)?;
        let bytes = &bytes[..bytes.len().min(room as usize)];
        let at = (prod % INPUT_SIZE) as usize;
        let (first, second) = bytes.split_at((INPUT_SIZE as usize - at).min(bytes.len()));
        memory.copy_in(INPUT + at, first);
        memory.copy_in(INPUT, second);
        if !bytes.is_empty() {
            memory.store(IN_PROD, prod.wrapping_add(bytes.len() as u32));
            self.notify = true;
        }
        Ok(bytes.len())
    }
}

/// How many bytes lie between the two indices, which run freely.
fn filled(cons: u32, prod: u32, size: u32) -> Result<u32, Nonsense> {
    Some(prod.wrapping_sub(cons))
        .filter(|n| *n <= size)
        .ok_or(Nonsense)
}
