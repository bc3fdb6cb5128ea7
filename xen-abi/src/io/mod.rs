//! Protocols between domains over shared pages (`io/`).

pub mod xs_wire;
