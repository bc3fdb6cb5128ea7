//! The null policy: each vCPU is given a pCPU of its own when it first becomes known; nothing is ever shared. vCPUs for
//! which no pCPU is left wait until one is free.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use hv_hw::machine::CpuId;

use super::{Online, Params, Pick, Policy};
use crate::vcpu::VcpuKey;

struct Entity {
    key: VcpuKey,
    params: Params,
    cpu: Option<CpuId>,
    runnable: bool,
}

/// One vCPU to a pCPU.
pub struct Null {
    cpus: u32,
    entities: Vec<Entity>,
    online: Online,
}

impl Null {
    /// A policy over `cpus` pCPUs.
    pub fn new(cpus: u32) -> Self {
        Null {
            cpus,
            entities: Vec::new(),
            online: Online::new(cpus),
        }
    }

    fn assign(&mut self) -> Option<CpuId> {
        let mut kick = None;
        for i in 0..self.entities.len() {
            if self.entities[i].cpu.is_some() {
                continue;
            }
            let hard = &self.entities[i].params.hard;
            let free = (0..self.cpus)
                .map(CpuId)
                .filter(|&c| self.online.allows(hard, c))
                .find(|&c| !self.entities.iter().any(|e| e.cpu == Some(c)));
            self.entities[i].cpu = free;
            if self.entities[i].runnable {
                kick = kick.or(free);
            }
        }
        kick
    }

    fn find(&mut self, key: VcpuKey) -> Option<&mut Entity> {
        self.entities.iter_mut().find(|e| e.key == key)
    }
}

impl Policy for Null {
    fn name(&self) -> &'static str {
        "null"
    }
    fn insert(&mut self, key: VcpuKey, params: Params) {
        self.entities.push(Entity {
            key,
            params,
            cpu: None,
            runnable: false,
        });
        self.assign();
    }
    fn remove(&mut self, key: VcpuKey) {
        self.entities.retain(|e| e.key != key);
        self.assign();
    }
    fn set_params(&mut self, key: VcpuKey, params: Params) -> Option<CpuId> {
        let e = self.find(key)?;
        let moved = e.cpu.filter(|&c| !params.hard.contains(c));
        e.params = params;
        if moved.is_some() {
            e.cpu = None;
            self.assign();
        }
        moved
    }
    fn params(&self, key: VcpuKey) -> Option<Params> {
        self.entities
            .iter()
            .find(|e| e.key == key)
            .map(|e| e.params.clone())
    }
    fn wake(&mut self, key: VcpuKey, _now_ns: u64) -> Option<CpuId> {
        let e = self.find(key)?;
        e.runnable = true;
        e.cpu
    }
    fn put(&mut self, cpu: CpuId, _now_ns: u64, runnable: bool) -> Option<CpuId> {
        if let Some(e) = self.entities.iter_mut().find(|e| e.cpu == Some(cpu)) {
            e.runnable = runnable;
        }
        self.assign()
    }
    fn set_online(&mut self, cpu: CpuId, online: bool) {
        self.online.set(cpu, online);
        // Everyone is where it may be: those of a CPU that goes need another, those of one that came back return.
        let all = self.online;
        for e in &mut self.entities {
            e.cpu = e.cpu.filter(|&c| all.allows(&e.params.hard, c));
        }
        self.assign();
    }
    fn spares(&self, cpu: CpuId) -> bool {
        let mut without = self.online;
        without.set(cpu, false);
        let on = |c| self.entities.iter().find(move |e| e.cpu == Some(c));
        on(cpu).is_none_or(|e| {
            (0..self.cpus)
                .map(CpuId)
                .any(|c| on(c).is_none() && without.allows(&e.params.hard, c))
        })
    }
    fn dump(&self, line: &mut dyn FnMut(String)) {
        for e in &self.entities {
            let place = match e.cpu {
                Some(cpu) => format!("CPU {}", cpu.0),
                None => String::from("no CPU is free"),
            };
            let what = if e.runnable { "runnable" } else { "asleep" };
            line(format!("  {}: {what}, {place}", e.key));
        }
    }
    fn pick(&mut self, cpu: CpuId, _now_ns: u64) -> Pick {
        let vcpu = self
            .entities
            .iter()
            .find(|e| e.cpu == Some(cpu) && e.runnable)
            .map(|e| e.key);
        Pick {
            vcpu,
            until_ns: u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CpuMask;
    use super::*;
    use xen_abi::DomId;

    #[test]
    fn a_cpu_may_go_while_its_vcpu_finds_a_free_one() {
        let key = |n| VcpuKey {
            domain: DomId(0),
            vcpu: n,
        };
        let mut p = Null::new(4);
        for (n, hard) in [(0, CpuMask::ALL), (1, CpuMask::single(CpuId(1)))] {
            p.insert(key(n), Params { weight: 256, hard });
            p.wake(key(n), 0);
        }
        let spared = |p: &Null| [0, 1, 2, 3].map(|n| p.spares(CpuId(n)));
        // The pinned one may run elsewhere once its CPU is away.
        assert_eq!(spared(&p), [true; 4]);
        p.set_online(CpuId(1), false);
        assert_eq!(p.pick(CpuId(2), 0).vcpu, Some(key(1)));
        p.set_online(CpuId(3), false);
        assert_eq!(spared(&p), [false, true, false, true]);
        // Back on its own CPU, it leaves the other one to whoever needs it.
        p.set_online(CpuId(1), true);
        assert_eq!(p.pick(CpuId(1), 0).vcpu, Some(key(1)));
        assert_eq!(spared(&p), [true; 4]);
        p.remove(key(0));
        p.set_online(CpuId(0), false);
        p.set_online(CpuId(2), false);
        assert_eq!(spared(&p), [true, false, true, true]);
    }
}
