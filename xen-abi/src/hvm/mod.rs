//! Headers of hardware-assisted guests (`hvm/*.h`, `arch-x86/hvm/*.h`).

pub mod dm_op;
pub mod op;
pub mod params;
pub mod save;
pub mod start_info;
pub mod vcpu;
