//! The end of the road: a bug of ours, or a boot that cannot go on.

use crate::log;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    log::seize();
    match info.location() {
        Some(at) => crate::error!("PANIC at {}:{}: {}", at.file(), at.line(), info.message()),
        None => crate::error!("PANIC: {}", info.message()),
    }
    loop {
        // SAFETY: stopping this CPU for good.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
