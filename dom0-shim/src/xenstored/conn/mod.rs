//! How bytes come and go: a socket or a ring, behind one interface.

pub mod ring;
pub mod socket;

/// What became of an attempt to move bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// That many bytes, at least 1.
    Bytes(usize),
    /// None can be moved now.
    Nothing,
    /// The client is gone.
    Closed,
    /// The client's end makes no sense.
    Broken(Fault),
}

/// What a client did wrong, as it is told (`ring_error` of the protocol).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Indices of the ring.
    Indices,
    /// A message above the limit.
    TooLong,
}

/// A client's end.
pub trait Transport {
    /// Takes up to as many bytes from the client.
    fn read(&mut self, bytes: &mut [u8]) -> Moved;

    /// Gives bytes to the client, as many as go at once.
    fn write(&mut self, bytes: &[u8]) -> Moved;

    /// Whether the client asks for a connection as if it were new. Asking answers it.
    fn wants_reset(&mut self) -> bool;

    /// Tells the client that it is not served any more, as far as it can be told.
    fn refuse(&mut self, fault: Fault);
}
