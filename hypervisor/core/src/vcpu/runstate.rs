//! Run-state accounting (`vcpu.h`): how long a vCPU ran, waited, slept or was down, and the copy that the guest sees.

use hv_hw::sync::{SpinLock, rank};

use super::info::Areas;

/// Run states (`RUNSTATE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// On a pCPU.
    Running = 0,
    /// Wants one.
    Runnable = 1,
    /// Asleep.
    Blocked = 2,
    /// Down or paused.
    Offline = 3,
}

const UPDATE: u64 = 1 << 63;

/// Accounting of one vCPU.
pub struct RunState {
    inner: SpinLock<Inner, { rank::DEVICE }>,
}

struct Inner {
    state: State,
    since: u64,
    time: [u64; 4],
}

impl RunState {
    /// A vCPU that is offline since `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        RunState {
            inner: SpinLock::new(Inner {
                state: State::Offline,
                since: now_ns,
                time: [0; 4],
            }),
        }
    }

    /// Changes the state and brings the guest's copy up to date. `flag_updates` is the guest's vm_assist choice to see
    /// bit 63 of the entry time set while the copy changes.
    pub fn enter(&self, state: State, now_ns: u64, areas: &Areas, flag_updates: bool) {
        {
            let mut i = self.inner.lock();
            let spent = now_ns.saturating_sub(i.since);
            let old = i.state as usize;
            i.time[old] += spent;
            i.since = now_ns;
            i.state = state;
        }
        self.publish(areas, now_ns, flag_updates);
    }

    /// The 48 bytes of `vcpu_runstate_info`, with the running state's time counted up to `now_ns`.
    pub fn snapshot(&self, now_ns: u64) -> [u8; 48] {
        let i = self.inner.lock();
        let mut time = i.time;
        time[i.state as usize] += now_ns.saturating_sub(i.since);
        Self::encode(i.state, i.since, &time)
    }

    fn encode(state: State, since: u64, time: &[u64; 4]) -> [u8; 48] {
        let mut out = [0u8; 48];
        out[0..4].copy_from_slice(&(state as u32).to_le_bytes());
        out[8..16].copy_from_slice(&since.to_le_bytes());
        for (n, t) in time.iter().enumerate() {
            out[16 + 8 * n..24 + 8 * n].copy_from_slice(&t.to_le_bytes());
        }
        out
    }

    /// Writes the guest's copy.
    pub fn publish(&self, areas: &Areas, _now_ns: u64, flag_updates: bool) {
        let (bytes, since) = {
            let i = self.inner.lock();
            (Self::encode(i.state, i.since, &i.time), i.since)
        };
        if let Some(area) = &*areas.runstate.lock() {
            // 32-bit guests have no padding behind the state.
            let entry = if areas.is_narrow() { 4 } else { 8 };
            if flag_updates {
                area.write(entry, &(since | UPDATE).to_le_bytes());
                area.write(entry + 8, &bytes[16..]);
                area.write(0, &bytes[..entry]);
                area.write(entry, &since.to_le_bytes());
            } else {
                area.write(0, &bytes[..entry]);
                area.write(entry, &bytes[8..]);
            }
        }
    }

    /// Nanoseconds spent in one state up to `now_ns`.
    pub fn time_in(&self, state: State, now_ns: u64) -> u64 {
        let i = self.inner.lock();
        let running = if i.state == state {
            now_ns.saturating_sub(i.since)
        } else {
            0
        };
        i.time[state as usize] + running
    }

    /// Nanoseconds spent in each state.
    pub fn times(&self) -> [u64; 4] {
        self.inner.lock().time
    }
}
