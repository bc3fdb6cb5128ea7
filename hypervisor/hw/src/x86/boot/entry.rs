//! The assembly entry stub (see the head of `entry.S`).

use core::arch::global_asm;

global_asm!(include_str!("entry.S"), options(att_syntax));
