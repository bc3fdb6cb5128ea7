//! The hypervisor's file system (`hypfs.h`).

use crate::layout::abi_header;

abi_header! {
    header "hypfs.h";
    structs {
        /// Head of what [`op::READ`] gives; the contents follow.
        Direntry "struct xen_hypfs_direntry" [12] {
            /// Of [`kind`].
            @0 kind: u8 as "type",
            /// Of [`encoding`].
            @1 encoding: u8,
            @2 pad: u16,
            /// Bytes of contents.
            @4 content_len: u32,
            /// Most bytes that may be written; 0 for read-only entries.
            @8 max_write_len: u32,
        }
        /// An entry of a directory's contents; its name follows [`NAME_OFFSET`] bytes after its start, with its NUL.
        Dirlistentry "struct xen_hypfs_dirlistentry" [16] {
            @0 entry: [u8; 12] as "e",
            /// Bytes to the next entry; 0 for the last.
            @12 off_next: u16,
            @14 _name: [u8; 2],
        }
    }
    constants {
        /// Commands of `hypfs_op` (first argument).
        mod op: u32 {
            GET_VERSION "XEN_HYPFS_OP_get_version" = 0,
            READ "XEN_HYPFS_OP_read" = 1,
            WRITE_CONTENTS "XEN_HYPFS_OP_write_contents" = 2,
        }
        /// What an entry is.
        mod kind: u8 {
            DIR "XEN_HYPFS_TYPE_DIR" = 0,
            BLOB "XEN_HYPFS_TYPE_BLOB" = 1,
            /// With its NUL, if it is plain.
            STRING "XEN_HYPFS_TYPE_STRING" = 2,
            UINT "XEN_HYPFS_TYPE_UINT" = 3,
            INT "XEN_HYPFS_TYPE_INT" = 4,
            BOOL "XEN_HYPFS_TYPE_BOOL" = 5,
        }
        /// How contents are stored.
        mod encoding: u8 {
            PLAIN "XEN_HYPFS_ENC_PLAIN" = 0,
            GZIP "XEN_HYPFS_ENC_GZIP" = 1,
        }
        /// Limits.
        mod limit: u32 {
            /// The interface's version.
            VERSION "XEN_HYPFS_VERSION" = 1,
            /// Bytes of a path, with its NUL.
            MAX_PATHLEN "XEN_HYPFS_MAX_PATHLEN" = 1024,
        }
    }
}

/// Where the name stands in a [`Dirlistentry`].
pub const NAME_OFFSET: usize = 14;
