//! Operations of the control domain on the platform (`platform.h`).

use crate::layout::abi_header;

abi_header! {
    header "platform.h";
    structs {
        /// The argument: a command and its payload, which is one of the other structures.
        PlatformOp "struct xen_platform_op" [136] {
            /// [`op`].
            @0 cmd: u32,
            /// [`interface::VERSION`].
            @4 interface_version: u32,
            @8 u: [u8; 128],
        }
        /// [`op::SETTIME32`].
        PfSettime32 "struct xenpf_settime32" [16] {
            @0 secs: u32,
            @4 nsecs: u32,
            @8 system_time: u64,
        }
        /// [`op::SETTIME64`].
        PfSettime64 "struct xenpf_settime64" [24] {
            @0 secs: u64,
            @8 nsecs: u32,
            /// Must be 0.
            @12 mbz: u32,
            @16 system_time: u64,
        }
        /// [`op::ADD_MEMTYPE`].
        PfAddMemtype "struct xenpf_add_memtype" [32] {
            @0 mfn: u64,
            @8 nr_mfns: u64,
            @16 kind: u32 as "type",
            @20 handle: u32,
            @24 reg: u32,
            @28 _pad0: u32,
        }
        /// [`op::DEL_MEMTYPE`].
        PfDelMemtype "struct xenpf_del_memtype" [8] {
            @0 handle: u32,
            @4 reg: u32,
        }
        /// [`op::READ_MEMTYPE`].
        PfReadMemtype "struct xenpf_read_memtype" [32] {
            @0 reg: u32,
            @4 _pad0: u32,
            @8 mfn: u64,
            @16 nr_mfns: u64,
            @24 kind: u32 as "type",
            @28 _pad1: u32,
        }
        /// [`op::MICROCODE_UPDATE`].
        PfMicrocodeUpdate "struct xenpf_microcode_update" [16] {
            /// Guest address.
            @0 data: u64,
            @8 length: u32,
            @12 _pad0: u32,
        }
        /// [`op::EFI_RUNTIME_CALL`], without the variants of its last part.
        PfEfiRuntimeCall "struct xenpf_efi_runtime_call" [56] {
            @0 function: u32,
            @4 misc: u32,
            @8 status: u64,
            @16 u: [u8; 40],
        }
        /// [`op::FIRMWARE_INFO`], without the variants of its last part.
        PfFirmwareInfo "struct xenpf_firmware_info" [40] {
            /// [`firmware`].
            @0 kind: u32 as "type",
            @4 index: u32,
            @8 u: [u8; 32],
        }
        /// [`op::ENTER_ACPI_SLEEP`].
        PfEnterAcpiSleep "struct xenpf_enter_acpi_sleep" [12] {
            @0 val_a: u16,
            @2 val_b: u16,
            @4 sleep_state: u32,
            @8 flags: u32,
        }
        /// [`op::GETIDLETIME`].
        PfGetidletime "struct xenpf_getidletime" [32] {
            /// Guest address.
            @0 cpumap_bitmap: u64,
            @8 cpumap_nr_cpus: u32,
            @12 _pad0: u32,
            /// Guest address.
            @16 idletime: u64,
            @24 now: u64,
        }
        /// [`op::SET_PROCESSOR_PMINFO`], without the variants of its last part.
        PfSetProcessorPminfo "struct xenpf_set_processor_pminfo" [112] {
            /// ACPI processor id.
            @0 id: u32,
            /// [`pm`].
            @4 kind: u32 as "type",
            @8 u: [u8; 104],
        }
        /// [`op::GET_CPUINFO`].
        PfPcpuinfo "struct xenpf_pcpuinfo" [20] {
            @0 xen_cpuid: u32,
            /// Out: highest number present.
            @4 max_present: u32,
            /// Out: [`pcpu`].
            @8 flags: u32,
            /// Out.
            @12 apic_id: u32,
            /// Out.
            @16 acpi_id: u32,
        }
        /// [`op::GET_CPU_VERSION`].
        PfPcpuVersion "struct xenpf_pcpu_version" [32] {
            @0 xen_cpuid: u32,
            @4 max_present: u32,
            @8 vendor_id: [u8; 12],
            @20 family: u32,
            @24 model: u32,
            @28 stepping: u32,
        }
        /// [`op::CPU_ONLINE`], [`op::CPU_OFFLINE`].
        PfCpuOl "struct xenpf_cpu_ol" [4] {
            @0 cpuid: u32,
        }
        /// [`op::CPU_HOTADD`].
        PfCpuHotadd "struct xenpf_cpu_hotadd" [12] {
            @0 apic_id: u32,
            @4 acpi_id: u32,
            @8 pxm: u32,
        }
        /// [`op::MEM_HOTADD`].
        PfMemHotadd "struct xenpf_mem_hotadd" [24] {
            @0 spfn: u64,
            @8 epfn: u64,
            @16 pxm: u32,
            @20 flags: u32,
        }
        /// [`op::CORE_PARKING`].
        PfCoreParking "struct xenpf_core_parking" [8] {
            @0 kind: u32 as "type",
            @4 idle_nums: u32,
        }
        /// [`op::RESOURCE_OP`].
        PfResourceOp "struct xenpf_resource_op" [16] {
            @0 nr_entries: u32,
            @4 cpu: u32,
            /// Guest address.
            @8 entries: u64,
        }
        /// [`op::GET_SYMBOL`].
        PfSymdata "struct xenpf_symdata" [32] {
            @0 namelen: u32,
            @4 symnum: u32,
            /// Guest address.
            @8 name: u64,
            @16 address: u64,
            @24 kind: u8 as "type",
            @25 _pad0: [u8; 7],
        }
        /// The screen, as the boot loader left it; the result of [`op::GET_DOM0_CONSOLE`].
        Dom0VgaConsoleInfo "struct dom0_vga_console_info" [40] {
            /// [`video_type`].
            @0 video_type: u8,
            @1 _pad0: [u8; 3],
            @4 u: VesaLfb as "u.vesa_lfb",
        }
        /// Linear frame buffer.
        VesaLfb "__typeof__(((struct dom0_vga_console_info *)0)->u.vesa_lfb)" [36] {
            @0 width: u16,
            @2 height: u16,
            @4 bytes_per_line: u16,
            @6 bits_per_pixel: u16,
            @8 lfb_base: u32,
            /// In units of 64 KiB.
            @12 lfb_size: u32,
            @16 red_pos: u8,
            @17 red_size: u8,
            @18 green_pos: u8,
            @19 green_size: u8,
            @20 blue_pos: u8,
            @21 blue_size: u8,
            @22 rsvd_pos: u8,
            @23 rsvd_size: u8,
            @24 gbl_caps: u32,
            @28 mode_attrs: u16,
            @30 _pad: u16 as "pad",
            @32 ext_lfb_base: u32,
        }
    }
    constants {
        /// Sub-operations of `platform_op`.
        mod op: u32 {
            SETTIME32 "XENPF_settime32" = 17,
            ADD_MEMTYPE "XENPF_add_memtype" = 31,
            DEL_MEMTYPE "XENPF_del_memtype" = 32,
            READ_MEMTYPE "XENPF_read_memtype" = 33,
            MICROCODE_UPDATE "XENPF_microcode_update" = 35,
            PLATFORM_QUIRK "XENPF_platform_quirk" = 39,
            GET_CPU_VERSION "XENPF_get_cpu_version" = 48,
            EFI_RUNTIME_CALL "XENPF_efi_runtime_call" = 49,
            FIRMWARE_INFO "XENPF_firmware_info" = 50,
            ENTER_ACPI_SLEEP "XENPF_enter_acpi_sleep" = 51,
            CHANGE_FREQ "XENPF_change_freq" = 52,
            GETIDLETIME "XENPF_getidletime" = 53,
            SET_PROCESSOR_PMINFO "XENPF_set_processor_pminfo" = 54,
            GET_CPUINFO "XENPF_get_cpuinfo" = 55,
            CPU_ONLINE "XENPF_cpu_online" = 56,
            CPU_OFFLINE "XENPF_cpu_offline" = 57,
            CPU_HOTADD "XENPF_cpu_hotadd" = 58,
            MEM_HOTADD "XENPF_mem_hotadd" = 59,
            CORE_PARKING "XENPF_core_parking" = 60,
            RESOURCE_OP "XENPF_resource_op" = 61,
            SETTIME64 "XENPF_settime64" = 62,
            GET_SYMBOL "XENPF_get_symbol" = 63,
            GET_DOM0_CONSOLE "XENPF_get_dom0_console" = 64 => "newer than the reference headers (Xen 4.17)",
            GET_UCODE_REVISION "XENPF_get_ucode_revision" = 65 => "newer than the reference headers (Xen 4.17)",
            UCODE_UPDATE2 "XENPF_ucode_update2" = 66 => "newer than the reference headers (Xen 4.17)",
        }
        /// Version of the argument.
        mod interface: u32 {
            VERSION "XENPF_INTERFACE_VERSION" = 0x0300_0001,
        }
        /// Types of [`PfFirmwareInfo`] and the indexes of the EFI type.
        mod firmware: u32 {
            DISK_INFO "XEN_FW_DISK_INFO" = 1,
            DISK_MBR_SIGNATURE "XEN_FW_DISK_MBR_SIGNATURE" = 2,
            VBEDDC_INFO "XEN_FW_VBEDDC_INFO" = 3,
            EFI_INFO "XEN_FW_EFI_INFO" = 4,
            KBD_SHIFT_FLAGS "XEN_FW_KBD_SHIFT_FLAGS" = 5,
            EFI_VERSION "XEN_FW_EFI_VERSION" = 0,
            EFI_CONFIG_TABLE "XEN_FW_EFI_CONFIG_TABLE" = 1,
            EFI_VENDOR "XEN_FW_EFI_VENDOR" = 2,
            EFI_MEM_INFO "XEN_FW_EFI_MEM_INFO" = 3,
            EFI_RT_VERSION "XEN_FW_EFI_RT_VERSION" = 4,
            EFI_PCI_ROM "XEN_FW_EFI_PCI_ROM" = 5,
        }
        /// Types of [`PfSetProcessorPminfo`].
        mod pm: u32 {
            CX "XEN_PM_CX" = 0,
            PX "XEN_PM_PX" = 1,
            TX "XEN_PM_TX" = 2,
            PDC "XEN_PM_PDC" = 3,
        }
        /// Flags of [`PfPcpuinfo`].
        mod pcpu: u32 {
            ONLINE "XEN_PCPU_FLAGS_ONLINE" = 1,
            INVALID "XEN_PCPU_FLAGS_INVALID" = 2,
        }
        /// Types of [`Dom0VgaConsoleInfo`].
        mod video_type: u8 {
            TEXT_MODE_3 "XEN_VGATYPE_TEXT_MODE_3" = 0x03,
            VESA_LFB "XEN_VGATYPE_VESA_LFB" = 0x23,
            EFI_LFB "XEN_VGATYPE_EFI_LFB" = 0x70,
        }
    }
}
