//! Consoles on this machine: which exist, and how to reach them.

use x86_model::Hpa;

use super::loader::info;
use crate::bootinfo::{Framebuffer, Screen};
use crate::log::canvas::{PixelCanvas, TextCanvas, Video};
use crate::log::uart::{LineSettings, Native, Uart};
use crate::log::{self, Display};
use crate::x86::paging;

/// Port of the first serial line of a PC.
const COM1: u16 = 0x3f8;

/// Adds the serial port at `base` as a console. False if nothing answers there.
pub fn add_serial(base: u16, line: LineSettings) -> bool {
    match Uart::probe(Native, base, line) {
        Some(uart) => {
            log::add_serial(uart);
            true
        }
        None => false,
    }
}

/// Why [`add_screen`] finds none.
pub const NO_SCREEN: &str = if cfg!(CONFIG_VGA) {
    "the boot loader left no screen"
} else {
    "the screen is not built in (CONFIG_VGA)"
};

/// Adds the screen as a console, be it text or graphics. False if there is none. Works before and after the memory
/// bring-up; what was added before must be added again after it, since the mapping has changed.
pub fn add_screen() -> bool {
    if !cfg!(CONFIG_VGA) {
        return false;
    }
    let (address, columns, rows) = match info().screen {
        Screen::Framebuffer(fb) => return add_framebuffer(fb),
        Screen::Text(address, columns, rows) => (address, columns as usize, rows as usize),
        // PC firmware leaves the 80 by 25 text mode; EFI has none.
        Screen::Unknown if info().efi_system_table.is_none() => (0xb8000, 80, 25),
        Screen::Unknown => return false,
    };
    let (columns, rows) = (columns.min(256), rows.min(256));
    let len = columns * rows * 2;
    let Some(start) = reach(address, len as u64, paging::map_mmio) else {
        return false;
    };
    // SAFETY: video memory, mapped just now; the log is the only user of the screen in the hypervisor.
    let video = unsafe { Video::new(start, len) };
    log::set_display(Display::Text(TextCanvas {
        video,
        columns,
        rows,
    }));
    true
}

fn add_framebuffer(fb: Framebuffer) -> bool {
    let Some(len) = PixelCanvas::bytes(&fb) else {
        crate::warn!("the boot loader's frame buffer makes no sense: {fb:?}");
        return false;
    };
    let Some(start) = reach(fb.address, len, paging::map_screen) else {
        return false;
    };
    // SAFETY: video memory, mapped just now; the log is the only user of the screen in the hypervisor.
    let video = unsafe { Video::new(start, len as usize) };
    log::set_display(Display::Pixels(PixelCanvas::new(video, fb)));
    true
}

/// Pointer to video memory: the entry stub's identity map, or after the memory bring-up a mapping of its own.
fn reach(address: u64, len: u64, map: fn(Hpa, u64) -> Option<*mut u8>) -> Option<*mut u8> {
    if paging::root() == Hpa(0) {
        let end = address.checked_add(len)?;
        return (address != 0 && end <= 1 << 32).then_some(address as *mut u8);
    }
    map(Hpa(address), len)
}

/// For messages that cannot wait for the command line to be read: if there is no console yet, the first serial port and
/// the screen.
pub fn add_defaults() {
    if !log::has_console() {
        add_serial(COM1, LineSettings::DEFAULT);
        add_screen();
    }
}
