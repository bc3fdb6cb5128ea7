//! What happens between the loader and the first domain.

use hv_hw::log::uart::LineSettings;
use hv_hw::mem::heap::Heap;
use hv_hw::x86::{self, CpuOptions, boot, cpu};

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Called once by the entry stub, on the boot CPU's stack, in long mode, with what the loader passed in EAX and EBX.
// SAFETY: the symbol is unique, and only the entry stub calls it.
#[unsafe(no_mangle)]
extern "C" fn xenolith_main(magic: u32, info: u32) -> ! {
    cpu::early_init();
    let info = boot::start(magic, info);
    boot::init_memory(info);
    boot::console::add_serial(0x3f8, LineSettings::DEFAULT);
    boot::console::add_screen();
    let options = CpuOptions::default();
    let _machine = x86::bring_up(info, &options).unwrap_or_else(|why| panic!("{why}"));
    x86::start_aps(&options.smp);
    panic!("nothing more to start");
}
