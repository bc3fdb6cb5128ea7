//! How a structure is read from and written to callers of either width.
#![allow(
    clippy::needless_update,
    reason = "made for pairs of which not all have padding"
)]

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    dm_op, grant_table as g, hypercall as h, memory as m, physdev as p, sched as s, vcpu as v,
};
use crate::DomId;

/// A structure that callers of both widths pass.
pub trait Layouts: FromBytes + IntoBytes + Immutable {
    /// Its layout for 32-bit callers.
    type Compat: FromBytes + IntoBytes + Immutable;
    /// The 64-bit form of what a 32-bit caller passed.
    fn widen(compat: &Self::Compat) -> Self;
    /// The 32-bit form; what is too large loses its upper half. Padding is that of `passed`.
    fn narrow(&self, passed: &Self::Compat) -> Self::Compat;
}

/// An `unsigned long` or a frame number: 4 bytes for 32-bit callers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Long(pub u64);

impl Layouts for Long {
    type Compat = u32;
    fn widen(compat: &u32) -> Self {
        Long((*compat).into())
    }
    fn narrow(&self, _: &u32) -> u32 {
        self.0 as u32
    }
}

/// One field in both widths.
trait Field<Narrow> {
    fn widen(narrow: &Narrow) -> Self;
    fn narrow(&self, passed: &Narrow) -> Narrow;
}

impl<T: Layouts> Field<T::Compat> for T {
    fn widen(narrow: &T::Compat) -> Self {
        <T as Layouts>::widen(narrow)
    }
    fn narrow(&self, passed: &T::Compat) -> T::Compat {
        <T as Layouts>::narrow(self, passed)
    }
}

impl Field<u32> for u64 {
    fn widen(narrow: &u32) -> Self {
        (*narrow).into()
    }
    fn narrow(&self, _: &u32) -> u32 {
        *self as u32
    }
}

impl Field<U64> for u64 {
    fn widen(narrow: &U64) -> Self {
        narrow.get()
    }
    fn narrow(&self, _: &U64) -> U64 {
        U64::new(*self)
    }
}

impl<T, N, const LEN: usize> Field<[N; LEN]> for [T; LEN]
where
    T: Field<N>,
{
    fn widen(narrow: &[N; LEN]) -> Self {
        core::array::from_fn(|i| T::widen(&narrow[i]))
    }
    fn narrow(&self, passed: &[N; LEN]) -> [N; LEN] {
        core::array::from_fn(|i| self[i].narrow(&passed[i]))
    }
}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => {$(
        impl Field<$ty> for $ty {
            fn widen(narrow: &$ty) -> Self {
                *narrow
            }
            fn narrow(&self, _: &$ty) -> $ty {
                *self
            }
        }
    )*};
}
plain!(i16, i32, u16, u32, DomId, crate::physdev::PhysdevPciDevice);

/// Pairs of structures, with the fields that have a meaning.
macro_rules! twins {
    ($($wide:ty => $narrow:ty { $($field:ident),* $(,)? })*) => {$(
        impl Layouts for $wide {
            type Compat = $narrow;
            fn widen(compat: &$narrow) -> Self {
                Self { $($field: Field::widen(&compat.$field),)* ..Self::default() }
            }
            fn narrow(&self, passed: &$narrow) -> $narrow {
                Self::Compat { $($field: Field::narrow(&self.$field, &passed.$field),)* ..*passed }
            }
        }
    )*};
}

/// Structures that are the same in both.
macro_rules! same {
    ($($ty:ty),* $(,)?) => {$(
        impl Layouts for $ty {
            type Compat = Self;
            fn widen(compat: &Self) -> Self {
                *compat
            }
            fn narrow(&self, _: &Self) -> Self {
                *self
            }
        }
    )*};
}

twins! {
    crate::memory::MemoryReservation => m::MemoryReservation { extent_start, nr_extents, extent_order, mem_flags, domid }
    crate::memory::MemoryExchange => m::MemoryExchange { input, output, nr_exchanged }
    crate::memory::AddToPhysmap => m::AddToPhysmap { domid, size, space, idx, gpfn }
    crate::memory::AddToPhysmapBatch => m::AddToPhysmapBatch { domid, space, size, foreign_domid, idxs, gpfns, errs }
    crate::memory::RemoveFromPhysmap => m::RemoveFromPhysmap { domid, gpfn }
    crate::memory::MemoryMap => m::MemoryMap { nr_entries, buffer }
    crate::memory::ForeignMemoryMap => m::ForeignMemoryMap { domid, map }
    crate::memory::PodTarget => m::PodTarget { target_pages, tot_pages, pod_cache_pages, pod_entries, domid }
    crate::memory::MemAcquireResource => m::MemAcquireResource { domid, kind, id, nr_frames, _pad, frame, frame_list }
    crate::memory::ReservedDeviceMemoryMap => m::ReservedDeviceMemoryMap { flags, nr_entries, buffer, dev }
    crate::grant_table::GnttabSetupTable => g::GnttabSetupTable { dom, nr_frames, status, frame_list }
    crate::grant_table::GnttabCopyPtr => g::GnttabCopyPtr { frame_or_ref, domid, offset }
    crate::grant_table::GnttabCopy => g::GnttabCopy { source, dest, len, flags, status }
    crate::hypercall::MulticallEntry => h::MulticallEntry { op, result, args }
    crate::hvm::dm_op::DmOpBuf => dm_op::DmOpBuf { h, size }
    crate::physdev::PhysdevMapPirq => p::PhysdevMapPirq { domid, kind, index, pirq, bus, devfn, entry_nr, table_base }
    crate::sched::SchedPoll => s::SchedPoll { ports, nr_ports, timeout }
    crate::vcpu::VcpuRunstateInfo => v::VcpuRunstateInfo { state, state_entry_time, time }
    crate::vcpu::VcpuSetSingleshotTimer => v::VcpuSetSingleshotTimer { timeout_abs_ns, flags }
    crate::vcpu::VcpuRegisterRunstateMemoryArea => v::VcpuRegisterRunstateMemoryArea { addr }
    crate::vcpu::VcpuRegisterTimeMemoryArea => v::VcpuRegisterTimeMemoryArea { addr }
}

same! {
    crate::grant_table::GnttabMapGrantRef,
    crate::grant_table::GnttabUnmapGrantRef,
    crate::grant_table::GnttabQuerySize,
    crate::grant_table::GnttabSwapGrantRef,
}
