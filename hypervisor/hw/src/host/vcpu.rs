//! A fake vCPU: registers that tests set, exits that tests script.

use std::collections::VecDeque;
use std::sync::Arc;

use x86_model::{Gprs, xsave};

use crate::machine::{Event, Exit, GuestContext, PagingState, SystemState};
use crate::mem::Stage2;
use crate::posted::PostTarget;

/// Bytes of the extended registers of x87, SSE and AVX.
const AREA: usize = 832;

/// A vCPU whose exits come from a script.
pub struct FakeVcpu {
    gprs: Gprs,
    extended: Vec<u8>,
    breakpoints: [u64; 4],
    /// System registers.
    pub sys: SystemState,
    /// What [`GuestContext::run`] returns, in order; then `Hlt`.
    pub script: VecDeque<Exit>,
    /// An injected event has not reached the guest: what [`GuestContext::injecting`] says.
    pub undelivered: bool,
    /// Events injected so far.
    pub injected: Vec<Event>,
    /// Whether a window was asked for.
    pub window: bool,
    /// Where its interrupts are posted.
    pub target: Option<Arc<PostTarget>>,
    /// CPL.
    pub cpl: u8,
    xcr0: u64,
    /// Task priority; a guest's write to CR8 changes it.
    pub tpr: u8,
    /// The class below which a lower task priority exits; 0 if none is watched for.
    pub watched: u8,
    /// What [`GuestContext::exit_number`] says.
    pub number: u32,
    msrs: std::collections::BTreeMap<u32, u64>,
}

impl Default for FakeVcpu {
    fn default() -> Self {
        let mut extended = vec![0; AREA];
        xsave::reset(&mut extended);
        FakeVcpu {
            extended,
            breakpoints: [0; 4],
            gprs: Gprs::default(),
            sys: SystemState::default(),
            script: VecDeque::new(),
            undelivered: false,
            injected: Vec::new(),
            window: false,
            target: None,
            cpl: 0,
            xcr0: 0,
            tpr: 0,
            watched: 0,
            number: 0,
            msrs: Default::default(),
        }
    }
}

impl GuestContext for FakeVcpu {
    fn gprs(&self) -> &Gprs {
        &self.gprs
    }
    fn gprs_mut(&mut self) -> &mut Gprs {
        &mut self.gprs
    }
    fn rip(&self) -> u64 {
        self.sys.rip
    }
    fn set_rip(&mut self, rip: u64) {
        self.sys.rip = rip;
    }
    fn paging(&self) -> PagingState {
        let s = &self.sys;
        let long = s.efer & 1 << 10 != 0 && s.segments[1].access & 1 << 13 != 0;
        PagingState {
            cr0: s.cr0,
            cr3: s.cr3,
            cr4: s.cr4,
            efer: s.efer,
            rflags: s.rflags,
            cpl: self.cpl,
            long,
        }
    }
    fn state(&self) -> SystemState {
        self.sys.clone()
    }
    fn set_state(&mut self, state: &SystemState) {
        self.sys = state.clone();
    }
    fn set_cr4(&mut self, value: u64) {
        self.sys.cr4 = value;
    }
    fn context_msr(&self, index: u32) -> Option<u64> {
        match index {
            0xc000_0080 => Some(self.sys.efer),
            0x277 => Some(self.sys.pat),
            _ => self.msrs.get(&index).copied(),
        }
    }
    fn set_context_msr(&mut self, index: u32, value: u64) -> bool {
        match index {
            0xc000_0080 => self.sys.efer = value,
            0x277 => self.sys.pat = value,
            0x174..=0x176 | 0xc000_0081..=0xc000_0084 | 0xc000_0100..=0xc000_0103 => {
                self.msrs.insert(index, value);
            }
            _ => return false,
        }
        true
    }
    fn set_xcr0(&mut self, value: u64) {
        self.xcr0 = value;
    }
    fn xcr0(&self) -> u64 {
        self.xcr0
    }
    fn extended(&self) -> &[u8] {
        &self.extended
    }
    fn set_extended(&mut self, image: &[u8]) {
        let mask = xsave::MXCSR_DEFAULT_MASK;
        xsave::replace(&mut self.extended, image, super::machine::XCR0, mask);
    }
    fn breakpoints(&self) -> [u64; 4] {
        self.breakpoints
    }
    fn set_breakpoints(&mut self, at: [u64; 4]) {
        self.breakpoints = at;
    }
    fn set_tsc_offset(&mut self, _offset: u64) {}
    fn enter_cpu(&mut self) {}
    fn leave(&mut self) {}
    fn run(&mut self, _stage2: &Stage2) -> Exit {
        self.script.pop_front().unwrap_or(Exit::Hlt { len: 1 })
    }
    fn exit_number(&self) -> u32 {
        self.number
    }
    fn interruptible(&self) -> bool {
        self.interrupts_enabled() && self.injected.is_empty()
    }
    fn interrupts_enabled(&self) -> bool {
        self.sys.rflags & 1 << 9 != 0
    }
    fn inject(&mut self, event: Event) -> bool {
        self.injected.push(event);
        true
    }
    fn injecting(&self) -> bool {
        self.undelivered
    }
    fn request_window(&mut self, on: bool) {
        self.window = on;
    }
    fn fetched_bytes(&self) -> &[u8] {
        &[]
    }
    fn tpr(&self, last: u8) -> u8 {
        if self.tpr >> 4 == last >> 4 {
            last
        } else {
            self.tpr
        }
    }
    fn set_tpr(&mut self, tpr: u8) {
        self.tpr = tpr;
    }
    fn watch_tpr(&mut self, class: u8) {
        self.watched = class;
    }
    fn post_target(&self) -> Option<Arc<PostTarget>> {
        self.target.clone()
    }
}
