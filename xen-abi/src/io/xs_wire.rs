//! Xenstore's wire protocol and ring page (`io/xs_wire.h`).

use crate::Errno;
use crate::layout::abi_header;

abi_header! {
    header "io/xs_wire.h";
    structs {
        /// Precedes every message in both directions; `len` bytes of payload follow.
        SockMsg "struct xsd_sockmsg" [16] {
            /// One of [`kind`]. A reply repeats the request's, or is [`kind::ERROR`].
            @0 kind: u32 as "type",
            /// Chosen by the client, repeated in the reply, 0 in a watch event.
            @4 req_id: u32,
            /// Transaction, or 0.
            @8 tx_id: u32,
            /// Bytes of payload, at most [`limit::PAYLOAD_MAX`].
            @12 len: u32,
        }
        /// The page that a domain shares with the store. Indices run freely; a byte's slot is its index modulo
        /// [`limit::RING_SIZE`].
        DomainInterface "struct xenstore_domain_interface" [2076] {
            /// Requests to the store.
            @0 req: [u8; 1024],
            /// Replies and events from the store.
            @1024 rsp: [u8; 1024],
            @2048 req_cons: u32,
            @2052 req_prod: u32,
            @2056 rsp_cons: u32,
            @2060 rsp_prod: u32,
            /// Set of [`feature`] bits, written by the store.
            @2064 server_features: u32,
            /// One of [`connection`].
            @2068 connection: u32,
            /// One of [`ring_error`], written by the store.
            @2072 error: u32,
        }
    }
    constants {
        /// Message types.
        mod kind: u32 {
            CONTROL "XS_CONTROL" = 0,
            DIRECTORY "XS_DIRECTORY" = 1,
            READ "XS_READ" = 2,
            GET_PERMS "XS_GET_PERMS" = 3,
            WATCH "XS_WATCH" = 4,
            UNWATCH "XS_UNWATCH" = 5,
            TRANSACTION_START "XS_TRANSACTION_START" = 6,
            TRANSACTION_END "XS_TRANSACTION_END" = 7,
            INTRODUCE "XS_INTRODUCE" = 8,
            RELEASE "XS_RELEASE" = 9,
            GET_DOMAIN_PATH "XS_GET_DOMAIN_PATH" = 10,
            WRITE "XS_WRITE" = 11,
            MKDIR "XS_MKDIR" = 12,
            RM "XS_RM" = 13,
            SET_PERMS "XS_SET_PERMS" = 14,
            WATCH_EVENT "XS_WATCH_EVENT" = 15,
            ERROR "XS_ERROR" = 16,
            IS_DOMAIN_INTRODUCED "XS_IS_DOMAIN_INTRODUCED" = 17,
            RESUME "XS_RESUME" = 18,
            SET_TARGET "XS_SET_TARGET" = 19,
            RESET_WATCHES "XS_RESET_WATCHES" = 21,
            DIRECTORY_PART "XS_DIRECTORY_PART" = 22,
        }
        /// Sizes in bytes, paths without their closing NUL.
        mod limit: u32 {
            PAYLOAD_MAX "XENSTORE_PAYLOAD_MAX" = 4096,
            ABS_PATH_MAX "XENSTORE_ABS_PATH_MAX" = 3072,
            REL_PATH_MAX "XENSTORE_REL_PATH_MAX" = 2048,
            RING_SIZE "XENSTORE_RING_SIZE" = 1024,
        }
        /// Bits of `server_features`.
        mod feature: u32 {
            /// The domain may ask for a fresh connection.
            RECONNECTION "XENSTORE_SERVER_FEATURE_RECONNECTION" = 1,
            /// The store reports errors in `error`.
            ERROR "XENSTORE_SERVER_FEATURE_ERROR" = 2,
        }
        /// Values of `connection`.
        mod connection: u32 {
            CONNECTED "XENSTORE_CONNECTED" = 0,
            /// Asked for by the domain; the store answers by going back to 0.
            RECONNECT "XENSTORE_RECONNECT" = 1,
        }
        /// Values of `error`.
        mod ring_error: u32 {
            NONE "XENSTORE_ERROR_NONE" = 0,
            /// The event channel does not work.
            COMM "XENSTORE_ERROR_COMM" = 1,
            /// A producer is more than a ring ahead of its consumer.
            RINGIDX "XENSTORE_ERROR_RINGIDX" = 2,
            /// A payload is too long.
            PROTO "XENSTORE_ERROR_PROTO" = 3,
        }
    }
}

/// Bytes of a message's header.
pub const HEADER_LEN: usize = size_of::<SockMsg>();

/// Errors travel as text. The pairs of the header file in its order; the first stands for what it does not list.
const ERRORS: &[(Errno, &str)] = &[
    (Errno::EINVAL, "EINVAL"),
    (Errno::EACCES, "EACCES"),
    (Errno::EEXIST, "EEXIST"),
    (Errno::EISDIR, "EISDIR"),
    (Errno::ENOENT, "ENOENT"),
    (Errno::ENOMEM, "ENOMEM"),
    (Errno::ENOSPC, "ENOSPC"),
    (Errno::EIO, "EIO"),
    (Errno::ENOTEMPTY, "ENOTEMPTY"),
    (Errno::ENOSYS, "ENOSYS"),
    (Errno::EROFS, "EROFS"),
    (Errno::EBUSY, "EBUSY"),
    (Errno::EAGAIN, "EAGAIN"),
    (Errno::EISCONN, "EISCONN"),
    (Errno::E2BIG, "E2BIG"),
    (Errno::EPERM, "EPERM"),
];

/// The text of an error reply, without its closing NUL. An error that the protocol has no name for is `EINVAL`.
pub fn error_name(errno: Errno) -> &'static str {
    let found = ERRORS.iter().find(|(e, _)| *e == errno);
    found.map_or(ERRORS[0].1, |(_, name)| name)
}

/// The error that an error reply's text (without NUL) names.
pub fn error_from_name(name: &[u8]) -> Option<Errno> {
    let found = ERRORS.iter().find(|(_, n)| n.as_bytes() == name);
    found.map(|(errno, _)| *errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_name_and_unknown_ones_are_invalid() {
        for (errno, name) in ERRORS {
            assert_eq!(error_name(*errno), *name);
            assert_eq!(error_from_name(name.as_bytes()), Some(*errno));
        }
        assert_eq!(error_name(Errno::EFAULT), "EINVAL");
        assert_eq!(error_from_name(b"EFAULT"), None);
    }
}
