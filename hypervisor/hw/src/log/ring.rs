//! The memory ring of console output. The newest bytes win; positions count all bytes ever written.

/// A ring of `N` bytes (a power of two).
pub struct Ring<const N: usize> {
    bytes: [u8; N],
    /// Bytes ever written; the next goes to this position modulo `N`.
    end: u64,
    /// Position before which everything was cleared.
    cleared: u64,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ring<N> {
    /// An empty ring.
    pub const fn new() -> Self {
        assert!(N.is_power_of_two());
        Ring {
            bytes: [0; N],
            end: 0,
            cleared: 0,
        }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.bytes[self.end as usize & (N - 1)] = b;
            self.end += 1;
        }
    }

    /// Position after the newest byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Position of the oldest byte that is still there.
    pub fn start(&self) -> u64 {
        self.end.saturating_sub(N as u64).max(self.cleared)
    }

    /// Forgets the bytes before `position`.
    pub fn clear(&mut self, position: u64) {
        self.cleared = position.clamp(self.cleared, self.end);
    }

    /// The bytes from `position` on, as at most two pieces, oldest first. A position that has been overwritten starts at
    /// the oldest byte instead.
    pub fn since(&self, position: u64) -> (&[u8], &[u8]) {
        let from = position.clamp(self.start(), self.end);
        let len = (self.end - from) as usize;
        let at = from as usize & (N - 1);
        let first = len.min(N - at);
        (&self.bytes[at..at + first], &self.bytes[..len - first])
    }

    /// Copies bytes from `position` on; returns how many, and the position after them.
    pub fn read(&self, position: u64, buf: &mut [u8]) -> (usize, u64) {
        let from = position.clamp(self.start(), self.end);
        let (a, b) = self.since(from);
        let n = a.len().min(buf.len());
        buf[..n].copy_from_slice(&a[..n]);
        let m = b.len().min(buf.len() - n);
        buf[n..n + m].copy_from_slice(&b[..m]);
        (n + m, from + (n + m) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn all<const N: usize>(r: &Ring<N>, from: u64) -> Vec<u8> {
        let (a, b) = r.since(from);
        [a, b].concat()
    }

    #[test]
    fn keeps_the_newest() {
        let mut r = Ring::<8>::new();
        r.write(b"abcdef");
        assert_eq!(all(&r, 0), b"abcdef");
        r.write(b"ghij");
        assert_eq!(all(&r, 0), b"cdefghij");
        assert_eq!(all(&r, 8), b"ij");
        assert_eq!(all(&r, 99), b"");
    }

    #[test]
    fn reads_in_pieces() {
        let mut r = Ring::<8>::new();
        r.write(b"0123456789ab");
        let mut buf = [0; 3];
        let (n, at) = r.read(0, &mut buf);
        assert_eq!((n, at, &buf), (3, 7, b"456"));
        let (n, at) = r.read(at, &mut buf);
        assert_eq!((n, at, &buf), (3, 10, b"789"));
        let (n, at) = r.read(at, &mut buf);
        assert_eq!((n, at, &buf[..2]), (2, 12, &b"ab"[..]));
        r.clear(11);
        assert_eq!(r.read(0, &mut buf), (1, 12));
        r.clear(99);
        r.clear(3);
        assert_eq!(r.read(0, &mut buf).0, 0);
        r.write(b"x");
        assert_eq!(r.read(0, &mut buf), (1, 13));
    }
}
