//! Commands (2.4): 128 bits each, in the command buffer.

/// A command as two 64-bit words, low first.
pub type Command = [u64; 2];

const fn code(code: u64) -> u64 {
    code << 60
}

/// Waits for all commands before it, then stores `value` at a machine address that is a multiple of 8.
pub const fn completion_wait(address: u64, value: u64) -> Command {
    [code(1) | address & 0x000f_ffff_ffff_fff8 | 1, value]
}

/// Drops the cached device table entry of a device id.
pub const fn invalidate_device(device: u16) -> Command {
    [code(2) | device as u64, 0]
}

/// Drops the cached interrupt-remapping entries of a device id.
pub const fn invalidate_interrupts(device: u16) -> Command {
    [code(5) | device as u64, 0]
}

/// Drops everything cached (where [`super::Features::invalidate_all`]).
pub const fn invalidate_all() -> Command {
    [code(8), 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_in_the_manual() {
        assert_eq!(completion_wait(0x7654_3218, 9), [0x1000_0000_7654_3219, 9]);
        assert_eq!(invalidate_device(0x00a0), [0x2000_0000_0000_00a0, 0]);
        assert_eq!(invalidate_interrupts(0xffff), [0x5000_0000_0000_ffff, 0]);
        assert_eq!(invalidate_all(), [0x8000_0000_0000_0000, 0]);
    }
}
