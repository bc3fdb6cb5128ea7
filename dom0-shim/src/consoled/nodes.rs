//! What the store says of a guest's console: `/local/domain/<domid>/console/*`.

/// Bytes of output that wait for a reader if the store does not say how many.
pub const DEFAULT_LIMIT: usize = 1 << 20;
/// More than this is not kept, whatever the store says.
const MOST: usize = 64 << 20;

/// A console that this daemon serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nodes {
    /// The guest's frame of the ring page.
    pub ring_ref: u64,
    /// The guest's port.
    pub port: u32,
    /// Bytes that wait for a reader.
    pub limit: usize,
}

/// Reads the nodes; `read` gives the value of the one of that name. `None` if there is no console yet, or another daemon's.
pub fn nodes(mut read: impl FnMut(&str) -> Option<String>) -> Option<Nodes> {
    // Domains that were built without a toolstack's help name no type.
    if read("type").is_some_and(|t| t != "xenconsoled") {
        return None;
    }
    let limit = read("limit").and_then(|t| t.parse().ok());
    Some(Nodes {
        ring_ref: read("ring-ref")?.parse().ok()?,
        port: read("port")?.parse().ok().filter(|p| *p > 0)?,
        limit: limit.filter(|n| *n > 0).unwrap_or(DEFAULT_LIMIT).min(MOST),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Option<Nodes> {
        nodes(|name| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn complete_or_not() {
        let whole = [
            ("type", "xenconsoled"),
            ("ring-ref", "1044476"),
            ("port", "2"),
            ("limit", "1048576"),
        ];
        let expected = Nodes {
            ring_ref: 1_044_476,
            port: 2,
            limit: 1 << 20,
        };
        assert_eq!(read(&whole), Some(expected.clone()));
        assert_eq!(read(&whole[1..3]), Some(expected));
        assert_eq!(read(&whole[..2]), None);
        assert_eq!(read(&[("ring-ref", "1"), ("port", "0")]), None);
        assert_eq!(read(&[("ring-ref", "x"), ("port", "1")]), None);
        assert_eq!(
            read(&[("type", "ioemu"), ("ring-ref", "1"), ("port", "1")]),
            None
        );
        let odd = |limit| {
            read(&[("ring-ref", "1"), ("port", "1"), ("limit", limit)])
                .unwrap()
                .limit
        };
        assert_eq!(
            (odd("0"), odd("x"), odd("9999999999999")),
            (DEFAULT_LIMIT, DEFAULT_LIMIT, MOST)
        );
    }
}
