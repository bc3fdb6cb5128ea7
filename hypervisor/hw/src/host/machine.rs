//! The fake machine's clock, CPUs, ports and interrupts. State that tests look at is public.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use x86_model::iommu::Target;
use x86_model::iommu::vtd::posted::change;
use x86_model::iommu::vtd::{Irte, PostedTarget, irte};
use x86_model::pci::Bdf;
use x86_model::posted::{Ndst, Notice, msi};
use x86_model::{Hpa, Mfn, Width};

use super::FakeVcpu;
use super::vtd::FakeVtd;
use crate::machine::{
    CpuId, HostInterrupt, InterruptCounts, IoApicInfo, LineMode, Machine, MsiMessage, MsiSource,
    PostTo, PowerAction, Receiver, VcpuSetup,
};
use crate::mem::stage2::Format;
use crate::posted::PostTarget;

/// Components of extended registers: x87, SSE, AVX.
pub const XCR0: u64 = 7;
/// Vector of a notification for a running vCPU.
pub const POSTED: u8 = 0xf2;
/// Vector of a notification for a sleeping vCPU.
pub const WAKE: u8 = 0xf3;

/// A machine for tests. Panics carry a power action out of [`Machine::power`].
#[derive(Default)]
pub struct FakeMachine {
    /// Nanoseconds since boot; the TSC counts the same number (1 GHz).
    pub clock_ns: AtomicU64,
    /// Everything that happened to the machine, for tests to read.
    pub seen: Mutex<Seen>,
    /// CPUs.
    pub cpus: u32,
    /// Bits of their APIC IDs, which are their numbers, that name the threads of a core.
    pub thread_bits: u32,
    /// The processor has XSAVE, with the components of [`XCR0`].
    pub xsave: bool,
    /// Interrupts are remapped.
    pub remapping: bool,
    /// vCPUs take posted interrupts.
    pub posting: bool,
    /// The unit that remaps and posts; `remapping` must be set with it.
    pub vtd: Option<FakeVtd>,
    /// Where messages to the first CPU are posted, if they are; the others' are remapped.
    pub host_target: Option<Arc<PostTarget>>,
}

/// An entry of the fake unit's table.
#[derive(Clone, Debug)]
pub struct FakeEntry {
    /// Its index.
    pub index: u16,
    /// For whose messages.
    pub source: MsiSource,
    /// The vCPU that it posts to.
    pub post: Option<PostTo>,
}

/// Recorded effects and prepared inputs.
#[derive(Default)]
pub struct Seen {
    /// Kicks sent.
    pub kicks: Vec<CpuId>,
    /// Notifications sent for posted interrupts.
    pub notified: Vec<CpuId>,
    /// CPUs that the watchdog found hanging.
    pub hung: Vec<CpuId>,
    /// Timer of the (one) running CPU.
    pub timer: Option<u64>,
    /// Interrupts that [`Machine::take_interrupt`] will give.
    pub interrupts: VecDeque<HostInterrupt>,
    /// EOIs made.
    pub eois: usize,
    /// What serving posted messages came to, as of CPU 0.
    pub posts: InterruptCounts,
    /// Vectors handed out.
    pub vectors: BTreeSet<(u32, u8)>,
    /// CPUs that are not online.
    pub offline: BTreeSet<u32>,
    /// CPUs that neither stop nor start.
    pub stuck: BTreeSet<u32>,
    /// Vectors that wait on whatever CPU asks.
    pub waiting: BTreeSet<u8>,
    /// Remapped messages that were moved.
    pub moved_messages: Vec<((CpuId, u8), (CpuId, u8))>,
    /// Entries of the unit, by the CPU and vector that they stand for.
    pub entries: BTreeMap<(u32, u8), FakeEntry>,
    /// Senders of messages that were asked for.
    pub senders: Vec<MsiSource>,
    /// GSI routes: cpu, vector, mode, masked.
    pub gsis: BTreeMap<u32, (u32, u8, LineMode, bool)>,
    /// Port writes.
    pub port_writes: Vec<(u16, Width, u32)>,
    /// Values that ports read as; absent ports read all-ones.
    pub ports: BTreeMap<u16, u32>,
    /// Device memory by address; absent reads all-ones.
    pub mmio: BTreeMap<u64, u64>,
    /// Console output.
    pub console: Vec<u8>,
    /// Console input.
    pub console_in: VecDeque<u8>,
    /// The log; its first byte has position 0.
    pub log: Vec<u8>,
    /// Bytes of the log that were cleared.
    pub log_cleared: usize,
}

