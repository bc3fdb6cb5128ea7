//! The metal: x86-64 with AMD-V (and later VT-x).
