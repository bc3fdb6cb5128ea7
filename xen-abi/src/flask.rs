//! The security module's own hypercall (`xsm/flask_op.h`).

use crate::layout::abi_header;

abi_header! {
    header "xsm/flask_op.h";
    structs {
        /// The argument of every operation.
        FlaskOp "struct xen_flask_op" [40] {
            /// [`op`].
            @0 cmd: u32,
            /// [`interface::VERSION`].
            @4 interface_version: u32,
            /// The operation's own structure.
            @8 u: [u8; 32] as "u",
        }
        /// [`op::SID_TO_CONTEXT`], [`op::CONTEXT_TO_SID`].
        SidContext "struct xen_flask_sid_context" [16] {
            @0 sid: u32,
            /// In: bytes at `context`. Out: length of the text.
            @4 size: u32,
            /// Guest address of the text.
            @8 context: u64,
        }
    }
    constants {
        /// The one version.
        mod interface: u32 {
            VERSION "XEN_FLASK_INTERFACE_VERSION" = 1,
        }
        /// Operations.
        mod op: u32 {
            LOAD "FLASK_LOAD" = 1,
            GETENFORCE "FLASK_GETENFORCE" = 2,
            SETENFORCE "FLASK_SETENFORCE" = 3,
            CONTEXT_TO_SID "FLASK_CONTEXT_TO_SID" = 4,
            SID_TO_CONTEXT "FLASK_SID_TO_CONTEXT" = 5,
        }
    }
}
