//! First instructions: PVH entry of the boot processor and real-mode entry of the others.
//!
//! The hypervisor enters at `pvh_start` in flat 32-bit mode, paging off, EBX = start info. The other processors
//! enter the copy of `ap_trampoline` at [`TRAMPOLINE`] in real mode. Both end in 64-bit mode on the same page
//! tables: 0..4 GiB identity and a 1 GiB window at [`HOLE`], all with 2 MiB pages, all open to user mode.

/// Physical address of the real-mode trampoline: RAM below 1 MiB on every machine we run on.
pub const TRAMPOLINE: u64 = 0x8000;

/// Start of a 1 GiB range far above all RAM, identity mapped here and empty in the physical map: targets for
/// grant mappings and populated pages.
pub const HOLE: u64 = 0x10_0000_0000;

/// Bytes of stack for each processor.
pub const STACK_SIZE: usize = 32 * 1024;

/// Processors that the library can start.
pub const MAX_CPUS: usize = 16;

#[cfg(target_os = "none")]
core::arch::global_asm!(
    r#"
    .pushsection .note.Xen, "a", @note
    .balign 4
    .long 4, 4, 18              /* name size, descriptor size, PHYS32_ENTRY */
    .asciz "Xen"
    .long pvh_start
    .popsection

    .pushsection .text.entry, "ax"
    .code32
    .global pvh_start
pvh_start:
    cld
    cli
    movl $stacks + {stack}, %esp
    movl %ebx, %ebp             /* start info survives in EBP */

    movl $page_dirs, %edi       /* four directories: 0..4 GiB */
    movl $0x87, %eax
    xorl %edx, %edx
    movl $2048, %ecx
1:  movl %eax, (%edi)
    movl %edx, 4(%edi)
    addl $8, %edi
    addl $0x200000, %eax
    decl %ecx
    jnz 1b
    movl $0x87, %eax            /* the fifth: the window at HOLE */
    movl ${hole_high}, %edx
    movl $512, %ecx
2:  movl %eax, (%edi)
    movl %edx, 4(%edi)
    addl $8, %edi
    addl $0x200000, %eax
    decl %ecx
    jnz 2b

    movl $page_dirs + 7, %eax
    movl $pdpt, %edi
    movl $4, %ecx
3:  movl %eax, (%edi)
    addl $8, %edi
    addl $4096, %eax
    decl %ecx
    jnz 3b
    movl %eax, pdpt + 8 * {hole_slot}
    movl $pdpt + 7, pml4

    lgdt gdt_pointer
    call enable_long
    ljmp $0x08, $start64

enable_long:
    movl $0x20, %eax            /* CR4.PAE */
    movl %eax, %cr4
    movl $pml4, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      /* EFER.LME, NXE */
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl $0x80010033, %eax      /* CR0: PG, WP, NE, ET, MP, PE */
    movl %eax, %cr0
    ret

    .code64
start64:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    movl $stacks + {stack}, %esp
    movl %ebp, %edi
    xorl %ebp, %ebp
    call rt_start
4:  hlt
    jmp 4b

    .code16
    .global ap_trampoline
ap_trampoline:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl {trampoline} + (ap_gdt_pointer - ap_trampoline)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x10, $ap_start32
    .balign 8
ap_gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt
    .global ap_trampoline_end
ap_trampoline_end:

    .code32
ap_start32:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl ap_stack, %esp
    call enable_long
    ljmp $0x08, $ap_start64
    .code64
ap_start64:
    xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    movl ap_stack, %esp
    movl ap_index, %edi
    xorl %ebp, %ebp
    call rt_ap_start
5:  hlt
    jmp 5b
    .popsection

    .pushsection .data, "aw"
    .balign 8
gdt:
    .quad 0
    .quad 0x00af9b000000ffff    /* 08: 64-bit code */
    .quad 0x00cf9b000000ffff    /* 10: 32-bit code */
    .quad 0x00cf93000000ffff    /* 18: data */
    .quad 0x00cff3000000ffff    /* 20: user data */
    .quad 0x00affb000000ffff    /* 28: user 64-bit code */
    .global tss_descriptor
tss_descriptor:                 /* 30: TSS of the boot processor */
    .quad 0, 0
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .quad gdt
    .balign 4
    .global ap_stack, ap_index
ap_stack: .long 0
ap_index: .long 0
    .popsection

    .pushsection .bss, "aw", @nobits
    .balign 4096
pml4: .skip 4096
pdpt: .skip 4096
page_dirs: .skip 5 * 4096
    .balign 4096
    .global stacks
stacks: .skip {stack} * {cpus}
    .popsection
    "#,
    stack = const STACK_SIZE,
    cpus = const MAX_CPUS,
    trampoline = const TRAMPOLINE,
    hole_high = const HOLE >> 32,
    hole_slot = const HOLE >> 30,
    options(att_syntax)
);
