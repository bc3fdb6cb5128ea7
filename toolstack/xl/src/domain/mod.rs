//! Making and ending domains: a plan as data, its execution with an undo stack, and what is done when a domain stops.

pub mod execute;
pub mod json;
pub mod kept;
pub mod live;
pub mod monitor;
pub mod nodes;
pub mod plan;
pub mod real;
pub mod system;
pub mod teardown;
#[cfg(test)]
mod tests;
