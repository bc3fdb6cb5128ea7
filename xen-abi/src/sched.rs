//! Scheduling and shutdown (`sched.h`).

use crate::DomId;
use crate::layout::abi_header;

abi_header! {
    header "sched.h";
    structs {
        /// [`op::SHUTDOWN`], [`op::SHUTDOWN_CODE`].
        SchedShutdown "struct sched_shutdown" [4] {
            /// [`shutdown`].
            @0 reason: u32,
        }
        /// [`op::POLL`].
        SchedPoll "struct sched_poll" [24] {
            /// Guest address of port numbers (u32).
            @0 ports: u64,
            @8 nr_ports: u32,
            @12 _pad0: u32,
            /// Absolute, nanoseconds; 0: none.
            @16 timeout: u64,
        }
        /// [`op::REMOTE_SHUTDOWN`].
        SchedRemoteShutdown "struct sched_remote_shutdown" [8] {
            @0 domain_id: DomId,
            @2 _pad0: u16,
            /// [`shutdown`].
            @4 reason: u32,
        }
        /// [`op::WATCHDOG`].
        SchedWatchdog "struct sched_watchdog" [8] {
            /// 0: a new one.
            @0 id: u32,
            /// Seconds; 0 stops it.
            @4 timeout: u32,
        }
        /// [`op::PIN_OVERRIDE`].
        SchedPinOverride "struct sched_pin_override" [4] {
            @0 pcpu: i32,
        }
    }
    constants {
        /// Sub-operations of `sched_op`.
        mod op: u32 {
            YIELD "SCHEDOP_yield" = 0,
            BLOCK "SCHEDOP_block" = 1,
            SHUTDOWN "SCHEDOP_shutdown" = 2,
            POLL "SCHEDOP_poll" = 3,
            REMOTE_SHUTDOWN "SCHEDOP_remote_shutdown" = 4,
            SHUTDOWN_CODE "SCHEDOP_shutdown_code" = 5,
            WATCHDOG "SCHEDOP_watchdog" = 6,
            PIN_OVERRIDE "SCHEDOP_pin_override" = 7,
        }
        /// Reasons to shut down.
        mod shutdown: u32 {
            POWEROFF "SHUTDOWN_poweroff" = 0,
            REBOOT "SHUTDOWN_reboot" = 1,
            SUSPEND "SHUTDOWN_suspend" = 2,
            CRASH "SHUTDOWN_crash" = 3,
            WATCHDOG "SHUTDOWN_watchdog" = 4,
            SOFT_RESET "SHUTDOWN_soft_reset" = 5,
            MAX "SHUTDOWN_MAX" = 5,
        }
    }
}
