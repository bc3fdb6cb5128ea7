//! Hypercall numbers and what is common to calls (`xen.h`).

use crate::layout::abi_header;

abi_header! {
    header "xen.h";
    structs {
        /// One call of a `multicall`.
        MulticallEntry "struct multicall_entry" [64] {
            @0 op: u64,
            /// Out: its result.
            @8 result: u64,
            @16 args: [u64; 6],
        }
        /// A bitmap in guest memory, as the control operations pass them.
        XenctlBitmap "struct xenctl_bitmap" [16] {
            /// Guest address.
            @0 bitmap: u64,
            @8 nr_bits: u32,
            @12 _pad0: u32,
        }
    }
    constants {
        /// Hypercall numbers (RAX).
        mod nr: u32 {
            SET_TRAP_TABLE "__HYPERVISOR_set_trap_table" = 0,
            MMU_UPDATE "__HYPERVISOR_mmu_update" = 1,
            SET_GDT "__HYPERVISOR_set_gdt" = 2,
            STACK_SWITCH "__HYPERVISOR_stack_switch" = 3,
            SET_CALLBACKS "__HYPERVISOR_set_callbacks" = 4,
            FPU_TASKSWITCH "__HYPERVISOR_fpu_taskswitch" = 5,
            SCHED_OP_COMPAT "__HYPERVISOR_sched_op_compat" = 6,
            PLATFORM_OP "__HYPERVISOR_platform_op" = 7,
            SET_DEBUGREG "__HYPERVISOR_set_debugreg" = 8,
            GET_DEBUGREG "__HYPERVISOR_get_debugreg" = 9,
            UPDATE_DESCRIPTOR "__HYPERVISOR_update_descriptor" = 10,
            MEMORY_OP "__HYPERVISOR_memory_op" = 12,
            MULTICALL "__HYPERVISOR_multicall" = 13,
            UPDATE_VA_MAPPING "__HYPERVISOR_update_va_mapping" = 14,
            SET_TIMER_OP "__HYPERVISOR_set_timer_op" = 15,
            EVENT_CHANNEL_OP_COMPAT "__HYPERVISOR_event_channel_op_compat" = 16,
            XEN_VERSION "__HYPERVISOR_xen_version" = 17,
            CONSOLE_IO "__HYPERVISOR_console_io" = 18,
            PHYSDEV_OP_COMPAT "__HYPERVISOR_physdev_op_compat" = 19,
            GRANT_TABLE_OP "__HYPERVISOR_grant_table_op" = 20,
            VM_ASSIST "__HYPERVISOR_vm_assist" = 21,
            UPDATE_VA_MAPPING_OTHERDOMAIN "__HYPERVISOR_update_va_mapping_otherdomain" = 22,
            IRET "__HYPERVISOR_iret" = 23,
            VCPU_OP "__HYPERVISOR_vcpu_op" = 24,
            SET_SEGMENT_BASE "__HYPERVISOR_set_segment_base" = 25,
            MMUEXT_OP "__HYPERVISOR_mmuext_op" = 26,
            XSM_OP "__HYPERVISOR_xsm_op" = 27,
            NMI_OP "__HYPERVISOR_nmi_op" = 28,
            SCHED_OP "__HYPERVISOR_sched_op" = 29,
            CALLBACK_OP "__HYPERVISOR_callback_op" = 30,
            XENOPROF_OP "__HYPERVISOR_xenoprof_op" = 31,
            EVENT_CHANNEL_OP "__HYPERVISOR_event_channel_op" = 32,
            PHYSDEV_OP "__HYPERVISOR_physdev_op" = 33,
            HVM_OP "__HYPERVISOR_hvm_op" = 34,
            SYSCTL "__HYPERVISOR_sysctl" = 35,
            DOMCTL "__HYPERVISOR_domctl" = 36,
            KEXEC_OP "__HYPERVISOR_kexec_op" = 37,
            TMEM_OP "__HYPERVISOR_tmem_op" = 38,
            ARGO_OP "__HYPERVISOR_argo_op" = 39,
            XENPMU_OP "__HYPERVISOR_xenpmu_op" = 40,
            DM_OP "__HYPERVISOR_dm_op" = 41,
            HYPFS_OP "__HYPERVISOR_hypfs_op" = 42,
            /// Machine check operations on x86.
            ARCH_0 "__HYPERVISOR_arch_0" = 48,
            ARCH_1 "__HYPERVISOR_arch_1" = 49,
            ARCH_7 "__HYPERVISOR_arch_7" = 55,
        }
        /// Commands of `vm_assist` (first argument).
        mod vm_assist: u32 {
            ENABLE "VMASST_CMD_enable" = 0,
            DISABLE "VMASST_CMD_disable" = 1,
        }
        /// Types of `vm_assist` (second argument).
        mod vm_assist_type: u32 {
            FOUR_GB_SEGMENTS "VMASST_TYPE_4gb_segments" = 0,
            FOUR_GB_SEGMENTS_NOTIFY "VMASST_TYPE_4gb_segments_notify" = 1,
            WRITABLE_PAGETABLES "VMASST_TYPE_writable_pagetables" = 2,
            PAE_EXTENDED_CR3 "VMASST_TYPE_pae_extended_cr3" = 3,
            ARCHITECTURAL_IOPL "VMASST_TYPE_architectural_iopl" = 4,
            /// Mark runstate areas while they are being updated.
            RUNSTATE_UPDATE_FLAG "VMASST_TYPE_runstate_update_flag" = 5,
            M2P_STRICT "VMASST_TYPE_m2p_strict" = 32,
        }
        /// The interface version that the declarations stand for.
        mod interface: u32 {
            LATEST "__XEN_LATEST_INTERFACE_VERSION__" = 0x0004_0e00,
        }
    }
}
