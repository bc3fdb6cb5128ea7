//! Start state of a vCPU (`hvm/hvm_vcpu.h`).

use crate::layout::abi_header;

abi_header! {
    header "hvm/hvm_vcpu.h";
    structs {
        /// Registers for 32-bit start.
        VcpuHvmX86_32 "struct vcpu_hvm_x86_32" [120] {
            @0 eax: u32,
            @4 ecx: u32,
            @8 edx: u32,
            @12 ebx: u32,
            @16 esp: u32,
            @20 ebp: u32,
            @24 esi: u32,
            @28 edi: u32,
            @32 eip: u32,
            @36 eflags: u32,
            @40 cr0: u32,
            @44 cr3: u32,
            @48 cr4: u32,
            @52 _pad1: u32 as "pad1",
            @56 efer: u64,
            @64 cs_base: u32,
            @68 ds_base: u32,
            @72 ss_base: u32,
            @76 es_base: u32,
            @80 tr_base: u32,
            @84 cs_limit: u32,
            @88 ds_limit: u32,
            @92 ss_limit: u32,
            @96 es_limit: u32,
            @100 tr_limit: u32,
            @104 cs_ar: u16,
            @106 ds_ar: u16,
            @108 ss_ar: u16,
            @110 es_ar: u16,
            @112 tr_ar: u16,
            @114 _pad2: [u16; 3] as "pad2",
        }
        /// Registers for 64-bit start.
        VcpuHvmX86_64 "struct vcpu_hvm_x86_64" [112] {
            @0 rax: u64,
            @8 rcx: u64,
            @16 rdx: u64,
            @24 rbx: u64,
            @32 rsp: u64,
            @40 rbp: u64,
            @48 rsi: u64,
            @56 rdi: u64,
            @64 rip: u64,
            @72 rflags: u64,
            @80 cr0: u64,
            @88 cr3: u64,
            @96 cr4: u64,
            @104 efer: u64,
        }
        /// Argument of `VCPUOP_initialise`: a mode and one of the two register sets.
        VcpuHvmContext "struct vcpu_hvm_context" [128] {
            /// [`mode`].
            @0 mode: u32,
            @4 _pad: u32 as "pad",
            @8 cpu_regs: [u8; 120],
        }
    }
    constants {
        /// Values of [`VcpuHvmContext::mode`].
        mod mode: u32 {
            MODE_32B "VCPU_HVM_MODE_32B" = 0,
            MODE_64B "VCPU_HVM_MODE_64B" = 1,
        }
    }
}
