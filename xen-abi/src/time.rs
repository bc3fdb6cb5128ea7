//! Time as guests read it from shared memory (`xen.h`).

use crate::layout::abi_header;

abi_header! {
    header "xen.h";
    structs {
        /// A vCPU's clock parameters: `ns = system_time + (((tsc - tsc_timestamp) << tsc_shift) * tsc_to_system_mul >> 32)`,
        /// where a negative shift goes right. Consistent while `version` is even and unchanged.
        VcpuTimeInfo "struct vcpu_time_info" [32] {
            /// Odd while the other fields are being written.
            @0 version: u32,
            @4 _pad0: u32 as "pad0",
            /// Guest TSC at the snapshot.
            @8 tsc_timestamp: u64,
            /// Nanoseconds at the snapshot.
            @16 system_time: u64,
            /// Nanoseconds per (shifted) tick, 32.32 fixed point. Never 0: guests divide by it.
            @24 tsc_to_system_mul: u32,
            @28 tsc_shift: i8,
            /// [`pvclock_flags`].
            @29 flags: u8,
            @30 _pad1: [u8; 2] as "pad1",
        }
    }
    constants {
        /// Bits of [`VcpuTimeInfo::flags`].
        mod pvclock_flags: u8 {
            /// The clocks of all vCPUs agree.
            TSC_STABLE "XEN_PVCLOCK_TSC_STABLE_BIT" = 1,
            GUEST_STOPPED "XEN_PVCLOCK_GUEST_STOPPED" = 2,
        }
    }
}
