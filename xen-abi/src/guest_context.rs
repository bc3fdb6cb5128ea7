//! Registers of a vCPU as PV knows them, which dumps of memory use for all kinds of domains (`arch-x86/xen.h`).

use crate::layout::abi_header;

abi_header! {
    header "xen.h";
    structs {
        /// Context of a vCPU.
        VcpuGuestContext "struct vcpu_guest_context" [5168] {
            /// FXSAVE image.
            @0 fpu_ctxt: [u8; 512],
            /// [`vgcf`].
            @512 flags: u64,
            @520 r15: u64 as "user_regs.r15",
            @528 r14: u64 as "user_regs.r14",
            @536 r13: u64 as "user_regs.r13",
            @544 r12: u64 as "user_regs.r12",
            @552 rbp: u64 as "user_regs.rbp",
            @560 rbx: u64 as "user_regs.rbx",
            @568 r11: u64 as "user_regs.r11",
            @576 r10: u64 as "user_regs.r10",
            @584 r9: u64 as "user_regs.r9",
            @592 r8: u64 as "user_regs.r8",
            @600 rax: u64 as "user_regs.rax",
            @608 rcx: u64 as "user_regs.rcx",
            @616 rdx: u64 as "user_regs.rdx",
            @624 rsi: u64 as "user_regs.rsi",
            @632 rdi: u64 as "user_regs.rdi",
            @640 error_code: u32 as "user_regs.error_code",
            @644 entry_vector: u32 as "user_regs.entry_vector",
            @648 rip: u64 as "user_regs.rip",
            @656 cs: u16 as "user_regs.cs",
            @658 _pad0: u16,
            @660 saved_upcall_mask: u8 as "user_regs.saved_upcall_mask",
            @661 _pad1: [u8; 3],
            @664 rflags: u64 as "user_regs.rflags",
            @672 rsp: u64 as "user_regs.rsp",
            @680 ss: u16 as "user_regs.ss",
            @682 _pad2: [u16; 3],
            @688 es: u16 as "user_regs.es",
            @690 _pad3: [u16; 3],
            @696 ds: u16 as "user_regs.ds",
            @698 _pad4: [u16; 3],
            @704 fs: u16 as "user_regs.fs",
            @706 _pad5: [u16; 3],
            @712 gs: u16 as "user_regs.gs",
            @714 _pad6: [u16; 3],
            @720 trap_ctxt: [[u8; 16]; 256],
            @4816 ldt_base: u64,
            @4824 ldt_ents: u64,
            @4832 gdt_frames: [u64; 16],
            @4960 gdt_ents: u64,
            @4968 kernel_ss: u64,
            @4976 kernel_sp: u64,
            /// CR0 to CR7.
            @4984 ctrlreg: [u64; 8],
            /// DR0 to DR7.
            @5048 debugreg: [u64; 8],
            @5112 event_callback_eip: u64,
            @5120 failsafe_callback_eip: u64,
            @5128 syscall_callback_eip: u64,
            @5136 vm_assist: u64,
            @5144 fs_base: u64,
            @5152 gs_base_kernel: u64,
            @5160 gs_base_user: u64,
        }
    }
    constants {
        /// [`VcpuGuestContext::flags`].
        mod vgcf: u64 {
            I387_VALID "VGCF_i387_valid" = 1 << 0,
            IN_KERNEL "VGCF_in_kernel" = 1 << 2,
            ONLINE "VGCF_online" = 1 << 5,
        }
    }
}
