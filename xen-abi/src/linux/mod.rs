//! Linux's devices for user space of a Xen domain (`/dev/xen/*`): numbers of their `ioctl` calls and the structures that
//! these take. Only the numbers: the calls are made elsewhere.

pub mod evtchn;
pub mod gntdev;
pub mod privcmd;

/// An `ioctl` number without direction bits, as these drivers use them: size in bytes, type letter, number.
const fn ioc(size: usize, letter: u8, number: u8) -> u32 {
    assert!(size < 1 << 14, "the size field has 14 bits");
    (size as u32) << 16 | (letter as u32) << 8 | number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the drivers' headers come to.
    #[test]
    fn numbers() {
        assert_eq!(evtchn::BIND_VIRQ, 0x0004_4500);
        assert_eq!(evtchn::BIND_INTERDOMAIN, 0x0008_4501);
        assert_eq!(evtchn::UNBIND, 0x0004_4503);
        assert_eq!(evtchn::NOTIFY, 0x0004_4504);
        assert_eq!(gntdev::MAP_GRANT_REF, 0x0018_4700);
        assert_eq!(gntdev::UNMAP_GRANT_REF, 0x0010_4701);
        assert_eq!(gntdev::SET_MAX_GRANTS, 0x0004_4703);
        assert_eq!(privcmd::HYPERCALL, 0x0030_5000);
        assert_eq!(privcmd::MMAPBATCH_V2, 0x0020_5004);
        assert_eq!(privcmd::MMAP_RESOURCE, 0x0020_5007);
    }
}
