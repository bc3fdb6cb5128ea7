//! Which of the host's CPUs an emulator runs on.
//!
//! QEMU's emulation gives every CPU of its machine a thread. When one of them restores its FPU state (FXRSTOR, XRSTOR, FRSTOR,
//! FLDENV), it clears a bit in a word of the *first* CPU, without a lock (`cpu_clear_ignne` in `target/i386/tcg`), and that word
//! also says whether the first CPU is in a guest, whether it takes interrupts, and whether nested paging is on. If the first CPU
//! enters or leaves a guest at the same moment, one of the two changes is lost: the host's own page tables are then looked up in
//! the guest's memory, the guest's in the machine's, or interrupts stay off. The micro-guest `fpu` makes it happen within
//! seconds. Threads that share one CPU of the host cannot meet inside one instruction, so there it does not happen.

use std::io;
use std::process::{Child, Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where an emulator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On all CPUs that this process may use.
    Anywhere,
    /// All its threads on one of them: counted from 0 and round again.
    One(usize),
}

impl Place {
    /// Of the job with this number: on a CPU of its own, unless all are to be used.
    pub fn of_job(job: usize, parallel: bool) -> Self {
        if parallel {
            Place::Anywhere
        } else {
            Place::One(job)
        }
    }
}

/// The `n`th of the CPUs in `all`, round again behind the last. `None` if there is none.
fn nth(all: &CpuSet, n: usize) -> Option<CpuSet> {
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&c| all.is_set(c)).collect();
    let cpu = *cpus.get(n.checked_rem(cpus.len())?)?;
    let mut one = CpuSet::new();
    one.set(cpu);
    Some(one)
}

/// Starts `command` there. A child inherits the CPUs of the thread that starts it.
pub fn spawn(command: &mut Command, place: Place) -> io::Result<Child> {
    let Place::One(n) = place else {
        return command.spawn();
    };
    let all = sched_getaffinity(None)?;
    let one = nth(&all, n).ok_or(io::ErrorKind::NotFound)?;
    sched_setaffinity(None, &one)?;
    let child = command.spawn();
    sched_setaffinity(None, &all)?;
    child
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&c| set.set(c));
        set
    }

    #[test]
    fn the_cpus_are_counted_round() {
        let all = set(&[1, 3, 8]);
        let picked: Vec<_> = (0..4).filter_map(|n| nth(&all, n)).collect();
        assert!(picked == [set(&[1]), set(&[3]), set(&[8]), set(&[1])]);
        assert!(nth(&set(&[]), 0).is_none());
    }

    #[test]
    fn only_the_child_is_bound() {
        let before = sched_getaffinity(None).expect("a thread has CPUs");
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        let child = spawn(command.stdout(Stdio::piped()), Place::One(0)).expect("grep is there");
        let output = child.wait_with_output().expect("it ends");
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let list = line.split_whitespace().nth(1).expect("a list");
        assert!(list.parse::<usize>().is_ok(), "{line}");
        assert!(sched_getaffinity(None).expect("a thread has CPUs") == before);
    }
}
