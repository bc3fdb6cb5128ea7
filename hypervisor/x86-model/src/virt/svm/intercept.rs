//! The intercepts that every guest runs with, as intercept words.

use super::exit_code as code;

/// Intercept words 1, 2 and 3 with the bits for the given exit codes (0x60 to 0xbf).
pub const fn words(codes: &[u64]) -> [u32; 3] {
    let mut words = [0; 3];
    let mut i = 0;
    while i < codes.len() {
        let at = codes[i] - code::INTR;
        words[(at / 32) as usize] |= 1 << (at % 32);
        i += 1;
    }
    words
}

/// Always intercepted. Not here: VINTR and IRET (on demand), and instructions that only some CPUs have
/// ([`RDPRU`], [`BROADCAST_TLB`], [`MCOMMIT`]). RSM outside SMM raises #UD by itself.
pub const ALWAYS: [u32; 3] = words(&[
    code::INTR,
    code::NMI,
    code::INIT,
    code::RDPMC,
    code::CPUID,
    code::INVD,
    code::HLT,
    code::INVLPGA,
    code::IOIO,
    code::MSR,
    code::TASK_SWITCH,
    code::SHUTDOWN,
    code::VMRUN,
    code::VMMCALL,
    code::VMLOAD,
    code::VMSAVE,
    code::STGI,
    code::CLGI,
    code::SKINIT,
    code::ICEBP,
    code::WBINVD,
    code::MONITOR,
    code::MWAIT,
    code::MWAIT_ARMED,
    code::XSETBV,
]);

/// RDPRU, where CPUID Fn8000_0008 EBX[4] reports it.
pub const RDPRU: [u32; 3] = words(&[code::RDPRU]);
/// INVLPGB and TLBSYNC, where CPUID Fn8000_0008 EBX[3] reports them.
pub const BROADCAST_TLB: [u32; 3] = words(&[code::INVLPGB, code::INVLPGB_ILLEGAL, code::TLBSYNC]);
/// MCOMMIT, where CPUID Fn8000_0008 EBX[8] reports it.
pub const MCOMMIT: [u32; 3] = words(&[code::MCOMMIT]);
/// Bit of the interrupt window in word 1.
pub const VINTR: u32 = words(&[code::VINTR])[0];
/// Bit of IRET in word 1.
pub const IRET: u32 = words(&[code::IRET])[0];

/// Writes to CR4: the hardware checks them against what the machine has, not against what CPUID shows the guest.
pub const CR: u32 = 1 << (16 + 4);
/// Writes to CR8, while an interrupt waits for a lower task priority.
pub const CR8_WRITE: u32 = 1 << (16 + 8);

/// #DB and #AC are intercepted and put back: a guest can arrange that the delivery of either raises it again, without
/// end, and with no instruction boundary at which the CPU would take an interrupt. #MC belongs to the host.
pub const EXCEPTIONS: u32 = 1 << 1 | 1 << 17 | 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_where_the_manual_has_them() {
        // APM vol. 2, table B-1: offsets 00Ch, 010h and 014h.
        assert_eq!(VINTR, 1 << 4);
        assert_eq!(IRET, 1 << 20);
        let one = [0, 1, 3, 15, 18, 22, 24, 26, 27, 28, 29, 31];
        assert_eq!(ALWAYS[0], one.iter().fold(0, |w, b| w | 1u32 << b));
        let two = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13];
        assert_eq!(ALWAYS[1], two.iter().fold(0, |w, b| w | 1u32 << b));
        assert_eq!(RDPRU, [0, 1 << 14, 0]);
        assert_eq!(BROADCAST_TLB, [0, 0, 0b10011]);
        assert_eq!(MCOMMIT, [0, 0, 1 << 3]);
    }
}
