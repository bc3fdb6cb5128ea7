# Entry from the loader: 32-bit protected mode, paging off, interrupts off, flat segments (Multiboot2, 3.3; PVH has the
# same state). Builds first page tables (identity map of 4 GiB, and the first GiB at the link address), enters long mode
# and calls xenolith_main(magic, info address). The .boot parts run at physical addresses, where they are linked.

    .set VIRT, 0xffffffff80000000
    .set MB2_MAGIC, 0xe85250d6

    .section .boot.header, "ax"
    .balign 8
mb2_header:
    .long MB2_MAGIC, 0, mb2_end - mb2_header, -(MB2_MAGIC + (mb2_end - mb2_header))
    # Information request: the memory map is required.
    .balign 8
    .short 1, 0
    .long 12, 6
    # Information request, optional: command line, loader, modules, frame buffer, EFI table, both RSDPs, EFI map.
    .balign 8
    .short 1, 1
    .long 8 + 4 * 8, 1, 2, 3, 8, 12, 14, 15, 17
    # Entry address.
    .balign 8
    .short 3, 0
    .long 12, boot_entry_mb2
    # Console flags, optional: text mode is understood.
    .balign 8
    .short 4, 1
    .long 12, 2
    # Frame buffer, optional, any size and depth.
    .balign 8
    .short 5, 1
    .long 20, 0, 0, 0
    # Modules on page borders.
    .balign 8
    .short 6, 0
    .long 8
    # End.
    .balign 8
    .short 0, 0
    .long 8
mb2_end:

    # PHYS32_ENTRY (18): makes the file startable by PVH loaders, QEMU's -kernel among them.
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad boot_entry_pvh

    .section .boot.text, "ax"
    .code32
    .global boot_entry_mb2, boot_entry_pvh

boot_entry_pvh:
    # The only argument is EBX; the block there starts with its magic number.
    movl (%ebx), %eax
boot_entry_mb2:
    cli
    cld
    movl $(__stack_top - VIRT), %esp
    # No flag of the loader's stays: alignment checks, nested task, single steps.
    pushl $2
    popfl
    movl %eax, %edi
    movl %ebx, %esi

    # Long mode and no-execute pages?
    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb no_long_mode
    call read_features
    btl $29, %edx
    jnc no_long_mode
    btl $20, %edx
    jc have_nx
    # Some firmware of Intel machines hides the feature by IA32_MISC_ENABLE bit 34. Only try that on Intel.
    xorl %eax, %eax
    cpuid
    cmpl $0x756e6547, %ebx
    jne no_nx
    movl $0x1a0, %ecx
    rdmsr
    andl $~4, %edx
    wrmsr
    call read_features
    btl $20, %edx
    jnc no_nx
have_nx:

    # First page tables. The page-directory entries first: 2048 pages of 2 MiB.
    xorl %ecx, %ecx
    movl $0x83, %eax
1:  movl %eax, (boot_pd - VIRT)(,%ecx,8)
    movl $0, (boot_pd - VIRT + 4)(,%ecx,8)
    addl $0x200000, %eax
    incl %ecx
    cmpl $2048, %ecx
    jne 1b
    movl $(boot_pd - VIRT + 3), %eax
    movl %eax, boot_pdpt_high - VIRT + 510 * 8
    xorl %ecx, %ecx
2:  movl %eax, (boot_pdpt_low - VIRT)(,%ecx,8)
    addl $0x1000, %eax
    incl %ecx
    cmpl $4, %ecx
    jne 2b
    movl $(boot_pdpt_low - VIRT + 3), boot_pml4 - VIRT
    movl $(boot_pdpt_high - VIRT + 3), boot_pml4 - VIRT + 511 * 8

    # PAE; long mode and no-execute; paging and write protection.
    movl %cr4, %eax
    orl $0x20, %eax
    movl %eax, %cr4
    movl $(boot_pml4 - VIRT), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80010000, %eax
    movl %eax, %cr0
    lgdt boot_gdtr_low - VIRT
    ljmp $8, $long_mode

read_features:
    movl $0x80000001, %eax
    cpuid
    ret

    .code64
long_mode:
    movabsq $high, %rax
    jmp *%rax

    .section .text.boot_high, "ax"
high:
    lgdt boot_gdtr(%rip)
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movq $__stack_top, %rsp
    xorl %ebp, %ebp
    pushq $0
    pushq $0
    # EDI and ESI hold the two arguments; their upper halves are undefined after the mode switch.
    movl %edi, %edi
    movl %esi, %esi
    call xenolith_main
    ud2

    # Failures before there is a log: write the text to COM1 and to the text screen, and stop.
    .section .boot.text, "ax"
    .code32
no_long_mode:
    movl $text_no_long_mode, %esi
    jmp fail
no_nx:
    movl $text_no_nx, %esi
fail:
    movl $0xb8000, %edi
3:  lodsb
    testb %al, %al
    jz 6f
    movb %al, (%edi)
    movb $0x0f, 1(%edi)
    addl $2, %edi
    movb %al, %bl
    # Wait for the transmitter, but not for ever: there may be no such port.
    movl $100000, %ecx
    movw $0x3fd, %dx
4:  inb %dx, %al
    testb $0x20, %al
    jnz 5f
    decl %ecx
    jnz 4b
5:  movw $0x3f8, %dx
    movb %bl, %al
    outb %al, %dx
    jmp 3b
6:  hlt
    jmp 6b


text_no_long_mode:
    .asciz "Xenolith: this CPU has no 64-bit mode. Stopped.\r\n"
text_no_nx:
    .asciz "Xenolith: this CPU has no no-execute pages (NX/XD), or the firmware disables them. Stopped.\r\n"

    .section .data
    .balign 16
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
boot_gdt_end:
boot_gdtr_low:
    .short boot_gdt_end - boot_gdt - 1
    .long boot_gdt - VIRT
    .balign 8
boot_gdtr:
    .short boot_gdt_end - boot_gdt - 1
    .quad boot_gdt

    .section .bss.boot_tables, "aw", @nobits
    .balign 4096
boot_pml4:
    .skip 4096
boot_pdpt_low:
    .skip 4096
boot_pdpt_high:
    .skip 4096
boot_pd:
    .skip 4 * 4096

    .text

    # Other assembly may follow in the same unit.
    .code64
