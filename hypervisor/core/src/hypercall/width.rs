//! Arguments of callers of both widths: handlers see the 64-bit structures, whatever the caller has in memory.

use xen_abi::Errno;
use xen_abi::compat::{Layouts, Long};

use super::{Call, ptr};
use hv_hw::GuestContext;
use zerocopy::FromZeros;

impl Call<'_, '_> {
    /// Whether the caller is in 64-bit mode.
    pub fn is_long(&self) -> bool {
        self.turn.local.ctx.paging().long
    }

    /// Bytes that a structure has in the caller's memory.
    pub fn size<T: Layouts>(&self) -> usize {
        if self.is_long() {
            size_of::<T>()
        } else {
            size_of::<T::Compat>()
        }
    }

    /// Reads a structure. EFAULT.
    pub fn read<T: Layouts>(&self, at: u64) -> Result<T, Errno> {
        if self.is_long() {
            return self.memory().read(ptr(at));
        }
        self.memory().read(ptr(at)).map(|c| T::widen(&c))
    }

    /// Writes a structure that came from there. EFAULT.
    pub fn write<T: Layouts>(&self, at: u64, value: &T) -> Result<(), Errno> {
        if self.is_long() {
            return self.memory().write(ptr(at), value);
        }
        // What has no meaning stays as it is.
        let passed: T::Compat = self.memory().read(ptr(at))?;
        self.memory().write(ptr(at), &value.narrow(&passed))
    }

    /// Writes a structure that is only an answer, zeroes in its padding. EFAULT.
    pub fn put<T: Layouts>(&self, at: u64, value: &T) -> Result<(), Errno> {
        if self.is_long() {
            return self.memory().write(ptr(at), value);
        }
        let compat = value.narrow(&T::Compat::new_zeroed());
        self.memory().write(ptr(at), &compat)
    }

    /// Checks that a structure can be written. EFAULT.
    pub fn probe<T: Layouts>(&self, at: u64) -> Result<(), Errno> {
        self.memory().probe_out(ptr(at), self.size::<T>())
    }

    /// Address of entry `index` of a list. EFAULT: there is none so far away.
    pub fn entry<T: Layouts>(&self, list: u64, index: u64) -> Result<u64, Errno> {
        let offset = index.checked_mul(self.size::<T>() as u64);
        let at = offset.and_then(|o| list.checked_add(o));
        at.ok_or(Errno::EFAULT)
    }

    /// Reads entry `index` of a list of `unsigned long` or frame numbers. EFAULT.
    pub fn read_long(&self, list: u64, index: u64) -> Result<u64, Errno> {
        let at = self.entry::<Long>(list, index)?;
        self.read::<Long>(at).map(|n| n.0)
    }

    /// Writes such an entry, of which a 32-bit caller gets the low half. EFAULT.
    pub fn write_long(&self, list: u64, index: u64, value: u64) -> Result<(), Errno> {
        let at = self.entry::<Long>(list, index)?;
        self.put(at, &Long(value))
    }
}