impl FakeMachine {
    /// A machine with `cpus` CPUs.
    pub fn new(cpus: u32) -> Self {
        super::arena::init();
        FakeMachine {
            cpus,
            ..Default::default()
        }
    }
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen
            .lock()
            .expect("a test panicked while it held the record")
    }
}

impl FakeMachine {
    fn route(
        &self,
        unit: &FakeVtd,
        source: &MsiSource,
        place: (u32, u8),
        post: Option<&PostTo>,
    ) -> Option<MsiMessage> {
        let (known, new) = {
            let entries = &self.seen().entries;
            let used: BTreeSet<u16> = entries.values().map(|e| e.index).collect();
            let free = (0..u16::MAX).find(|n| !used.contains(n))?;
            (entries.get(&place).map(|e| e.index), free)
        };
        let index = known.unwrap_or(new);
        if !self.write(unit, index, source, place, post) {
            return None;
        }
        let entry = FakeEntry {
            index,
            source: *source,
            post: post.cloned(),
        };
        // The old entry, and with it the descriptor that it named, goes after the unit has let go of it.
        self.seen().entries.insert(place, entry);
        let m = irte::message(index);
        Some(MsiMessage {
            address: m.address.into(),
            data: m.data,
        })
    }

    fn write(
        &self,
        unit: &FakeVtd,
        index: u16,
        source: &MsiSource,
        (cpu, vector): (u32, u8),
        post: Option<&PostTo>,
    ) -> bool {
        let host = self.host_target.as_ref().filter(|_| cpu == 0);
        let descriptor = match (post, host) {
            (Some(to), _) => Some((to.target.hpa(), to.vector, to.urgent)),
            (None, Some(target)) => Some((target.hpa(), vector, false)),
            (None, None) => None,
        };
        let entry = match descriptor {
            Some((at, vector, urgent)) => {
                let target = PostedTarget {
                    descriptor: at.0,
                    vector,
                    urgent,
                };
                Irte::posted(&target, source.requester)
            }
            None => {
                let target = Target {
                    dest: cpu,
                    logical: false,
                    lowest: false,
                    vector,
                    level: false,
                };
                Irte::new(&target, source.requester, true)
            }
        };
        entry.is_some_and(|e| change(&mut unit.software(), index, e))
    }
}

impl Machine for FakeMachine {
    type Vcpu = FakeVcpu;

