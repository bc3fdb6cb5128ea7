//! Bytes to be copied into pages that are known to be zero: which of them have to be.

#![forbid(unsafe_code)]

use crate::page::PAGE_SIZE;
use std::ops::Range;

/// What of some bytes goes into one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The page.
    pub frame: u64,
    /// Where in the page.
    pub offset: usize,
    /// Which of the bytes.
    pub range: Range<usize>,
}

/// The pieces of `bytes` at a guest address, in order, without those that are zero.
pub fn pieces(address: u64, bytes: &[u8]) -> impl Iterator<Item = Piece> {
    let page = PAGE_SIZE as u64;
    let mut done = 0;
    let all = std::iter::from_fn(move || {
        let at = address + done as u64;
        let offset = (at % page) as usize;
        let end = bytes.len().min(done + PAGE_SIZE - offset);
        let range = done..end;
        done = end;
        (!range.is_empty()).then_some(Piece {
            frame: at / page,
            offset,
            range,
        })
    });
    all.filter(|piece| !is_zero(&bytes[piece.range.clone()]))
}

/// By words: half of the pages of an unpacked kernel are zero.
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|w| u64::from_ne_bytes(*w) == 0) && rest.iter().all(|b| *b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(frame: u64, offset: usize, range: Range<usize>) -> Piece {
        Piece {
            frame,
            offset,
            range,
        }
    }

    fn all(address: u64, bytes: &[u8]) -> Vec<Piece> {
        pieces(address, bytes).collect()
    }

    #[test]
    fn pieces_end_with_their_pages() {
        assert_eq!(all(0x1234, &[]), []);
        assert_eq!(all(0x1ffe, &[1]), [piece(1, 0xffe, 0..1)]);
        let bytes = [1; 3 * PAGE_SIZE];
        assert_eq!(
            all(0x1ffe, &bytes),
            [
                piece(1, 0xffe, 0..2),
                piece(2, 0, 2..4098),
                piece(3, 0, 4098..8194),
                piece(4, 0, 8194..12288)
            ]
        );
        assert_eq!(all(0x5000, &bytes[..4096]), [piece(5, 0, 0..4096)]);
    }

    #[test]
    fn zeros_are_left_out_to_the_last_byte() {
        let mut bytes = vec![0; 4 * PAGE_SIZE + 5];
        assert_eq!(all(0x1001, &bytes), []);
        // The last byte of the first page, the first of the third, the last of all.
        for at in [4094, 2 * 4096 - 1, 4 * 4096 + 4] {
            bytes[at] = 1;
        }
        let found: Vec<u64> = pieces(0x1001, &bytes).map(|p| p.frame).collect();
        assert_eq!(found, [1, 3, 5]);
    }

    /// Whatever is copied, the memory is the same as if all had been.
    #[test]
    fn nothing_is_lost() {
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..200 {
            let mut bytes = vec![0; random(5 * PAGE_SIZE)];
            for _ in 0..random(4) {
                if let Some(byte) = bytes.get_mut(random(5 * PAGE_SIZE)) {
                    *byte = 1 + random(255) as u8;
                }
            }
            let start = random(PAGE_SIZE);
            let mut memory = vec![0; 7 * PAGE_SIZE];
            for piece in pieces(start as u64, &bytes) {
                let at = piece.frame as usize * PAGE_SIZE + piece.offset;
                memory[at..at + piece.range.len()].copy_from_slice(&bytes[piece.range]);
            }
            assert_eq!(memory[start..start + bytes.len()], bytes);
        }
    }
}
