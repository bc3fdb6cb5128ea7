//! A system on the fake machine: a control domain, and guests if asked for. The RAM of each is gfn 0 to `PAGES - 1`, paging is
//! off, the code is 64-bit.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod toolstack;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hv_core::domain::{CpuPolicy, Domain, DomainConfig, DomainSetup, MemoryRange};
use hv_core::hvm::platform::Platform;
use hv_core::hypercall;
use hv_core::hypervisor::{Hypervisor, Identity};
use hv_core::irq::pirq::Pirqs;
use hv_core::p2m::{P2m, PageType};
use hv_core::sched::{CpuMask, Params, Scheduler};
use hv_core::vcpu::exits::Next;
use hv_core::vcpu::run::{PcpuLocal, Turn};
use hv_core::vcpu::{NO_CPU, VcpuRef};
use hv_hw::host::FakeMachine;
use hv_hw::machine::{CpuId, Segment};
use hv_hw::mem::FrameRef;
use hv_hw::{GuestContext, Machine};
use x86_model::{Gfn, Gpa, Gpr};
use xen_abi::{DomId, Errno};

/// Pages of RAM of the domain.
pub const PAGES: u64 = 64;

/// Access rights of code segments.
const CODE_64: u32 = 0xa09b;
const CODE_32: u32 = 0xc09b;

/// The system.
pub struct System {
    pub hv: Hypervisor,
    pub dom: Arc<Domain>,
}

impl System {
    pub fn new(vcpus: u32) -> Self {
        Self::on(FakeMachine::new(2), vcpus)
    }

    /// With interrupts as events, on a machine with 24 lines.
    pub fn with_pirqs(vcpus: u32) -> Self {
        Self::make(FakeMachine::new(2), vcpus, Some(Pirqs::new(24)))
    }

    /// On a certain machine.
    pub fn on(hw: FakeMachine, vcpus: u32) -> Self {
        Self::make(hw, vcpus, None)
    }

    fn make(hw: FakeMachine, vcpus: u32, pirqs: Option<Pirqs>) -> Self {
        let sched = Scheduler::by_name(hv_hw::config::SCHED_DEFAULT, hw.cpus, 10_000_000).unwrap();
        let identity = Identity {
            screen: hv_hw::bootinfo::Screen::Unknown,
            efi: false,
            major: 4,
            minor: 17,
            extra: ".0-test".into(),
            compile: ["rustc".into(), "me".into(), "here".into(), "now".into()],
            changeset: "none".into(),
            build_id: vec![0xab, 0xcd, 0xef],
            command_line: "console=com1".into(),
        };
        let hv = Hypervisor::new(hw, identity, sched, false);
        let platform = Platform::new(&hv.hw.ioapics(), Vec::new(), &[]);
        let dom = domain(&hv, DomId::DOM0, vcpus, Some(platform), pirqs);
        hv.add_domain(dom.clone()).unwrap();
        System { hv, dom }
    }

    /// Adds a domain without privileges; its memory is laid out like the control domain's.
    pub fn add_guest(&self, id: u16, vcpus: u32) -> Arc<Domain> {
        let dom = domain(&self.hv, DomId(id), vcpus, None, None);
        self.hv.add_domain(dom.clone()).unwrap();
        dom
    }

    /// The same with interrupts as events.
    pub fn add_guest_with_pirqs(&self, id: u16, vcpus: u32) -> Arc<Domain> {
        let dom = domain(&self.hv, DomId(id), vcpus, None, Some(Pirqs::new(0)));
        self.hv.add_domain(dom.clone()).unwrap();
        dom
    }

    /// Makes a hypercall on a vCPU; RAX afterwards, and what the run loop would do next.
    pub fn call_next(&self, vcpu: u32, number: u64, args: [u64; 5]) -> (i64, Next) {
        self.call_from(&self.dom, vcpu, number, args)
    }

    /// As [`System::call_next`], for a vCPU of `dom`.
    pub fn call_from(
        &self,
        dom: &Arc<Domain>,
        vcpu: u32,
        number: u64,
        args: [u64; 5],
    ) -> (i64, Next) {
        self.call_in(dom, vcpu, number, args, false)
    }

    /// As [`System::call_from`], `narrow`: in 32-bit mode, where a call passes the low halves of its arguments.
    pub fn call_in(
        &self,
        dom: &Arc<Domain>,
        vcpu: u32,
        number: u64,
        args: [u64; 5],
        narrow: bool,
    ) -> (i64, Next) {
        let v = dom.vcpu(vcpu).unwrap();
        // As the run loop does: announce the run, then look whether somebody holds the vCPU.
        v.running_on.store(0, Ordering::SeqCst);
        if v.pause.load(Ordering::SeqCst) != 0 {
            v.running_on.store(NO_CPU, Ordering::SeqCst);
            return (Errno::EBUSY.to_ret(), Next::Down);
        }
        let answer = self.run_call(dom, v, number, args, narrow);
        v.running_on.store(NO_CPU, Ordering::SeqCst);
        answer
    }

