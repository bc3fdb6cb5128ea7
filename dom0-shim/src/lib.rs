//! The services of a control domain in one program: what its sub-commands are made of.
#![forbid(unsafe_code)]

pub mod service;
pub mod xenstored;
