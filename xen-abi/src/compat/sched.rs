//! Scheduling.

use crate::layout::abi_header;

use zerocopy::little_endian::U64;

abi_header! {
    header "sched.h";
    structs {
        /// [`crate::sched::SchedPoll`].
        SchedPoll "struct sched_poll" [16] {
            @0 ports: u32,
            @4 nr_ports: u32,
            @8 timeout: U64,
        }
    }
    constants {}
}