    fn run_call(
        &self,
        dom: &Arc<Domain>,
        v: &VcpuRef,
        number: u64,
        args: [u64; 5],
        narrow: bool,
    ) -> (i64, Next) {
        let mut local = v.local.try_lock().unwrap();
        let mut pcpu = PcpuLocal::new(CpuId(0));
        let regs = if narrow {
            [Gpr::Rbx, Gpr::Rcx, Gpr::Rdx, Gpr::Rsi, Gpr::Rdi]
        } else {
            [Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::R10, Gpr::R8]
        };
        local.ctx.sys.segments[1].access = if narrow { CODE_32 } else { CODE_64 };
        local.ctx.gprs_mut().set(Gpr::Rax, number);
        for (r, a) in regs.into_iter().zip(args) {
            local.ctx.gprs_mut().set(r, a);
        }
        // Restarts leave RIP where it was; a guest would execute the instruction again.
        for _ in 0..10_000 {
            local.ctx.set_rip(0x1000);
            let mut turn = Turn {
                hv: &self.hv,
                pcpu: &mut pcpu,
                domain: dom,
                vcpu: v,
                local: &mut local,
            };
            let next = hypercall::dispatch(&mut turn, 3);
            if local.ctx.rip() == 0x1003 {
                let rax = local.ctx.gprs().get(Gpr::Rax);
                let answer = if narrow {
                    i64::from(rax as i32)
                } else {
                    rax as i64
                };
                return (answer, next);
            }
        }
        panic!("hypercall {number} {args:x?} never ends");
    }

    /// Makes a hypercall and executes the instruction once; `None` if it is to be executed again.
    pub fn call_once(&self, vcpu: u32, number: u64, args: [u64; 5]) -> Option<i64> {
        let v = self.dom.vcpu(vcpu).unwrap();
        let mut local = v.local.try_lock().unwrap();
        let mut pcpu = PcpuLocal::new(CpuId(0));
        let regs = [Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::R10, Gpr::R8];
        local.ctx.gprs_mut().set(Gpr::Rax, number);
        for (r, a) in regs.into_iter().zip(args) {
            local.ctx.gprs_mut().set(r, a);
        }
        local.ctx.set_rip(0x1000);
        let mut turn = Turn {
            hv: &self.hv,
            pcpu: &mut pcpu,
            domain: &self.dom,
            vcpu: v,
            local: &mut local,
        };
        hypercall::dispatch(&mut turn, 3);
        (local.ctx.rip() == 0x1003).then(|| local.ctx.gprs().get(Gpr::Rax) as i64)
    }

    pub fn call(&self, vcpu: u32, number: u64, args: [u64; 5]) -> i64 {
        self.call_next(vcpu, number, args).0
    }

    /// Makes a hypercall in 32-bit mode.
    pub fn call_32(&self, vcpu: u32, number: u64, args: [u64; 5]) -> i64 {
        self.call_in(&self.dom, vcpu, number, args, true).0
    }

    /// Writes guest memory.
    pub fn poke(&self, gpa: u64, bytes: &[u8]) {
        hv_core::guest::access::write_phys(&self.dom.p2m, Gpa(gpa), bytes).unwrap();
    }

    /// Reads guest memory.
    pub fn peek<const N: usize>(&self, gpa: u64) -> [u8; N] {
        let (frame, _) = self.dom.p2m.frame(Gfn(gpa >> 12)).unwrap();
        let mut out = [0; N];
        frame.read((gpa & 4095) as usize, &mut out);
        out
    }

    /// Reads any number of bytes of guest memory.
    pub fn peek_bytes(&self, gpa: u64, count: usize) -> Vec<u8> {
        let mut out = vec![0; count];
        let mut at = gpa;
        let mut rest: &mut [u8] = &mut out;
        while !rest.is_empty() {
            let n = rest.len().min(4096 - (at & 4095) as usize);
            let (now, later) = rest.split_at_mut(n);
            let (frame, _) = self.dom.p2m.frame(Gfn(at >> 12)).unwrap();
            frame.read((at & 4095) as usize, now);
            (rest, at) = (later, at + n as u64);
        }
        out
    }

    pub fn peek_u32(&self, gpa: u64) -> u32 {
        u32::from_le_bytes(self.peek(gpa))
    }

    /// Writes little-endian 32-bit words.
    pub fn poke_words(&self, gpa: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.poke(gpa, &bytes);
    }
}

/// A domain with RAM at gfn 0 to `PAGES - 1` whose vCPUs are all up; not in the system yet.
fn domain(
    hv: &Hypervisor,
    id: DomId,
    vcpus: u32,
    platform: Option<Platform>,
    pirqs: Option<Pirqs>,
) -> Arc<Domain> {
    let p2m = P2m::new(id, hv.hw.stage2_format(), hv.hw.phys_bits(), Vec::new()).unwrap();
    for gfn in 0..PAGES {
        p2m.map(Gfn(gfn), FrameRef::alloc(id).unwrap(), PageType::Ram, true)
            .unwrap();
    }
    let setup = DomainSetup {
        id,
        privileged: id == DomId::DOM0,
        handle: [7; 16],
        memory_map: vec![MemoryRange {
            start: Gpa(0),
            len: PAGES * 4096,
            ty: 1,
        }],
        max_pages: PAGES + 16,
        vcpus,
        config: DomainConfig::default(),
        cpu: CpuPolicy::new(&hv.hw, id, vcpus, (4, 17), true),
        io_bitmap: None,
        platform,
        pirqs,
    };
    let dom = Domain::new(&hv.hw, setup, p2m).unwrap();
    assert_eq!(dom.make_vcpus(&hv.hw, u32::MAX), Ok(true));
    for v in dom.vcpus() {
        v.up.store(true, Ordering::SeqCst);
        v.initialised.store(true, Ordering::SeqCst);
        let mut local = v.local.try_lock().unwrap();
        local.started = true;
        local.ctx.sys.efer = 1 << 10 | 1 << 8;
        local.ctx.sys.segments[1] = Segment {
            access: CODE_64,
            ..Default::default()
        };
        hv.sched.with(|p| {
            p.insert(
                v.key,
                Params {
                    weight: 256,
                    hard: CpuMask::ALL,
                },
            )
        });
    }
    dom
}
