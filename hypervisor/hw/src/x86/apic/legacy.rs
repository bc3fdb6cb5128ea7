//! The pair of 8259 interrupt controllers: moved out of the exceptions' way and masked for good.

use super::super::asm::outb;
use super::vectors;

const MASTER: u16 = 0x20;
const SLAVE: u16 = 0xa0;

/// Initialises both at [`vectors::LEGACY`] and masks every line. A masked controller can still raise a spurious
/// interrupt, which then has a harmless vector.
pub fn mask() {
    let sequence = [
        (MASTER + 1, 0xff),
        (SLAVE + 1, 0xff),
        (MASTER, 0x11),
        (MASTER + 1, vectors::LEGACY),
        (MASTER + 1, 4),
        (MASTER + 1, 1),
        (SLAVE, 0x11),
        (SLAVE + 1, vectors::LEGACY + 8),
        (SLAVE + 1, 2),
        (SLAVE + 1, 1),
        (MASTER + 1, 0xff),
        (SLAVE + 1, 0xff),
    ];
    for (port, value) in sequence {
        // SAFETY: the controllers only raise vectors; they write no memory.
        unsafe { outb(port, value) };
    }
}
