//! The hypervisor's console (`console_io`, `xen.h`) and the guest console ring (`io/console.h`).

use crate::layout::abi_header;

abi_header! {
    header "io/console.h";
    structs {
        /// A guest's console page.
        XenconsInterface "struct xencons_interface" [3088] {
            /// Bytes to the guest.
            @0 input: [u8; 1024] as "in",
            /// Bytes from the guest.
            @1024 output: [u8; 2048] as "out",
            @3072 in_cons: u32,
            @3076 in_prod: u32,
            @3080 out_cons: u32,
            @3084 out_prod: u32,
        }
    }
    constants {
        /// Commands of `console_io` (first argument).
        mod io: u32 {
            WRITE "CONSOLEIO_write" = 0,
            READ "CONSOLEIO_read" = 1,
        }
        /// Debug console of hardware-assisted guests.
        mod debug: u16 {
            /// Bytes written to this port are console output.
            IOPORT "XEN_HVM_DEBUGCONS_IOPORT" = 0xe9,
        }
    }
}
