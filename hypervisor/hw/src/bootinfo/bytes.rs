//! Reads of little-endian values from untrusted bytes: out of range gives `None`.

/// `len` bytes at `offset`.
pub fn slice(bytes: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(len)?)
}

/// Four bytes.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        slice(bytes, offset, 4)?.try_into().ok()?,
    ))
}

/// Eight bytes.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        slice(bytes, offset, 8)?.try_into().ok()?,
    ))
}

/// The bytes before the first NUL; `None` if there is none.
pub fn c_string(bytes: &[u8]) -> Option<&[u8]> {
    bytes
        .split(|&b| b == 0)
        .next()
        .filter(|s| s.len() < bytes.len())
}