    fn now_ns(&self) -> u64 {
        self.clock_ns.load(Ordering::Relaxed)
    }
    fn tsc(&self) -> u64 {
        self.now_ns()
    }
    fn tsc_khz(&self) -> u32 {
        1_000_000
    }
    fn tsc_to_ns(&self, tsc: u64) -> u64 {
        tsc
    }
    fn tsc_reliable(&self) -> bool {
        true
    }
    fn wallclock(&self) -> (u64, u32) {
        (1_700_000_000, 0)
    }
    fn set_timer(&self, deadline_ns: Option<u64>) {
        self.seen().timer = deadline_ns;
    }
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn cpu_count(&self) -> u32 {
        self.cpus
    }
    fn cpu_ids(&self, cpu: CpuId) -> Option<(u32, u32)> {
        (cpu.0 < self.cpus).then_some((cpu.0, cpu.0))
    }
    fn kick(&self, cpu: CpuId) {
        self.seen().kicks.push(cpu);
    }
    fn post_notice(&self, cpu: CpuId, receiver: Receiver) -> Option<Notice> {
        Some(Notice {
            vector: match receiver {
                Receiver::Running => POSTED,
                Receiver::Sleeping => WAKE,
            },
            dest: Ndst::new(cpu.0, true)?,
        })
    }
    fn notify(&self, cpu: CpuId) {
        self.seen().notified.push(cpu);
    }
    fn hangs(&self, cpu: CpuId, _seconds: u64) {
        self.seen().hung.push(cpu);
    }
    fn take_interrupt(&self) -> Option<HostInterrupt> {
        self.seen().interrupts.pop_front()
    }
    fn eoi(&self) {
        self.seen().eois += 1;
    }
    fn idle(&self, ready: &mut dyn FnMut() -> bool) {
        ready();
    }
    fn alloc_vector(&self, cpu: CpuId) -> Option<u8> {
        let mut seen = self.seen();
        let v = (0x30..0xe0).find(|&v| !seen.vectors.contains(&(cpu.0, v)))?;
        seen.vectors.insert((cpu.0, v));
        Some(v)
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        cpu.0 < self.cpus && !self.seen().offline.contains(&cpu.0)
    }
    fn set_online(&self, cpu: CpuId, online: bool) {
        let mut seen = self.seen();
        if online {
            seen.offline.remove(&cpu.0);
        } else {
            seen.offline.insert(cpu.0);
        }
    }
    fn stop_cpu(&self) -> ! {
        panic!("this CPU stops")
    }
    fn has_stopped(&self, cpu: CpuId) -> bool {
        let seen = self.seen();
        seen.offline.contains(&cpu.0) && !seen.stuck.contains(&cpu.0)
    }
    fn start_cpu(&self, cpu: CpuId) -> Result<(), &'static str> {
        if self.seen().stuck.contains(&cpu.0) {
            return Err("it does not answer");
        }
        Ok(())
    }
    fn take_vector(&self, cpu: CpuId, vector: u8) -> bool {
        self.seen().vectors.insert((cpu.0, vector))
    }
    fn shares_vectors(&self, one: CpuId, other: CpuId) -> bool {
        one == other
    }
    fn vector_waits(&self, vector: u8) -> bool {
        self.seen().waiting.contains(&vector)
    }
    fn move_message(&self, from: (CpuId, u8), to: (CpuId, u8)) -> bool {
        self.seen().moved_messages.push((from, to));
        let Some(unit) = &self.vtd else { return true };
        let Some(e) = self.seen().entries.remove(&(from.0.0, from.1)) else {
            return false;
        };
        let to = (to.0.0, to.1);
        let changed = self.write(unit, e.index, &e.source, to, e.post.as_ref());
        self.seen().entries.insert(to, e);
        changed
    }
    fn move_gsi(&self, gsi: u32, cpu: CpuId, vector: u8) -> bool {
        let mut seen = self.seen();
        let Some(route) = seen.gsis.get_mut(&gsi) else {
            return false;
        };
        (route.0, route.1) = (cpu.0, vector);
        true
    }
    fn free_vector(&self, cpu: CpuId, vector: u8) {
        if let Some(unit) = &self.vtd
            && let Some(e) = self.seen().entries.remove(&(cpu.0, vector))
        {
            assert!(change(&mut unit.software(), e.index, Irte::default()));
        }
        self.seen().vectors.remove(&(cpu.0, vector));
    }
    fn remaps_interrupts(&self) -> bool {
        self.remapping
    }
    fn interrupt_counts(&self, cpu: CpuId) -> Option<InterruptCounts> {
        let seen = self.seen();
        let posts = if cpu.0 == 0 {
            seen.posts
        } else {
            InterruptCounts::default()
        };
        (cpu.0 < self.cpus).then(|| InterruptCounts {
            vectors_used: seen.vectors.iter().filter(|v| v.0 == cpu.0).count() as u32,
            vectors: 0xe0 - 0x30,
            ..posts
        })
    }
    fn posts_interrupts(&self) -> bool {
        self.vtd.is_some()
    }
    fn serve_posted(&self, dispatch: &mut dyn FnMut(u8)) {
        let eoi = || self.seen().eois += 1;
        match &self.host_target {
            Some(target) => {
                let served = msi::serve(target, 0x30..=0xdf, msi::PASSES, dispatch, eoi);
                let posts = &mut self.seen().posts;
                posts.notifications += 1;
                posts.posted_turns += u64::from(served.turns);
                posts.posted += u64::from(served.interrupts);
                posts.posted_stray += u64::from(served.stray);
            }
            None => eoi(),
        }
    }
    fn msi_message(
        &self,
        source: &MsiSource,
        cpu: CpuId,
        vector: u8,
        post: Option<&PostTo>,
    ) -> Option<MsiMessage> {
        self.seen().senders.push(*source);
        if let Some(unit) = &self.vtd {
            return self.route(unit, source, (cpu.0, vector), post);
        }
        Some(MsiMessage {
            address: 0xfee0_0000 | u64::from(cpu.0) << 12,
            data: u32::from(vector),
        })
    }
    fn ioapics(&self) -> Vec<IoApicInfo> {
        vec![IoApicInfo {
            id: 0,
            address: Hpa(0xfec0_0000),
            gsi_base: 0,
            pins: 24,
        }]
    }
    fn route_gsi(&self, gsi: u32, cpu: CpuId, vector: u8, mode: LineMode) -> bool {
        self.seen().gsis.insert(gsi, (cpu.0, vector, mode, true));
        gsi < 24
    }
    fn mask_gsi(&self, gsi: u32, masked: bool) {
        if let Some(route) = self.seen().gsis.get_mut(&gsi) {
            route.3 = masked;
        }
    }
    fn port_in(&self, port: u16, width: Width) -> u32 {
        self.seen().ports.get(&port).copied().unwrap_or(u32::MAX) & width.mask() as u32
    }
    fn port_out(&self, port: u16, width: Width, value: u32) {
        self.seen().port_writes.push((port, width, value));
    }
    fn mmio_read(&self, hpa: Hpa, width: Width) -> Option<u64> {
        Some(self.seen().mmio.get(&hpa.0).copied().unwrap_or(u64::MAX) & width.mask())
    }
    fn mmio_write(&self, hpa: Hpa, width: Width, value: u64) -> bool {
        self.seen().mmio.insert(hpa.0, value & width.mask());
        true
    }
    fn rdmsr(&self, _index: u32) -> Option<u64> {
        Some(0)
    }
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        match (leaf, subleaf) {
            (0, _) => [0xd, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
            (1, _) if self.xsave => [0, 0, 1 << 26, 0],
            (0xb, 0) if self.thread_bits > 0 => [self.thread_bits, 1 << self.thread_bits, 0x100, 0],
            (0xb, 1) if self.thread_bits > 0 => [8, self.cpus, 0x201, 0],
            (0xd, 0) if self.xsave => [XCR0 as u32, 832, 832, 0],
            (0xd, 2) if self.xsave => [256, 576, 0, 0],
            (0x8000_0000, _) => [0x8000_0008, 0, 0, 0],
            (0x8000_0008, _) => [0x3028, 0, 0, 0],
            _ => [0; 4],
        }
    }
    fn new_vcpu(&self, _setup: &VcpuSetup) -> Option<FakeVcpu> {
        let mut vcpu = FakeVcpu::default();
        if self.posting {
            vcpu.target = Some(Arc::new(PostTarget::new()?));
        }
        Some(vcpu)
    }
    fn stage2_format(&self) -> Format {
        Format::Npt
    }
    fn stage2_order(&self) -> u8 {
        18
    }
    fn phys_bits(&self) -> u8 {
        40
    }
    fn page_is_ours(&self, mfn: Mfn) -> bool {
        mfn == Hpa(0xfec0_0000).mfn()
    }
    fn own_functions(&self) -> Vec<Bdf> {
        Vec::new()
    }
    fn console_write(&self, bytes: &[u8], keep: bool) {
        let mut seen = self.seen();
        seen.console.extend_from_slice(bytes);
        if keep {
            seen.log.extend_from_slice(bytes);
        }
    }
    fn log_end(&self) -> u64 {
        self.seen().log.len() as u64
    }
    fn console_read(&self, buf: &mut [u8]) -> usize {
        let mut seen = self.seen();
        let n = buf.len().min(seen.console_in.len());
        for (to, from) in buf.iter_mut().zip(seen.console_in.drain(..n)) {
            *to = from;
        }
        n
    }
    fn log_read(&self, position: u64, buf: &mut [u8]) -> (usize, u64) {
        let seen = self.seen();
        let from = (position as usize).clamp(seen.log_cleared, seen.log.len());
        let n = buf.len().min(seen.log.len() - from);
        buf[..n].copy_from_slice(&seen.log[from..from + n]);
        (n, (from + n) as u64)
    }
    fn log_clear(&self, position: u64) {
        let mut seen = self.seen();
        seen.log_cleared = (position as usize).clamp(seen.log_cleared, seen.log.len());
    }
    fn port_is_ours(&self, port: u16) -> bool {
        (0x3f8..0x400).contains(&port)
    }
    fn power(&self, action: PowerAction) -> ! {
        panic!("power action: {action:?}")
    }
}
