//! How often a guest may wake the daemon.

use std::time::{Duration, Instant};

/// Events of one guest in one [`WINDOW`], as in Xen's xenconsoled.
const EVENTS: u32 = 30;
/// The length of a window.
const WINDOW: Duration = Duration::from_millis(200);

/// One guest's allowance.
#[derive(Debug)]
pub struct Rate {
    start: Instant,
    used: u32,
}

impl Rate {
    /// A fresh allowance.
    pub fn new(now: Instant) -> Rate {
        Rate {
            start: now,
            used: 0,
        }
    }

    /// Counts an event. `None`: the guest may send the next one at once. Otherwise when it may.
    pub fn event(&mut self, now: Instant) -> Option<Instant> {
        if now.saturating_duration_since(self.start) >= WINDOW {
            *self = Rate::new(now);
        }
        self.used += 1;
        (self.used >= EVENTS).then(|| self.start + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_events_in_a_window() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        assert!((1..EVENTS).all(|_| rate.event(start).is_none()));
        let held = rate.event(start + WINDOW / 2).unwrap();
        assert_eq!(held, start + WINDOW);
        assert_eq!(rate.event(held), None);
    }
}
