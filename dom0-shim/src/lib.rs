//! The services of a control domain in one program: what its sub-commands are made of.
#![forbid(unsafe_code)]

pub mod backend;
mod cli;
pub mod commands;
pub mod consoled;
pub mod init;
mod service;
pub mod shared;
mod signals;
pub mod xenstored;
