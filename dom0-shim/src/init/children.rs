//! Services of process 1: one that ends is started again, not too often.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A service that lasts that long is sound.
const SOUND: Duration = Duration::from_secs(10);
/// The longest wait before a service is started again; the first is [`FIRST`] and each is twice the one before.
const LONGEST: Duration = Duration::from_secs(60);
/// As above.
const FIRST: Duration = Duration::from_millis(500);

/// A service.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Child {
    command: Vec<String>,
    started: Instant,
    wait: Duration,
    /// When it is started again, if it does not run.
    due: Option<Instant>,
}

/// The services, by the number of the process that each was last.
#[derive(Default, Debug)]
pub struct Children {
    all: BTreeMap<u32, Child>,
}

impl Children {
    /// A service has been started.
    pub fn started(&mut self, pid: u32, command: Vec<String>, now: Instant) {
        let again = self
            .all
            .iter()
            .find(|(_, c)| c.command == command && c.due.is_some());
        let again = again.map(|(old, c)| (*old, c.wait));
        let wait = again.map_or(FIRST, |(old, wait)| {
            self.all.remove(&old);
            wait
        });
        let child = Child {
            command,
            started: now,
            wait,
            due: None,
        };
        self.all.insert(pid, child);
    }

    /// A process has ended. If it was a service: its name and how long it is until it is started again.
    pub fn ended(&mut self, pid: u32, now: Instant) -> Option<(String, Duration)> {
        let child = self.all.get_mut(&pid).filter(|c| c.due.is_none())?;
        if now.saturating_duration_since(child.started) >= SOUND {
            child.wait = FIRST;
        }
        let wait = child.wait;
        child.due = Some(now + wait);
        child.wait = (2 * wait).min(LONGEST);
        Some((child.command.first()?.clone(), wait))
    }

    /// Services whose time has come.
    pub fn due(&self, now: Instant) -> Vec<Vec<String>> {
        let due = self
            .all
            .values()
            .filter(|c| c.due.is_some_and(|d| d <= now));
        due.map(|c| c.command.clone()).collect()
    }

    /// A service could not be started: later again.
    pub fn failed(&mut self, command: &[String], now: Instant) {
        for child in self.all.values_mut().filter(|c| c.command == command) {
            child.due = Some(now + child.wait);
            child.wait = (2 * child.wait).min(LONGEST);
        }
    }

    /// When the next time comes.
    pub fn next(&self) -> Option<Instant> {
        self.all.values().filter_map(|c| c.due).min()
    }

    /// Services that run, the ones started last first: the process and the name.
    pub fn running(&self) -> Vec<(u32, String)> {
        let running = self.all.iter().filter(|(_, c)| c.due.is_none());
        let mut running: Vec<(&u32, &Child)> = running.collect();
        running.sort_by_key(|(_, c)| std::cmp::Reverse(c.started));
        running
            .into_iter()
            .map(|(p, c)| (*p, c.command.first().cloned().unwrap_or_default()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn again_and_not_too_often() {
        let start = Instant::now();
        let mut children = Children::default();
        let store = vec!["xenstored".to_owned()];
        children.started(10, store.clone(), start);
        children.started(11, vec!["devd".into()], start + FIRST);
        let running = |c: &Children| -> Vec<u32> { c.running().iter().map(|(p, _)| *p).collect() };
        assert_eq!(running(&children), [11, 10]);
        assert_eq!(children.ended(99, start), None);
        let (mut now, mut pid, mut waits) = (start, 10, Vec::new());
        for _ in 0..9 {
            let (name, wait) = children.ended(pid, now).unwrap();
            assert_eq!(name, "xenstored");
            // It ends once.
            assert_eq!(children.ended(pid, now), None);
            assert_eq!(
                children.due(now + wait - Duration::from_millis(1)),
                Vec::<Vec<String>>::new()
            );
            now = children.next().unwrap();
            assert_eq!(children.due(now), std::slice::from_ref(&store));
            pid += 100;
            children.started(pid, store.clone(), now);
            waits.push(wait.as_millis());
        }
        assert_eq!(
            waits,
            [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
        );
        // It lasted: the next wait is short again.
        assert_eq!(children.ended(pid, now + SOUND).unwrap().1, FIRST);
        children.failed(&store, now + SOUND);
        assert!(children.next().unwrap() > now + SOUND + FIRST);
        assert_eq!(children.running(), [(11, "devd".to_owned())]);
    }
}
