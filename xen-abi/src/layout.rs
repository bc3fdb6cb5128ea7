//! The macro that declares a public header's structures and constants together with their C names, sizes and offsets.
//!
//! One invocation per header file. Size and every offset are checked at compile time against what the declaration
//! states; the statements themselves are compared with Xen's public headers by `ci/abi-check`, which finds every
//! declaration through [`crate::HEADERS`], so none can be left out.

/// One public header: what this crate declares from it.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Path below Xen's public include directory.
    pub file: &'static str,
    /// Structures in order of declaration.
    pub structs: &'static [StructLayout],
    /// Constants in order of declaration.
    pub constants: &'static [Constant],
}

/// Layout of one structure.
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// Rust name.
    pub name: &'static str,
    /// C type, e.g. `struct evtchn_send`.
    pub c_type: &'static str,
    /// Bytes.
    pub size: usize,
    /// Fields in order, explicit padding included.
    pub fields: &'static [FieldLayout],
    /// Why the headers cannot confirm this structure, if they cannot.
    pub skip: Option<&'static str>,
}

/// Layout of one field.
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    /// Rust name; a leading underscore marks padding that C has no name for.
    pub name: &'static str,
    /// C member designator where it differs from the Rust name; empty where C has no member.
    pub c_override: Option<&'static str>,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

impl FieldLayout {
    /// C member designator; `None` for padding.
    pub fn c_name(&self) -> Option<&'static str> {
        match self.c_override {
            Some("") => None,
            Some(name) => Some(name),
            None if self.name.starts_with('_') => None,
            None => Some(self.name),
        }
    }
}

/// One constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Rust name with its module.
    pub name: &'static str,
    /// C macro.
    pub c_name: &'static str,
    /// Value, sign- or zero-extended from its own type.
    pub value: i128,
    /// Why the headers cannot confirm this constant, if they cannot.
    pub skip: Option<&'static str>,
}

/// The element of a list that has at most one.
pub const fn at_most_one(list: &'static [&'static str]) -> Option<&'static str> {
    match list {
        [] => None,
        [only] => Some(*only),
        _ => panic!("more than one"),
    }
}

/// Declares what a header contains:
///
/// ```text
/// abi_header! {
///     header "sched.h";
///     structs {
///         /// Doc.
///         SchedPoll "struct sched_poll" [24] {
///             @0 ports: u64,
///             @8 nr_ports: u32,
///             @12 _pad0: u32,
///             @16 timeout: u64,
///         }
///     }
///     constants {
///         /// Doc.
///         mod op: u32 {
///             POLL "SCHEDOP_poll" = 3,
///         }
///     }
/// }
/// ```
///
/// `as "a.b"` after a field's type names another C member; `skip "reason"` after a size and `=> "reason"` after a value
/// exempt what the reference headers do not have.
macro_rules! abi_header {
    (
        header $header:literal;
        structs { $(
            $(#[$smeta:meta])*
            $sname:ident $scname:literal [$size:literal] $(skip $sskip:literal)? {
                $( $(#[$fmeta:meta])* @$off:literal $fname:ident : $fty:ty $(as $fcname:literal)? , )*
            }
        )* }
        constants { $(
            $(#[$mmeta:meta])*
            mod $mname:ident : $mty:ty { $(
                $(#[$cmeta:meta])*
                $cname:ident $ccname:literal = $value:expr $(=> $cskip:literal)? ,
            )* }
        )* }
    ) => {
        $(
            $(#[$smeta])*
            #[doc = concat!("\n\nC: `", $scname, "`, ", stringify!($size), " bytes.")]
            #[derive(
                Clone,
                Copy,
                Debug,
                PartialEq,
                Eq,
                zerocopy::FromBytes,
                zerocopy::IntoBytes,
                zerocopy::Immutable,
                zerocopy::KnownLayout,
            )]
            #[repr(C)]
            pub struct $sname {
                $(
                    $(#[$fmeta])*
                    #[doc = concat!("\n\nOffset ", stringify!($off), ".")]
                    pub $fname: $fty,
                )*
            }

            impl Default for $sname {
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }

            const _: () = {
                assert!(size_of::<$sname>() == $size, concat!("size of ", stringify!($sname)));
                $(assert!(
                    core::mem::offset_of!($sname, $fname) == $off,
                    concat!("offset of ", stringify!($sname), "::", stringify!($fname))
                );)*
            };
        )*

        $(
            $(#[$mmeta])*
            pub mod $mname {
                $(
                    $(#[$cmeta])*
                    #[doc = concat!("\n\nC: `", $ccname, "`.")]
                    pub const $cname: $mty = $value;
                )*
            }
        )*

        /// What this module declares.
        pub const HEADER: $crate::layout::Header = $crate::layout::Header {
            file: $header,
            structs: &[$($crate::layout::StructLayout {
                name: stringify!($sname),
                c_type: $scname,
                size: $size,
                fields: &[$($crate::layout::FieldLayout {
                    name: stringify!($fname),
                    c_override: $crate::layout::at_most_one(&[$($fcname)?]),
                    offset: $off,
                    size: size_of::<$fty>(),
                }),*],
                skip: $crate::layout::at_most_one(&[$($sskip)?]),
            }),*],
            constants: &[$($($crate::layout::Constant {
                name: concat!(stringify!($mname), "::", stringify!($cname)),
                c_name: $ccname,
                value: $mname::$cname as i128,
                skip: $crate::layout::at_most_one(&[$($cskip)?]),
            },)*)*],
        };
    };
}
pub(crate) use abi_header;
