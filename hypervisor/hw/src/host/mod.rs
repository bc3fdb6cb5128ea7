//! The fake machine: RAM in one host allocation, a set clock, recorded kicks and port accesses, scripted exits.

pub mod arena;
pub mod counting;
mod machine;
mod vcpu;
pub mod vtd;

pub use machine::FakeMachine;
pub use vcpu::FakeVcpu;
