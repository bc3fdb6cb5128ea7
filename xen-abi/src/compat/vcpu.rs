//! Operations on vCPUs.

use crate::layout::abi_header;

use zerocopy::little_endian::U64;

abi_header! {
    header "vcpu.h";
    structs {
        /// [`crate::vcpu::VcpuRunstateInfo`].
        VcpuRunstateInfo "struct vcpu_runstate_info" [44] {
            @0 state: i32,
            @4 state_entry_time: U64,
            @12 time: [U64; 4],
        }
        /// [`crate::vcpu::VcpuSetSingleshotTimer`].
        VcpuSetSingleshotTimer "struct vcpu_set_singleshot_timer" [12] {
            @0 timeout_abs_ns: U64,
            @8 flags: u32,
        }
        /// [`crate::vcpu::VcpuRegisterRunstateMemoryArea`].
        VcpuRegisterRunstateMemoryArea "struct vcpu_register_runstate_memory_area" [4]
            skip "a union of 8 bytes, of which Xen reads the pointer" {
            @0 addr: u32,
        }
        /// [`crate::vcpu::VcpuRegisterTimeMemoryArea`].
        VcpuRegisterTimeMemoryArea "struct vcpu_register_time_memory_area" [4]
            skip "a union of 8 bytes, of which Xen reads the pointer" {
            @0 addr: u32,
        }
    }
    constants {}
}
