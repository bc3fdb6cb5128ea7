//! Operations on vCPUs (`vcpu.h`).

use crate::layout::abi_header;

abi_header! {
    header "vcpu.h";
    structs {
        /// Where a vCPU's time went: [`op::GET_RUNSTATE_INFO`] and the registered area.
        VcpuRunstateInfo "struct vcpu_runstate_info" [48] {
            /// [`runstate`].
            @0 state: i32,
            @4 _pad0: u32,
            /// Nanoseconds when the state was entered; [`runstate_flag::UPDATE`].
            @8 state_entry_time: u64,
            /// Nanoseconds spent in each state.
            @16 time: [u64; 4],
        }
        /// [`op::REGISTER_RUNSTATE_MEMORY_AREA`].
        VcpuRegisterRunstateMemoryArea "struct vcpu_register_runstate_memory_area" [8] {
            /// Guest linear address.
            @0 addr: u64,
        }
        /// [`op::SET_PERIODIC_TIMER`].
        VcpuSetPeriodicTimer "struct vcpu_set_periodic_timer" [8] {
            @0 period_ns: u64,
        }
        /// [`op::SET_SINGLESHOT_TIMER`].
        VcpuSetSingleshotTimer "struct vcpu_set_singleshot_timer" [16] {
            /// System time.
            @0 timeout_abs_ns: u64,
            /// [`singleshot`].
            @8 flags: u32,
            @12 _pad0: u32,
        }
        /// [`op::REGISTER_VCPU_INFO`].
        VcpuRegisterVcpuInfo "struct vcpu_register_vcpu_info" [16] {
            /// Guest frame.
            @0 mfn: u64,
            /// Bytes into the frame.
            @8 offset: u32,
            @12 _rsvd: u32 as "rsvd",
        }
        /// [`op::GET_PHYSID`].
        VcpuGetPhysid "struct vcpu_get_physid" [8] {
            /// APIC id in the low half, ACPI id in the high half.
            @0 phys_id: u64,
        }
        /// [`op::REGISTER_VCPU_TIME_MEMORY_AREA`].
        VcpuRegisterTimeMemoryArea "struct vcpu_register_time_memory_area" [8] {
            /// Guest linear address.
            @0 addr: u64,
        }
    }
    constants {
        /// Sub-operations of `vcpu_op`.
        mod op: u32 {
            INITIALISE "VCPUOP_initialise" = 0,
            UP "VCPUOP_up" = 1,
            DOWN "VCPUOP_down" = 2,
            IS_UP "VCPUOP_is_up" = 3,
            GET_RUNSTATE_INFO "VCPUOP_get_runstate_info" = 4,
            REGISTER_RUNSTATE_MEMORY_AREA "VCPUOP_register_runstate_memory_area" = 5,
            SET_PERIODIC_TIMER "VCPUOP_set_periodic_timer" = 6,
            STOP_PERIODIC_TIMER "VCPUOP_stop_periodic_timer" = 7,
            SET_SINGLESHOT_TIMER "VCPUOP_set_singleshot_timer" = 8,
            STOP_SINGLESHOT_TIMER "VCPUOP_stop_singleshot_timer" = 9,
            REGISTER_VCPU_INFO "VCPUOP_register_vcpu_info" = 10,
            SEND_NMI "VCPUOP_send_nmi" = 11,
            GET_PHYSID "VCPUOP_get_physid" = 12,
            REGISTER_VCPU_TIME_MEMORY_AREA "VCPUOP_register_vcpu_time_memory_area" = 13,
            REGISTER_RUNSTATE_PHYS_AREA "VCPUOP_register_runstate_phys_area" = 14 => "newer than the reference headers (Xen 4.17)",
            REGISTER_VCPU_TIME_PHYS_AREA "VCPUOP_register_vcpu_time_phys_area" = 15 => "newer than the reference headers (Xen 4.17)",
        }
        /// Values of [`VcpuRunstateInfo::state`].
        mod runstate: i32 {
            RUNNING "RUNSTATE_running" = 0,
            RUNNABLE "RUNSTATE_runnable" = 1,
            BLOCKED "RUNSTATE_blocked" = 2,
            OFFLINE "RUNSTATE_offline" = 3,
        }
        /// Bits of [`VcpuRunstateInfo::state_entry_time`].
        mod runstate_flag: u64 {
            /// The area is being written.
            UPDATE "XEN_RUNSTATE_UPDATE" = 1 << 63,
        }
        /// Flags of [`VcpuSetSingleshotTimer`].
        mod singleshot: u32 {
            FUTURE "VCPU_SSHOTTMR_future" = 1,
        }
    }
}
