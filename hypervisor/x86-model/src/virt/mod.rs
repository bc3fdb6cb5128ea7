//! Hardware virtualization as data: control blocks, exit codes, encodings. One folder per vendor.

pub mod choice;
pub mod svm;
pub mod vmx;
