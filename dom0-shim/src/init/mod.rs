//! `init`: process 1 of a control domain that runs out of a RAM disk; and `xen-init-dom0`.
//!
//! [`conf`] is what its file says, [`modules`] which files of the kernel a module needs, [`children`] which service is started
//! again and when: all pure. [`steps`] does the steps, [`run`] is process 1 itself, [`stop`] its end, [`session`] a shell on
//! the console, [`dom0`] the nodes of domain 0.

pub mod children;
pub mod conf;
pub mod dom0;
pub mod modules;
pub mod run;
pub mod session;
pub mod steps;
pub mod stop;
