//! Why a dom0 kernel was refused. Each [`core::fmt::Display`] text is one line that says what is wrong and what to do.

use core::fmt;

use x86_model::Hpa;

use super::KernelError;

/// Why dom0 cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dom0Error {
    /// The kernel's file.
    Kernel(KernelError),
    /// The kernel says of itself that it cannot be dom0.
    NotDom0,
    /// There is no free RAM where the kernel can go.
    NoRoom {
        /// First byte of the place the kernel was linked for.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// It said that it may be moved.
        movable: bool,
    },
    /// No free RAM below 4 GiB for that many bytes of initial RAM disk.
    NoRoomForInitrd(u64),
    /// No free RAM below 1 GiB for the start info, or below 4 GiB for ACPI tables.
    NoRoomForInfo,
    /// The machine refused a write to this address.
    WriteRefused(Hpa),
}

impl fmt::Display for Dom0Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(KernelError::NotAKernel) => f.write_str(
                "dom0 kernel: the first module is neither a Linux bzImage nor an ELF file: name a kernel in the boot entry's first `module2` line",
            ),
            Self::Kernel(error) => write!(f, "dom0 kernel: {error}"),
            Self::NotDom0 => f.write_str(
                "dom0 kernel: it is built for guests only (no CONFIG_XEN_DOM0, as in Debian's cloud kernels): use the distribution's standard kernel",
            ),
            Self::NoRoom {
                start,
                end,
                movable,
            } => {
                write!(f, "dom0 kernel: no free RAM for it at {start:#x}-{end:#x}")?;
                f.write_str(if *movable {
                    " nor anywhere else it may go: raise dom0_mem or add RAM"
                } else {
                    ", and it cannot be moved: use a newer kernel (Linux 6.10 or later), or raise dom0_mem"
                })
            }
            Self::NoRoomForInitrd(len) => write!(
                f,
                "dom0: no room for the {} MiB initial RAM disk below 4 GiB: raise dom0_mem",
                len.div_ceil(1 << 20)
            ),
            Self::NoRoomForInfo => {
                f.write_str("dom0: no room for start information below 1 GiB: raise dom0_mem")
            }
            Self::WriteRefused(at) => write!(
                f,
                "dom0: memory at {:#x} cannot be written: it is not free RAM after all",
                at.0
            ),
        }
    }
}
