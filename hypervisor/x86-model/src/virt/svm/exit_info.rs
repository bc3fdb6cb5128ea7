//! What EXITINFO1 says for port exits, control register accesses and nested page faults (APM vol. 2, 15.10.2, 15.8.1 and 15.25.6).

use crate::Width;

/// Control register accesses: bits 3:0 are the GPR (decode assists).
pub const CR_GPR_VALID: u64 = 1 << 63;

/// A port exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Port.
    pub port: u16,
    /// Access width.
    pub width: Width,
    /// IN or INS.
    pub input: bool,
    /// INS or OUTS.
    pub string: bool,
    /// With REP.
    pub rep: bool,
}

/// Decodes EXITINFO1 of a port exit. Exactly one size bit is set by hardware.
pub const fn port(info: u64) -> PortInfo {
    PortInfo {
        port: (info >> 16) as u16,
        width: if info & 1 << 4 != 0 {
            Width::B1
        } else if info & 1 << 5 != 0 {
            Width::B2
        } else {
            Width::B4
        },
        input: info & 1 != 0,
        string: info & 1 << 2 != 0,
        rep: info & 1 << 3 != 0,
    }
}

/// Nested page fault: a write.
pub const NPF_WRITE: u64 = 1 << 1;
/// Nested page fault: an instruction fetch.
pub const NPF_FETCH: u64 = 1 << 4;
/// Nested page fault: on the guest's own page tables.
pub const NPF_WALK: u64 = 1 << 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_fields() {
        // outb to 0x80: SZ8, 64-bit address size.
        let out = port(0x0080_0210);
        assert_eq!((out.port, out.width), (0x80, Width::B1));
        assert!(!out.input && !out.string && !out.rep);
        // rep insw from 0x1f0.
        let ins = port(0x01f0_022d);
        assert_eq!((ins.port, ins.width), (0x1f0, Width::B2));
        assert!(ins.input && ins.string && ins.rep);
        // inl from 0xcfc.
        let inl = port(0x0cfc_0241);
        assert_eq!((inl.port, inl.width, inl.input), (0xcfc, Width::B4, true));
    }
}
