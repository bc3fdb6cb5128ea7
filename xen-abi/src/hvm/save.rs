//! Records of a domain's saved hardware state (`hvm/save.h`, `arch-x86/hvm/save.h`).

use crate::layout::abi_header;

abi_header! {
    header "hvm/save.h";
    structs {
        /// Stands before every record.
        SaveDescriptor "struct hvm_save_descriptor" [8] {
            /// [`code`].
            @0 typecode: u16,
            /// vCPU or device.
            @2 instance: u16,
            /// Bytes of the record without this.
            @4 length: u32,
        }
        /// The first record.
        SaveHeader "struct hvm_save_header" [24] {
            @0 magic: u32,
            @4 version: u32,
            @8 changeset: u64,
            /// CPUID leaf 1 EAX of the host.
            @16 cpuid: u32,
            @20 gtsc_khz: u32,
        }
        /// [`code::CPU`].
        HwCpu "struct hvm_hw_cpu" [1032] {
            /// FXSAVE image.
            @0 fpu_regs: [u8; 512],
            @512 rax: u64,
            @520 rbx: u64,
            @528 rcx: u64,
            @536 rdx: u64,
            @544 rbp: u64,
            @552 rsi: u64,
            @560 rdi: u64,
            @568 rsp: u64,
            @576 r8: u64,
            @584 r9: u64,
            @592 r10: u64,
            @600 r11: u64,
            @608 r12: u64,
            @616 r13: u64,
            @624 r14: u64,
            @632 r15: u64,
            @640 rip: u64,
            @648 rflags: u64,
            @656 cr0: u64,
            @664 cr2: u64,
            @672 cr3: u64,
            @680 cr4: u64,
            @688 dr0: u64,
            @696 dr1: u64,
            @704 dr2: u64,
            @712 dr3: u64,
            @720 dr6: u64,
            @728 dr7: u64,
            @736 cs_sel: u32,
            @740 ds_sel: u32,
            @744 es_sel: u32,
            @748 fs_sel: u32,
            @752 gs_sel: u32,
            @756 ss_sel: u32,
            @760 tr_sel: u32,
            @764 ldtr_sel: u32,
            @768 cs_limit: u32,
            @772 ds_limit: u32,
            @776 es_limit: u32,
            @780 fs_limit: u32,
            @784 gs_limit: u32,
            @788 ss_limit: u32,
            @792 tr_limit: u32,
            @796 ldtr_limit: u32,
            @800 idtr_limit: u32,
            @804 gdtr_limit: u32,
            @808 cs_base: u64,
            @816 ds_base: u64,
            @824 es_base: u64,
            @832 fs_base: u64,
            @840 gs_base: u64,
            @848 ss_base: u64,
            @856 tr_base: u64,
            @864 ldtr_base: u64,
            @872 idtr_base: u64,
            @880 gdtr_base: u64,
            @888 cs_arbytes: u32,
            @892 ds_arbytes: u32,
            @896 es_arbytes: u32,
            @900 fs_arbytes: u32,
            @904 gs_arbytes: u32,
            @908 ss_arbytes: u32,
            @912 tr_arbytes: u32,
            @916 ldtr_arbytes: u32,
            @920 sysenter_cs: u64,
            @928 sysenter_esp: u64,
            @936 sysenter_eip: u64,
            @944 shadow_gs: u64,
            @952 msr_flags: u64,
            @960 msr_lstar: u64,
            @968 msr_star: u64,
            @976 msr_cstar: u64,
            @984 msr_syscall_mask: u64,
            @992 msr_efer: u64,
            @1000 msr_tsc_aux: u64,
            @1008 tsc: u64,
            @1016 pending_event: u32,
            @1020 error_code: u32,
            /// [`cpu_flags`].
            @1024 flags: u32,
            @1028 _pad0: u32 as "pad0",
        }
        /// [`code::LAPIC`].
        HwLapic "struct hvm_hw_lapic" [24] {
            @0 apic_base_msr: u64,
            @8 disabled: u32,
            @12 timer_divisor: u32,
            @16 tdt_msr: u64,
        }
        /// [`code::LAPIC_REGS`].
        HwLapicRegs "struct hvm_hw_lapic_regs" [1024] {
            @0 data: [u8; 1024],
        }
        /// [`code::PCI_IRQ`]: levels of PCI interrupt wires.
        HwPciIrqs "struct hvm_hw_pci_irqs" [16] {
            @0 pad: [u64; 2],
        }
        /// [`code::ISA_IRQ`]: levels of ISA interrupt wires.
        HwIsaIrqs "struct hvm_hw_isa_irqs" [8] {
            @0 pad: [u64; 1],
        }
        /// [`code::PCI_LINK`]: router of PCI interrupts to ISA lines, 0 to 15.
        HwPciLink "struct hvm_hw_pci_link" [8] {
            @0 route: [u8; 4],
            @4 pad0: [u8; 4],
        }
        /// Start of [`code::CPU_XSAVE`]; the components above SSE follow.
        HwCpuXsave "struct hvm_hw_cpu_xsave" [600] {
            /// Ignored.
            @0 xfeature_mask: u64,
            @8 xcr0: u64,
            /// All components that the area has room for.
            @16 xcr0_accum: u64,
            @24 fpu_sse: [u8; 512] as "save_area.fpu_sse",
            @536 xstate_bv: u64 as "save_area.xsave_hdr.xstate_bv",
            @544 xcomp_bv: u64 as "save_area.xsave_hdr.xcomp_bv",
            @552 reserved: [u64; 6] as "save_area.xsave_hdr.reserved",
        }
        /// [`code::VMCE_VCPU`].
        HwVmce "struct hvm_vmce_vcpu" [32] {
            @0 caps: u64,
            @8 mci_ctl2_bank0: u64,
            @16 mci_ctl2_bank1: u64,
            @24 mcg_ext_ctl: u64,
        }
        /// [`code::TSC_ADJUST`].
        HwTscAdjust "struct hvm_tsc_adjust" [8] {
            @0 tsc_adjust: u64,
        }
        /// An element of [`code::CPU_MSR`]; they stand behind their number, a u32 in eight bytes.
        HwMsr "struct hvm_one_msr" [16] {
            @0 index: u32,
            @4 _rsvd: u32 as "_rsvd",
            @8 val: u64,
        }
        /// [`code::MTRR`].
        HwMtrr "struct hvm_hw_mtrr" [240] {
            @0 msr_pat_cr: u64,
            @8 msr_mtrr_var: [u64; 16],
            @136 msr_mtrr_fixed: [u64; 11],
            @224 msr_mtrr_cap: u64,
            @232 msr_mtrr_def_type: u64,
        }
    }
    constants {
        /// Type codes.
        mod code: u16 {
            END "HVM_SAVE_CODE(END)" = 0,
            HEADER "HVM_SAVE_CODE(HEADER)" = 1,
            CPU "HVM_SAVE_CODE(CPU)" = 2,
            PIC "HVM_SAVE_CODE(PIC)" = 3,
            IOAPIC "HVM_SAVE_CODE(IOAPIC)" = 4,
            LAPIC "HVM_SAVE_CODE(LAPIC)" = 5,
            LAPIC_REGS "HVM_SAVE_CODE(LAPIC_REGS)" = 6,
            PCI_IRQ "HVM_SAVE_CODE(PCI_IRQ)" = 7,
            ISA_IRQ "HVM_SAVE_CODE(ISA_IRQ)" = 8,
            PCI_LINK "HVM_SAVE_CODE(PCI_LINK)" = 9,
            PIT "HVM_SAVE_CODE(PIT)" = 10,
            RTC "HVM_SAVE_CODE(RTC)" = 11,
            HPET "HVM_SAVE_CODE(HPET)" = 12,
            PMTIMER "HVM_SAVE_CODE(PMTIMER)" = 13,
            MTRR "HVM_SAVE_CODE(MTRR)" = 14,
            VIRIDIAN_DOMAIN "HVM_SAVE_CODE(VIRIDIAN_DOMAIN)" = 15,
            CPU_XSAVE "CPU_XSAVE_CODE" = 16,
            VIRIDIAN_VCPU "HVM_SAVE_CODE(VIRIDIAN_VCPU)" = 17,
            VMCE_VCPU "HVM_SAVE_CODE(VMCE_VCPU)" = 18,
            TSC_ADJUST "HVM_SAVE_CODE(TSC_ADJUST)" = 19,
            CPU_MSR "CPU_MSR_CODE" = 20,
            MAX "HVM_SAVE_CODE_MAX" = 20,
        }
        /// [`SaveHeader`].
        mod file: u32 {
            MAGIC "HVM_FILE_MAGIC" = 0x5438_1286,
            VERSION "HVM_FILE_VERSION" = 1,
        }
        /// [`HwCpu::flags`].
        mod cpu_flags: u32 {
            FPU_INITIALISED "XEN_X86_FPU_INITIALISED" = 1,
        }
    }
}
