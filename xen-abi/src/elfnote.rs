//! ELF notes by which a kernel describes itself (`elfnote.h`); the note name is "Xen".

use crate::layout::abi_header;

abi_header! {
    header "elfnote.h";
    structs {}
    constants {
        /// Note types.
        mod kind: u32 {
            INFO "XEN_ELFNOTE_INFO" = 0,
            ENTRY "XEN_ELFNOTE_ENTRY" = 1,
            HYPERCALL_PAGE "XEN_ELFNOTE_HYPERCALL_PAGE" = 2,
            VIRT_BASE "XEN_ELFNOTE_VIRT_BASE" = 3,
            PADDR_OFFSET "XEN_ELFNOTE_PADDR_OFFSET" = 4,
            XEN_VERSION "XEN_ELFNOTE_XEN_VERSION" = 5,
            GUEST_OS "XEN_ELFNOTE_GUEST_OS" = 6,
            GUEST_VERSION "XEN_ELFNOTE_GUEST_VERSION" = 7,
            LOADER "XEN_ELFNOTE_LOADER" = 8,
            PAE_MODE "XEN_ELFNOTE_PAE_MODE" = 9,
            FEATURES "XEN_ELFNOTE_FEATURES" = 10,
            BSD_SYMTAB "XEN_ELFNOTE_BSD_SYMTAB" = 11,
            HV_START_LOW "XEN_ELFNOTE_HV_START_LOW" = 12,
            L1_MFN_VALID "XEN_ELFNOTE_L1_MFN_VALID" = 13,
            SUSPEND_CANCEL "XEN_ELFNOTE_SUSPEND_CANCEL" = 14,
            INIT_P2M "XEN_ELFNOTE_INIT_P2M" = 15,
            MOD_START_PFN "XEN_ELFNOTE_MOD_START_PFN" = 16,
            /// Bits of [`crate::features::feature`].
            SUPPORTED_FEATURES "XEN_ELFNOTE_SUPPORTED_FEATURES" = 17,
            /// Physical 32-bit entry point: the PVH start. 4 or 8 bytes.
            PHYS32_ENTRY "XEN_ELFNOTE_PHYS32_ENTRY" = 18,
            /// Where the kernel may be moved: alignment, minimum, maximum (each 4 bytes, later ones optional).
            PHYS32_RELOC "XEN_ELFNOTE_PHYS32_RELOC" = 19 => "newer than the reference headers (Xen 4.17)",
        }
        /// Notes in a dump of a domain.
        mod dumpcore: u32 {
            NONE "XEN_ELFNOTE_DUMPCORE_NONE" = 0x200_0000,
            HEADER "XEN_ELFNOTE_DUMPCORE_HEADER" = 0x200_0001,
            XEN_VERSION "XEN_ELFNOTE_DUMPCORE_XEN_VERSION" = 0x200_0002,
            FORMAT_VERSION "XEN_ELFNOTE_DUMPCORE_FORMAT_VERSION" = 0x200_0003,
        }
    }
}
