//! Callback registration of PV guests (`callback.h`).

use crate::layout::abi_header;

abi_header! {
    header "callback.h";
    structs {
        /// [`op::REGISTER`].
        CallbackRegister "struct callback_register" [16] {
            /// [`kind`].
            @0 kind: u16 as "type",
            /// [`flags`].
            @2 flags: u16,
            @4 _pad0: u32,
            @8 address: u64,
        }
        /// [`op::UNREGISTER`].
        CallbackUnregister "struct callback_unregister" [4] {
            /// [`kind`].
            @0 kind: u16 as "type",
            @2 _unused: u16 as "_unused",
        }
    }
    constants {
        /// Sub-operations of `callback_op`.
        mod op: u32 {
            REGISTER "CALLBACKOP_register" = 0,
            UNREGISTER "CALLBACKOP_unregister" = 1,
        }
        /// Callback types.
        mod kind: u16 {
            EVENT "CALLBACKTYPE_event" = 0,
            FAILSAFE "CALLBACKTYPE_failsafe" = 1,
            SYSCALL "CALLBACKTYPE_syscall" = 2,
            NMI "CALLBACKTYPE_nmi" = 4,
            SYSENTER "CALLBACKTYPE_sysenter" = 5,
            SYSCALL32 "CALLBACKTYPE_syscall32" = 7,
        }
        /// Callback flags.
        mod flags: u16 {
            MASK_EVENTS "CALLBACKF_mask_events" = 1,
        }
    }
}
