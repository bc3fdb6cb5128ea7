//! Build, run, test and measure Xenolith.
fn main() {}
