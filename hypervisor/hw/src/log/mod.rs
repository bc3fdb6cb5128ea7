//! The hypervisor's log: a memory ring from the first instruction, replayed to every console found later.
//!
//! Hypervisor lines and lines that a guest can cause are separate classes; the second is rate-limited by default.
//! State is under one lock of the highest rank, so that any code may log; a panic takes the lock by force.

pub mod canvas;
pub mod levels;
pub mod ring;
pub mod screen;
#[cfg(target_os = "none")]
mod sink;
pub mod stamp;
pub mod symbols;
pub mod uart;

#[cfg(target_os = "none")]
pub use sink::*;

use core::fmt;

/// Severity, as Xen's `loglvl=` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something is lost or refused.
    Error = 0,
    /// Something is odd.
    Warning = 1,
    /// What the administrator wants to know.
    Info = 2,
    /// For developers.
    Debug = 3,
}

/// Who can cause the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Only the hypervisor or the administrator.
    Host,
    /// A guest: rate-limited.
    Guest,
}

/// Writes one line (without its newline).
pub fn emit(level: Level, class: Class, args: fmt::Arguments<'_>) {
    #[cfg(not(target_os = "none"))]
    if level <= Level::Info || std::env::var_os("XENOLITH_LOG").is_some() {
        std::eprintln!("(XEN) [{level:?}/{class:?}] {args}");
    }
    #[cfg(target_os = "none")]
    sink::line(level, class, args);
}

/// Logs an error of the hypervisor.
#[macro_export]
macro_rules! error { ($($t:tt)*) => { $crate::log::emit($crate::log::Level::Error, $crate::log::Class::Host, format_args!($($t)*)) } }
/// Logs a warning of the hypervisor.
#[macro_export]
macro_rules! warn { ($($t:tt)*) => { $crate::log::emit($crate::log::Level::Warning, $crate::log::Class::Host, format_args!($($t)*)) } }
/// Logs what the administrator wants to know.
#[macro_export]
macro_rules! info { ($($t:tt)*) => { $crate::log::emit($crate::log::Level::Info, $crate::log::Class::Host, format_args!($($t)*)) } }
/// Logs for developers.
#[macro_export]
macro_rules! debug { ($($t:tt)*) => { $crate::log::emit($crate::log::Level::Debug, $crate::log::Class::Host, format_args!($($t)*)) } }
/// Logs what a guest caused (rate-limited); the first argument is the level.
#[macro_export]
macro_rules! guest_log { ($level:ident, $($t:tt)*) => { $crate::log::emit($crate::log::Level::$level, $crate::log::Class::Guest, format_args!($($t)*)) } }
