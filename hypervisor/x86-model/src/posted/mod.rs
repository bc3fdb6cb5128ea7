//! Posted interrupts: the descriptor in which processors and I/O memory management units leave vectors for a virtual or
//! physical CPU, and the protocols around it.
//!
//! One descriptor per receiver. A vector is posted in two steps: its bit in the request words, then, unless notifications
//! are outstanding (ON) or suppressed (SN), ON and a notification with the vector NV to the CPU NDST. The receiver takes
//! vectors in the opposite order: it clears ON, then takes the words. Whoever posts too late for the words finds ON clear
//! and notifies again, so every vector is seen; that a notification finds nothing is allowed.
//!
//! Between the two lies one store-then-load race on each side (words then control; control then words). The four accesses
//! are sequentially consistent, which on x86 costs nothing beyond the locked operations that they are anyway.
//!
//! | vCPU | SN | NV | NDST | entered by |
//! |---|---|---|---|---|
//! | runs | 0 | notification | its CPU | [`Descriptor::run_on`] |
//! | waits for a CPU | 1 | notification | its last CPU | [`Descriptor::preempt`] |
//! | sleeps | 0 | wake-up | its last CPU | [`Descriptor::block`] |
//!
//! While SN is set nobody sets ON. [`Descriptor::run_on`] therefore looks at the words after it cleared SN, and sets ON
//! itself if there is something: [`Descriptor::sync`], which is asked at each entry, need only look at ON.
//!
//! Facts: Intel SDM volume 3, 30.6 (posted-interrupt processing); VT-d specification 5.2.3 and 9.11.

mod descriptor;
pub mod msi;
mod wake;

pub use descriptor::{Descriptor, Ndst, Notice, Post, control};
pub use wake::{Sleeper, WakeList};
