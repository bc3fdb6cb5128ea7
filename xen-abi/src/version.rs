//! What the hypervisor says about itself (`version.h`).

use crate::layout::abi_header;

abi_header! {
    header "version.h";
    structs {
        /// [`op::EXTRAVERSION`].
        Extraversion "xen_extraversion_t" [16] {
            @0 text: [u8; 16] as "",
        }
        /// [`op::COMPILE_INFO`]; zero-terminated strings.
        CompileInfo "struct xen_compile_info" [144] {
            @0 compiler: [u8; 64],
            @64 compile_by: [u8; 16],
            @80 compile_domain: [u8; 32],
            @112 compile_date: [u8; 32],
        }
        /// [`op::CAPABILITIES`].
        CapabilitiesInfo "xen_capabilities_info_t" [1024] {
            @0 text: [u8; 1024] as "",
        }
        /// [`op::CHANGESET`].
        ChangesetInfo "xen_changeset_info_t" [64] {
            @0 text: [u8; 64] as "",
        }
        /// [`op::PLATFORM_PARAMETERS`].
        PlatformParameters "struct xen_platform_parameters" [8] {
            @0 virt_start: u64,
        }
        /// [`op::GET_FEATURES`].
        FeatureInfo "struct xen_feature_info" [8] {
            @0 submap_idx: u32,
            /// Out: bits of [`crate::features::feature`].
            @4 submap: u32,
        }
        /// [`op::COMMANDLINE`].
        Commandline "xen_commandline_t" [1024] {
            @0 text: [u8; 1024] as "",
        }
        /// [`op::BUILD_ID`] and the texts from [`op::EXTRAVERSION2`] on, without the bytes that follow.
        BuildId "struct xen_build_id" [4] {
            @0 len: u32,
        }
        /// [`op::GUEST_HANDLE`]: the domain's UUID.
        DomainHandle "xen_domain_handle_t" [16] {
            @0 bytes: [u8; 16] as "",
        }
    }
    constants {
        /// Sub-operations of `xen_version`.
        mod op: u32 {
            VERSION "XENVER_version" = 0,
            EXTRAVERSION "XENVER_extraversion" = 1,
            COMPILE_INFO "XENVER_compile_info" = 2,
            CAPABILITIES "XENVER_capabilities" = 3,
            CHANGESET "XENVER_changeset" = 4,
            PLATFORM_PARAMETERS "XENVER_platform_parameters" = 5,
            GET_FEATURES "XENVER_get_features" = 6,
            PAGESIZE "XENVER_pagesize" = 7,
            GUEST_HANDLE "XENVER_guest_handle" = 8,
            COMMANDLINE "XENVER_commandline" = 9,
            BUILD_ID "XENVER_build_id" = 10,
            EXTRAVERSION2 "XENVER_extraversion2" = 11 => "newer than Xen 4.17",
            CAPABILITIES2 "XENVER_capabilities2" = 12 => "newer than Xen 4.17",
            CHANGESET2 "XENVER_changeset2" = 13 => "newer than Xen 4.17",
            COMMANDLINE2 "XENVER_commandline2" = 14 => "newer than Xen 4.17",
        }
    }
}
