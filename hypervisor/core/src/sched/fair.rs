//! The weighted fair policy behind the names "credit" and "credit2": every vCPU carries a virtual run time that grows the
//! slower the heavier it is; the runnable one that has had the least runs next, for a bounded slice. A vCPU that slept
//! comes back no further ahead than one slice, so that sleeping saves up no claim that starves others.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use hv_hw::machine::CpuId;

use super::{Online, Params, Pick, Policy};
use crate::vcpu::VcpuKey;

/// Weight at which virtual time equals real time.
const NORMAL_WEIGHT: u64 = 256;
/// A running vCPU is not preempted by a wake-up before it had this long (Xen's `sched_ratelimit_us`).
pub const RATE_LIMIT_NS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    Queued,
    Running(CpuId),
}

struct Entity {
    key: VcpuKey,
    params: Params,
    state: State,
    /// Weighted ns of run time.
    virtual_ns: u64,
    last_cpu: Option<CpuId>,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    started_ns: u64,
    busy: bool,
    /// Told to choose again and not done so yet.
    kicked: bool,
}

/// The policy.
pub struct Fair {
    name: &'static str,
    slice_ns: u64,
    entities: Vec<Entity>,
    cpus: Vec<Cpu>,
    /// No queued vCPU is behind this.
    floor: u64,
    /// The pCPUs that take vCPUs.
    online: Online,
}

impl Fair {
    /// A policy over `cpus` pCPUs with the given time slice.
    pub fn new(name: &'static str, cpus: u32, slice_ns: u64) -> Self {
        let slice_ns = slice_ns.clamp(RATE_LIMIT_NS, 1_000_000_000);
        Fair {
            name,
            slice_ns,
            entities: Vec::new(),
            cpus: vec![Cpu::default(); cpus as usize],
            floor: 0,
            online: Online::new(cpus),
        }
    }

    fn find(&mut self, key: VcpuKey) -> Option<&mut Entity> {
        self.entities.iter_mut().find(|e| e.key == key)
    }

    /// Where a vCPU that just became runnable should run: its last pCPU or any other if idle, else the pCPU whose vCPU is
    /// furthest ahead of it, if that has run long enough.
    fn place(&self, entity: &Entity, now_ns: u64) -> Option<CpuId> {
        let free = |c: &CpuId| {
            self.online.allows(&entity.params.hard, *c)
                && self
                    .cpus
                    .get(c.0 as usize)
                    .is_some_and(|c| !c.busy && !c.kicked)
        };
        let all = || (0..self.cpus.len() as u32).map(CpuId);
        if let Some(cpu) = entity
            .last_cpu
            .filter(|c| free(c))
            .or_else(|| all().find(free))
        {
            return Some(cpu);
        }
        self.entities
            .iter()
            .filter_map(|e| match e.state {
                State::Running(cpu) if self.online.allows(&entity.params.hard, cpu) => {
                    let ran = now_ns.saturating_sub(self.cpus[cpu.0 as usize].started_ns);
                    let ahead = (e.virtual_ns + scaled(ran, e.params.weight))
                        .checked_sub(entity.virtual_ns)?;
                    (ran >= RATE_LIMIT_NS && ahead > RATE_LIMIT_NS).then_some((ahead, cpu))
                }
                _ => None,
            })
            .max_by_key(|&(ahead, _)| ahead)
            .map(|(_, cpu)| cpu)
    }

    fn mark(&mut self, cpu: Option<CpuId>) -> Option<CpuId> {
        if let Some(c) = cpu {
            self.cpus[c.0 as usize].kicked = true;
        }
        cpu
    }
}

fn scaled(ns: u64, weight: u16) -> u64 {
    ns.saturating_mul(NORMAL_WEIGHT) / u64::from(weight.max(1))
}

