//! What a guest printed and its terminal has not taken yet.

use std::collections::VecDeque;

/// A queue of bytes with a limit. When it is full the oldest bytes go: the last words count most.
#[derive(Debug)]
pub struct Backlog {
    bytes: VecDeque<u8>,
    limit: usize,
    lost: u64,
}

impl Backlog {
    /// An empty one that holds at most `limit` bytes.
    pub fn new(limit: usize) -> Backlog {
        Backlog {
            bytes: VecDeque::new(),
            limit,
            lost: 0,
        }
    }

    /// Changes the limit, bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.trim();
    }

    /// Adds bytes, at the cost of the oldest ones if there is no room.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.trim();
    }

    fn trim(&mut self) {
        let over = self.bytes.len().saturating_sub(self.limit);
        self.bytes.drain(..over);
        self.lost += over as u64;
    }

    /// The oldest bytes, as many as lie in a row.
    pub fn front(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// Drops the oldest bytes: they have been taken.
    pub fn taken(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        if self.bytes.is_empty() {
            // A guest that once printed a lot does not keep the memory.
            self.bytes = VecDeque::new();
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether it holds as much as it may.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }

    /// Bytes that were dropped so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_stay() {
        let mut backlog = Backlog::new(4);
        backlog.push(b"abc");
        assert!(!backlog.is_full());
        backlog.push(b"defg");
        assert_eq!((backlog.front(), backlog.lost()), (&b"defg"[..], 3));
        assert!(backlog.is_full());
        backlog.taken(2);
        assert_eq!(backlog.front(), b"fg");
        backlog.push(b"a longer line");
        let all: Vec<u8> = backlog.bytes.iter().copied().collect();
        assert_eq!((&all[..], backlog.lost()), (&b"line"[..], 14));
        backlog.taken(100);
        assert!(backlog.is_empty());
        backlog.push(b"xy");
        backlog.set_limit(1);
        assert_eq!(backlog.front(), b"y");
    }
}
