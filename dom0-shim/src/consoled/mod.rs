//! `xenconsoled`: takes what guests print out of their console rings, into a log and a terminal for each, and gives them
//! what is typed there.
//!
//! [`ring`] is the daemon's end of one ring, [`backlog`] what the terminal has not taken yet, [`rate`] how often a guest
//! may wake the daemon, [`nodes`] what the store says of a console. [`guest`] puts these together for one guest and
//! [`consoles`] for all of them; both reach the machine through [`host::Host`] only. [`log`], [`terminal`], [`hvlog`] and [`xen`]
//! are the machine, [`daemon`] waits for it. Behaviour follows Xen 4.17's xenconsoled where nothing else is said.

pub mod backlog;
pub mod consoles;
pub mod daemon;
pub mod guest;
pub mod host;
mod hvlog;
pub mod log;
pub mod nodes;
pub mod options;
pub mod rate;
pub mod ring;
pub mod terminal;
mod xen;
