//! The x86 branch filter of xz (BCJ). Before packing, the targets of CALL and JMP were made absolute, so that calls of one
//! function look alike; this makes them relative again.

/// Bytes of a CALL or JMP with a 32-bit target.
const INSTRUCTION: usize = 5;
const EACH: u64 = 0x0101_0101_0101_0101;

/// Undoes the filter in place. `offset` is the address of the first byte as the filter saw it.
pub(super) fn undo_x86(code: &mut [u8], offset: u32) {
    let Some(end) = (code.len() + 1).checked_sub(INSTRUCTION) else {
        return;
    };
    // Bit n: an opcode byte n + 1 bytes ago was found and left alone, because it did not look like an instruction.
    let mut skipped = 0u32;
    let mut last: Option<usize> = None;
    let mut at = 0;
    while let Some(found) = next_opcode(code, at, end) {
        skipped = match last {
            Some(last) if found - last <= 3 => skipped << (found - last - 1) & 7,
            _ => 0,
        };
        last = Some(found);
        at = found + 1;
        // An opcode-like byte inside the target of another is taken only in the patterns that the filter takes.
        let plausible = match skipped {
            0 => true,
            1 | 2 | 4 => !is_sign(code[found + 4 - overlap(skipped)]),
            _ => false,
        };
        if !plausible || !is_sign(code[found + 4]) {
            skipped = skipped << 1 | 1;
            continue;
        }
        let target = &mut code[found + 1..found + INSTRUCTION];
        let mut absolute = u32::from_le_bytes([target[0], target[1], target[2], target[3]]);
        let next = offset.wrapping_add((found + INSTRUCTION) as u32);
        let relative = loop {
            let relative = absolute.wrapping_sub(next);
            if skipped == 0 {
                break relative;
            }
            let shift = overlap(skipped) as u32 * 8;
            if !is_sign((relative >> (24 - shift)) as u8) {
                break relative;
            }
            absolute = relative ^ ((1 << (32 - shift)) - 1);
        };
        // The target is 25 bits with sign.
        let relative = ((relative << 7) as i32 >> 7) as u32;
        target.copy_from_slice(&relative.to_le_bytes());
        at = found + INSTRUCTION;
        // The next distance is measured from here, beyond three: nothing counts as skipped.
        skipped = 0;
    }
}

/// The highest byte of a plausible target: all zeros or all ones.
fn is_sign(byte: u8) -> bool {
    matches!(byte, 0 | 0xff)
}

/// How many bytes the nearest skipped opcode reaches into this instruction's target.
fn overlap(skipped: u32) -> usize {
    (u32::BITS - skipped.leading_zeros()) as usize
}

/// The next byte E8 or E9 in `code[at..end]`.
fn next_opcode(code: &[u8], mut at: usize, end: usize) -> Option<usize> {
    // Eight bytes at once: a byte that matches becomes zero, and the lowest zero byte is found exactly.
    while let Some(word) = code.get(at..end).and_then(|rest| rest.first_chunk::<8>()) {
        let differs = u64::from_le_bytes(*word) & (EACH * 0xfe) ^ (EACH * 0xe8);
        let zero = differs.wrapping_sub(EACH) & !differs & (EACH * 0x80);
        if zero != 0 {
            return Some(at + zero.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    (at..end).find(|&i| code[i] & 0xfe == 0xe8)
}