impl Policy for Fair {
    fn name(&self) -> &'static str {
        self.name
    }

    fn insert(&mut self, key: VcpuKey, params: Params) {
        let virtual_ns = self.floor;
        self.entities.push(Entity {
            key,
            params,
            state: State::Asleep,
            virtual_ns,
            last_cpu: None,
        });
    }

    fn remove(&mut self, key: VcpuKey) {
        self.entities.retain(|e| e.key != key);
    }

    fn set_params(&mut self, key: VcpuKey, params: Params) -> Option<CpuId> {
        let online = self.online;
        let e = self.find(key)?;
        e.params = params;
        match e.state {
            State::Running(cpu) if !online.allows(&e.params.hard, cpu) => Some(cpu),
            _ => None,
        }
    }

    fn params(&self, key: VcpuKey) -> Option<Params> {
        self.entities
            .iter()
            .find(|e| e.key == key)
            .map(|e| e.params.clone())
    }

    fn wake(&mut self, key: VcpuKey, now_ns: u64) -> Option<CpuId> {
        let (floor, slice) = (self.floor, self.slice_ns);
        let e = self.find(key)?;
        if e.state != State::Asleep {
            return None;
        }
        e.state = State::Queued;
        e.virtual_ns = e.virtual_ns.max(floor.saturating_sub(slice));
        let e = self.entities.iter().find(|e| e.key == key)?;
        let cpu = self.place(e, now_ns);
        self.mark(cpu)
    }

    fn put(&mut self, cpu: CpuId, now_ns: u64, runnable: bool) -> Option<CpuId> {
        let c = self.cpus.get_mut(cpu.0 as usize)?;
        c.busy = false;
        let ran = now_ns.saturating_sub(c.started_ns);
        let e = self
            .entities
            .iter_mut()
            .find(|e| e.state == State::Running(cpu))?;
        e.virtual_ns += scaled(ran, e.params.weight);
        e.state = if runnable {
            State::Queued
        } else {
            State::Asleep
        };
        // One that may not stay here needs a pCPU elsewhere.
        if !runnable || self.online.allows(&e.params.hard, cpu) {
            return None;
        }
        let key = e.key;
        let e = self.entities.iter().find(|e| e.key == key)?;
        let other = self.place(e, now_ns);
        self.mark(other)
    }

    fn set_online(&mut self, cpu: CpuId, online: bool) {
        self.online.set(cpu, online);
    }

    fn dump(&self, line: &mut dyn FnMut(String)) {
        for e in &self.entities {
            let what = match e.state {
                State::Asleep => String::from("asleep"),
                State::Queued => String::from("waits for a CPU"),
                State::Running(cpu) => format!("runs on CPU {}", cpu.0),
            };
            let ahead = e.virtual_ns.saturating_sub(self.floor) / 1000;
            line(format!(
                "  {}: {what}, weight {}, {ahead} us ahead of the last",
                e.key, e.params.weight
            ));
        }
    }

    fn pick(&mut self, cpu: CpuId, now_ns: u64) -> Pick {
        let idle = Pick {
            vcpu: None,
            until_ns: u64::MAX,
        };
        let Some(c) = self.cpus.get_mut(cpu.0 as usize) else {
            return idle;
        };
        c.kicked = false;
        c.busy = false;
        let queued = || {
            self.entities
                .iter()
                .enumerate()
                .filter(|(_, e)| e.state == State::Queued)
        };
        let best = queued()
            .filter(|(_, e)| self.online.allows(&e.params.hard, cpu))
            .min_by_key(|(_, e)| e.virtual_ns)
            .map(|(i, _)| i);
        let Some(best) = best else { return idle };
        let others = queued().any(|(i, e)| i != best && self.online.allows(&e.params.hard, cpu));
        let e = &mut self.entities[best];
        e.state = State::Running(cpu);
        e.last_cpu = Some(cpu);
        self.floor = self.floor.max(e.virtual_ns);
        self.cpus[cpu.0 as usize] = Cpu {
            started_ns: now_ns,
            busy: true,
            kicked: false,
        };
        // Alone, it still looks up once a slice: wake-ups that found all pCPUs within the rate limit kicked nobody.
        let until_ns = if others {
            now_ns + self.slice_ns
        } else {
            now_ns + 10 * self.slice_ns
        };
        Pick {
            vcpu: Some(self.entities[best].key),
            until_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::CpuMask;
    use xen_abi::DomId;

    fn key(n: u32) -> VcpuKey {
        VcpuKey {
            domain: DomId(0),
            vcpu: n,
        }
    }

    /// Runs three always-busy vCPUs on one pCPU for ten seconds and returns their shares in percent.
    fn shares(weights: [u16; 3]) -> [u64; 3] {
        let mut p = Fair::new("credit2", 1, 10_000_000);
        for (n, w) in weights.iter().enumerate() {
            p.insert(
                key(n as u32),
                Params {
                    weight: *w,
                    hard: CpuMask::ALL,
                },
            );
            let _ = p.wake(key(n as u32), 0);
        }
        let (mut now, mut ran) = (0, [0u64; 3]);
        while now < 10_000_000_000 {
            let pick = p.pick(CpuId(0), now);
            ran[pick.vcpu.unwrap().vcpu as usize] += pick.until_ns - now;
            now = pick.until_ns;
            let _ = p.put(CpuId(0), now, true);
        }
        ran.map(|r| r * 100 / now)
    }

    #[test]
    fn time_follows_weight_and_nobody_starves() {
        for s in shares([256, 256, 256]) {
            assert!((32..=34).contains(&s));
        }
        let [a, b, c] = shares([512, 256, 256]);
        assert!(
            (49..=51).contains(&a) && (24..=26).contains(&b) && (24..=26).contains(&c),
            "{a} {b} {c}"
        );
    }

    #[test]
    fn a_sleeper_preempts_but_saves_up_no_claim() {
        let mut p = Fair::new("credit2", 1, 10_000_000);
        for n in 0..2 {
            p.insert(
                key(n),
                Params {
                    weight: 256,
                    hard: CpuMask::ALL,
                },
            );
        }
        assert_eq!(p.wake(key(0), 0), Some(CpuId(0)));
        assert_eq!(p.pick(CpuId(0), 0).vcpu, Some(key(0)));
        // vCPU 1 slept for ten seconds: it preempts at once, yet may run only about a slice longer than vCPU 0.
        let now = 10_000_000_000;
        assert_eq!(p.wake(key(1), now), Some(CpuId(0)));
        let _ = p.put(CpuId(0), now, true);
        let mut t = now;
        let mut first = 0;
        while t < now + 1_000_000_000 {
            let pick = p.pick(CpuId(0), t);
            if pick.vcpu == Some(key(1)) {
                first += pick.until_ns - t;
            }
            t = pick.until_ns;
            let _ = p.put(CpuId(0), t, true);
        }
        assert!(first <= 1_000_000_000, "{first}");
    }

    #[test]
    fn a_cpu_that_goes_loses_its_vcpu_and_pinned_ones_run_elsewhere_meanwhile() {
        let mut p = Fair::new("credit2", 2, 10_000_000);
        let hard = CpuMask::single(CpuId(1));
        p.insert(key(0), Params { weight: 256, hard });
        assert_eq!(p.wake(key(0), 0), Some(CpuId(1)));
        assert_eq!(p.pick(CpuId(1), 0).vcpu, Some(key(0)));
        p.set_online(CpuId(1), false);
        assert_eq!(p.put(CpuId(1), 5, true), Some(CpuId(0)));
        assert_eq!(p.pick(CpuId(1), 5).vcpu, None);
        assert_eq!(p.pick(CpuId(0), 5).vcpu, Some(key(0)));
        assert_eq!(p.params(key(0)).unwrap().hard, hard, "not forgotten");
        p.set_online(CpuId(1), true);
        assert_eq!(p.put(CpuId(0), 9, true), Some(CpuId(1)));
        assert_eq!(p.pick(CpuId(0), 9).vcpu, None);
        assert_eq!(p.pick(CpuId(1), 9).vcpu, Some(key(0)));
    }

    #[test]
    fn affinity_is_obeyed() {
        let mut p = Fair::new("credit", 2, 10_000_000);
        p.insert(
            key(0),
            Params {
                weight: 256,
                hard: CpuMask::single(CpuId(1)),
            },
        );
        assert_eq!(p.wake(key(0), 0), Some(CpuId(1)));
        assert_eq!(p.pick(CpuId(0), 0).vcpu, None);
        assert_eq!(p.pick(CpuId(1), 0).vcpu, Some(key(0)));
        assert_eq!(
            p.set_params(
                key(0),
                Params {
                    weight: 256,
                    hard: CpuMask::single(CpuId(0))
                }
            ),
            Some(CpuId(1))
        );
        assert_eq!(p.put(CpuId(1), 5, true), Some(CpuId(0)));
    }
}
