//! CPUID leaves by which guests find the hypervisor (`arch-x86/cpuid.h`), and its MSR.

use crate::layout::abi_header;

abi_header! {
    header "arch-x86/cpuid.h";
    structs {}
    constants {
        /// Leaf numbers.
        mod leaf: u32 {
            /// EAX: last leaf, EBX ECX EDX: signature.
            FIRST "XEN_CPUID_FIRST_LEAF" = 0x4000_0000,
            /// EAX: version, major << 16 | minor.
            VERSION "XEN_CPUID_LEAF(1)" = 0x4000_0001,
            /// EAX: number of hypercall pages, EBX: their MSR, ECX EDX: PV features.
            HYPERCALL "XEN_CPUID_LEAF(2)" = 0x4000_0002,
            /// Time, three sub-leaves.
            TIME "XEN_CPUID_LEAF(3)" = 0x4000_0003,
            /// EAX: [`super::hvm`], EBX: vCPU, ECX: domain.
            HVM "XEN_CPUID_LEAF(4)" = 0x4000_0004,
            /// PV: EBX 7:0 width of machine addresses.
            PV "XEN_CPUID_LEAF(5)" = 0x4000_0005,
            /// Number of leaves after the first.
            MAX_NUM_LEAVES "XEN_CPUID_MAX_NUM_LEAVES" = 5,
        }
        /// "XenVMMXenVMM".
        mod signature: u32 {
            EBX "XEN_CPUID_SIGNATURE_EBX" = 0x566e_6558,
            ECX "XEN_CPUID_SIGNATURE_ECX" = 0x6558_4d4d,
            EDX "XEN_CPUID_SIGNATURE_EDX" = 0x4d4d_566e,
        }
        /// EAX of leaf 4.
        mod hvm: u32 {
            /// Local APIC registers are virtualized by hardware.
            APIC_ACCESS_VIRT "XEN_HVM_CPUID_APIC_ACCESS_VIRT" = 1 << 0,
            /// x2APIC registers are virtualized by hardware.
            X2APIC_VIRT "XEN_HVM_CPUID_X2APIC_VIRT" = 1 << 1,
            /// Granted and foreign pages may be used for DMA.
            IOMMU_MAPPINGS "XEN_HVM_CPUID_IOMMU_MAPPINGS" = 1 << 2,
            /// EBX is valid.
            VCPU_ID_PRESENT "XEN_HVM_CPUID_VCPU_ID_PRESENT" = 1 << 3,
            /// ECX is valid.
            DOMID_PRESENT "XEN_HVM_CPUID_DOMID_PRESENT" = 1 << 4,
            /// MSI addresses carry 15 destination bits.
            EXT_DEST_ID "XEN_HVM_CPUID_EXT_DEST_ID" = 1 << 5,
            /// Per-vCPU upcall vectors.
            UPCALL_VECTOR "XEN_HVM_CPUID_UPCALL_VECTOR" = 1 << 6,
        }
        /// MSR numbers.
        mod msr: u32 {
            /// Write: bits 63:12 frame to fill with call stubs, 11:0 which page.
            HYPERCALL "MSR_XEN_HYPERCALL" = 0x4000_0000 => "the headers describe it in leaf 2 without a name",
        }
    }
}
