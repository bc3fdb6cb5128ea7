//! The way of another CPU from its start-up message to the hypervisor's code.
//!
//! The first part is copied to a page below 1 MiB and runs there: real mode, then straight to long mode on page tables
//! that map that page at its own address. The second part runs in the image: it finds the CPU's record by its APIC ID,
//! so any number of CPUs can be on their way at once.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use x86_model::Hpa;
use x86_model::callin::{self, Stage};
use x86_model::regs::{cr, msr};

use super::Record;
use crate::mem::phys_to_virt;

/// CR0 from the switch to paging on: caches on, which INIT leaves off.
const CR0: u64 = cr::CR0_PE | cr::CR0_MP | cr::CR0_ET | cr::CR0_NE | cr::CR0_WP | cr::CR0_PG;

global_asm!(
    ".pushsection .rodata.hv_ap_trampoline, \"a\"",
    ".balign 16",
    "hv_ap_start:",
    ".code16",
    "cli",
    "cld",
    "movw %cs, %ax",
    "movw %ax, %ds",
    // With a 32-bit operand size the whole base is loaded.
    "lgdtl hv_ap_gdtr - hv_ap_start",
    "movl ${cr4}, %eax",
    "movl %eax, %cr4",
    "movl hv_ap_patch_root - hv_ap_start, %eax",
    "movl %eax, %cr3",
    "movl ${efer_msr}, %ecx",
    "rdmsr",
    "orl ${efer}, %eax",
    "wrmsr",
    "movl ${cr0}, %eax",
    "movl %eax, %cr0",
    // Far jump with a 32-bit target: operand prefix, opcode, offset (patched), selector.
    ".byte 0x66, 0xea",
    "hv_ap_patch_long:",
    ".long hv_ap_long - hv_ap_start",
    ".short 8",
    ".code64",
    "hv_ap_long:",
    "movq hv_ap_patch_entry(%rip), %rax",
    "jmpq *%rax",
    ".balign 8",
    "hv_ap_gdt:",
    ".quad 0, 0x00209b0000000000",
    "hv_ap_gdtr:",
    ".short 15",
    "hv_ap_patch_gdtr:",
    ".long hv_ap_gdt - hv_ap_start",
    ".balign 8",
    "hv_ap_patch_root:",
    ".quad 0",
    "hv_ap_patch_entry:",
    ".quad 0",
    "hv_ap_end:",
    ".popsection",
    cr4 = const cr::CR4_PAE,
    efer_msr = const msr::EFER,
    efer = const msr::EFER_LME | msr::EFER_NXE,
    cr0 = const CR0,
    options(att_syntax),
);

global_asm!(
    ".pushsection .text.hv_ap_entry, \"ax\"",
    "hv_ap_entry:",
    // The stacks are not in the first page tables.
    "mov rax, [rip + {root}]",
    "mov cr3, rax",
    "mov ecx, {apic_base}",
    "rdmsr",
    "test eax, {x2apic}",
    "jz 2f",
    "mov ecx, {x2apic_id}",
    "rdmsr",
    "jmp 3f",
    "2:",
    "mov eax, 1",
    "cpuid",
    "shr ebx, 24",
    "mov eax, ebx",
    "3:",
    "mov rdi, [rip + {table}]",
    "mov ecx, dword ptr [rip + {count}]",
    "4:",
    "test ecx, ecx",
    "jz 6f",
    "cmp dword ptr [rdi + {id_offset}], eax",
    "je 5f",
    "add rdi, {record}",
    "dec ecx",
    "jmp 4b",
    "5:",
    "mov dword ptr [rdi + {stage_offset}], {stage}",
    "mov rsp, [rdi + {stack_offset}]",
    "xor ebp, ebp",
    "call {main}",
    // Nobody expects this CPU.
    "6:",
    "cli",
    "hlt",
    "jmp 6b",
    ".popsection",
    root = sym ROOT,
    table = sym TABLE,
    count = sym COUNT,
    apic_base = const msr::APIC_BASE,
    x2apic = const msr::APIC_BASE_X2APIC,
    x2apic_id = const msr::X2APIC_FIRST + 2,
    id_offset = const offset_of!(Record, apic_id),
    stage_offset = const offset_of!(Record, call) + callin::STAGE_OFFSET,
    stage = const Stage::LongMode as u32,
    stack_offset = const offset_of!(Record, stack_top),
    record = const size_of::<Record>(),
    main = sym super::ap::main,
);

unsafe extern "C" {
    static hv_ap_start: u8;
    static hv_ap_end: u8;
    static hv_ap_patch_long: u8;
    static hv_ap_patch_gdtr: u8;
    static hv_ap_patch_root: u8;
    static hv_ap_patch_entry: u8;
    static hv_ap_entry: u8;
}

static TABLE: AtomicPtr<Record> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);
static ROOT: AtomicU64 = AtomicU64::new(0);

/// Copies the code to `page` and tells it where to go. `first_root` maps that page; `root` is the hypervisor's. Returns
/// the page number for the start-up message.
pub(super) fn install(page: Hpa, first_root: Hpa, root: Hpa, records: &'static [Record]) -> u8 {
    let start = &raw const hv_ap_start;
    let to = phys_to_virt(page);
    let offset = |symbol: *const u8| symbol as usize - start as usize;
    let add32 = |symbol: *const u8, value: u64| {
        // SAFETY: the symbol lies in the copied code, so its place lies in the page.
        unsafe {
            let p = to.add(offset(symbol)).cast::<u32>();
            p.write_unaligned(p.read_unaligned() + value as u32);
        }
    };
    let set64 = |symbol: *const u8, value: u64| {
        // SAFETY: as above.
        unsafe { to.add(offset(symbol)).cast::<u64>().write_unaligned(value) };
    };
    let length = offset(&raw const hv_ap_end);
    assert!(length <= 4096);
    // SAFETY: the boot code reserved the page for this and mapped it in the direct map; no CPU runs in it yet.
    unsafe { core::ptr::copy_nonoverlapping(start, to, length) };
    add32(&raw const hv_ap_patch_long, page.0);
    add32(&raw const hv_ap_patch_gdtr, page.0);
    set64(&raw const hv_ap_patch_root, first_root.0);
    set64(
        &raw const hv_ap_patch_entry,
        (&raw const hv_ap_entry) as u64,
    );
    ROOT.store(root.0, Ordering::Relaxed);
    TABLE.store(records.as_ptr().cast_mut(), Ordering::Relaxed);
    COUNT.store(records.len() as u32, Ordering::Release);
    (page.0 >> 12) as u8
}
