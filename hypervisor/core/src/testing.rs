//! What the property tests of this crate share.

use proptest::prelude::ProptestConfig;

/// Number of cases: a quick slice by default, a long run with `XENOLITH_CASES`.
pub fn cases(quick: u32) -> ProptestConfig {
    let wanted = std::env::var("XENOLITH_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(quick))
}
