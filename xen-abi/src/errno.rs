//! Error numbers that hypercalls return, negated (`errno.h`).

/// Declares [`Errno`] and the list of its values for the check against the C header.
macro_rules! errnos {
    ($($name:ident = $value:literal $(=> $skip:literal)?,)*) => {
        /// An error number. The discriminant is the positive value; callers see it negated in RAX.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(missing_docs, reason = "the names are POSIX's")]
        pub enum Errno {
            $($name = $value,)*
        }

        /// What this module declares.
        pub const HEADER: crate::layout::Header = crate::layout::Header {
            file: "errno.h",
            structs: &[],
            constants: &[$(crate::layout::Constant {
                name: stringify!($name),
                c_name: concat!("XEN_", stringify!($name)),
                value: $value,
                skip: crate::layout::at_most_one(&[$($skip)?]),
            },)*],
        };
    };
}

errnos! {
    EPERM = 1,
    ENOENT = 2,
    ESRCH = 3,
    EIO = 5,
    ENXIO = 6,
    E2BIG = 7,
    ENOEXEC = 8,
    EBADF = 9,
    ECHILD = 10,
    EAGAIN = 11,
    ENOMEM = 12,
    EACCES = 13,
    EFAULT = 14,
    EBUSY = 16,
    EEXIST = 17,
    EXDEV = 18,
    ENODEV = 19,
    ENOTDIR = 20,
    EISDIR = 21,
    EINVAL = 22,
    ENFILE = 23,
    EMFILE = 24,
    ENOSPC = 28,
    EROFS = 30,
    EDOM = 33,
    ERANGE = 34,
    EDEADLK = 35,
    ENAMETOOLONG = 36,
    ENOLCK = 37,
    ENOSYS = 38,
    ENOTEMPTY = 39,
    ENODATA = 61,
    ETIME = 62,
    EBADMSG = 74,
    EOVERFLOW = 75,
    EILSEQ = 84,
    ERESTART = 85 => "internal to the hypervisor",
    ENOTSOCK = 88,
    EMSGSIZE = 90,
    EOPNOTSUPP = 95,
    EADDRINUSE = 98,
    EADDRNOTAVAIL = 99,
    ENOBUFS = 105,
    EISCONN = 106,
    ENOTCONN = 107,
    ETIMEDOUT = 110,
    ECONNREFUSED = 111,
}

impl Errno {
    /// The value a hypercall returns for this error.
    pub const fn to_ret(self) -> i64 {
        -(self as i32 as i64)
    }
}
