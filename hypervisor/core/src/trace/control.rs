//! Size, masks, on and off; the pages that tell where the rings are.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hv_hw::machine::CpuId;
use hv_hw::mem::{FrameRef, FrameRun};
use x86_model::{Mfn, PAGE_SIZE};
use xen_abi::trace::class;
use xen_abi::{DomId, Errno};

use super::ring::Ring;
use crate::hotplug::Stage;
use crate::hypervisor::Hypervisor;
use crate::sched::CpuMask;

/// Most pages of all rings together: 64 MiB.
const MOST: usize = 1 << 14;

/// What dom0 has set.
pub struct Control {
    on: bool,
    events: u32,
    cpus: CpuMask,
    buffers: Option<Buffers>,
}

/// The pages. They stay for ever.
struct Buffers {
    /// Pages of each ring.
    pages: u32,
    /// Consecutive pages that tell the numbers of the others.
    info: Vec<FrameRef>,
    /// By CPU; none for those that were offline.
    rings: Box<[Option<Arc<Ring>>]>,
    /// Pages of rings, ascending.
    shared: Vec<FrameRef>,
}

/// What dom0 is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Events that are recorded while tracing is on.
    pub events: u32,
    /// First of the pages that tell where the rings are; 0 without rings.
    pub first: u64,
    /// Bytes in these pages.
    pub bytes: u32,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            on: false,
            events: class::ALL,
            cpus: CpuMask::ALL,
            buffers: None,
        }
    }
}

impl Control {
    /// The ring that a CPU shall write into.
    pub fn ring(&self, cpu: CpuId) -> Option<Arc<Ring>> {
        let wanted = self.on && self.cpus.contains(cpu);
        let rings = &self.buffers.as_ref().filter(|_| wanted)?.rings;
        rings.get(cpu.0 as usize)?.clone()
    }

    /// A page that dom0 may map, and whether it may write it.
    pub fn page(&self, mfn: Mfn) -> Option<(FrameRef, bool)> {
        let buffers = self.buffers.as_ref()?;
        if let Some(page) = buffers.info.iter().find(|p| p.mfn() == mfn) {
            return Some((page.clone(), false));
        }
        let at = buffers.shared.binary_search_by_key(&mfn, FrameRef::mfn);
        Some((buffers.shared[at.ok()?].clone(), true))
    }
}

impl Buffers {
    /// Rings of this many pages for the CPUs that are online. ENOMEM.
    fn new(online: &[bool], pages: usize) -> Result<Self, Errno> {
        let first_word = (2 + 2 * online.len()).div_ceil(4);
        let words = first_word + online.len() * pages;
        let info_pages = (4 * words).div_ceil(PAGE_SIZE as usize);
        let order = info_pages.next_power_of_two().ilog2() as u8;
        let run = FrameRun::alloc(DomId::XEN, order, 0).ok_or(Errno::ENOMEM)?;
        let first = run.into_raw().0;
        let frames = (0..1u64 << order).map(|n| FrameRef::from_raw(Mfn(first + n)));
        let info: Vec<FrameRef> = frames.collect();
        let half = |at: usize, value: u16| {
            let page = &info[2 * at / PAGE_SIZE as usize];
            let view = page.atomic_u16(2 * at % PAGE_SIZE as usize);
            view.store(value, Ordering::Relaxed);
        };
        half(0, pages as u16);
        let mut rings = Vec::new();
        let mut shared = Vec::new();
        let total = online.len() * pages;
        rings.try_reserve(online.len()).map_err(|_| Errno::ENOMEM)?;
        shared.try_reserve(total).map_err(|_| Errno::ENOMEM)?;
        for (cpu, there) in online.iter().enumerate() {
            if !there {
                rings.push(None);
                continue;
            }
            let at = first_word + cpu * pages;
            half(1 + cpu, at as u16);
            let mut own = Vec::new();
            own.try_reserve(pages).map_err(|_| Errno::ENOMEM)?;
            for n in 0..pages {
                let page = FrameRef::alloc(DomId::XEN).ok_or(Errno::ENOMEM)?;
                let byte = 4 * (at + n);
                let number = u32::try_from(page.mfn().0).map_err(|_| Errno::ENOMEM)?;
                info[byte / PAGE_SIZE as usize]
                    .atomic_u32(byte % PAGE_SIZE as usize)
                    .store(number, Ordering::Relaxed);
                shared.push(page.clone());
                own.push(page);
            }
            rings.push(Some(Arc::new(Ring::new(own.into_boxed_slice()))));
        }
        shared.sort_unstable_by_key(FrameRef::mfn);
        Ok(Buffers {
            pages: pages as u32,
            info,
            rings: rings.into_boxed_slice(),
            shared,
        })
    }
}

impl Hypervisor {
    /// What is set, and where the pages are.
    pub fn trace_info(&self) -> Info {
        let control = self.trace.control.lock();
        let pages = control.buffers.as_ref().map(|b| &b.info);
        Info {
            events: control.events,
            first: pages.map_or(0, |p| p[0].mfn().0),
            bytes: pages.map_or(0, |p| p.len() as u32 * PAGE_SIZE as u32),
        }
    }

    /// Only on these CPUs.
    pub fn trace_cpus(&self, cpus: CpuMask) {
        self.trace.control.lock().cpus = cpus;
        self.trace_changed();
    }

    /// Only these events.
    pub fn trace_events(&self, events: u32) {
        self.trace.control.lock().events = events;
        self.trace_changed();
    }

    /// As [`Hypervisor::make_rings`], and switches tracing on.
    pub fn trace_size(&self, pages: u32) -> Result<(), Errno> {
        self.make_rings(pages)?;
        self.trace.control.lock().on = true;
        self.trace_changed();
        Ok(())
    }

    /// As [`Hypervisor::make_rings`], and records these events from now on. With none of them a tool has to switch tracing on.
    pub fn trace_from_boot(&self, pages: u32, events: u32) -> Result<(), Errno> {
        self.make_rings(pages)?;
        if events != 0 {
            let mut control = self.trace.control.lock();
            (control.events, control.on) = (events, true);
            drop(control);
            self.trace_changed();
        }
        Ok(())
    }

    /// Makes rings of so many pages for each CPU that is online now. Once only: EBUSY, or EINVAL for another size. ENOMEM.
    /// More than is sensible becomes less.
    fn make_rings(&self, pages: u32) -> Result<(), Errno> {
        let online: Vec<bool> = self
            .pcpus
            .iter()
            .map(|p| p.hotplug.stage() == Stage::Online)
            .collect();
        // A ring's first number must be within reach of 16 bits, and twice its bytes within reach of 32.
        let reach = (usize::from(u16::MAX) - online.len()) / online.len();
        let most = reach.min(MOST / online.len()).max(1);
        let size = (pages as usize).min(most);
        let mut control = self.trace.control.lock();
        match &control.buffers {
            Some(b) if b.pages as usize == size => return Err(Errno::EBUSY),
            Some(_) => return Err(Errno::EINVAL),
            None if size == 0 => return Err(Errno::EINVAL),
            None => {}
        }
        if size < pages as usize {
            hv_hw::warn!(
                "trace buffers of {size} pages a CPU instead of {pages}: more is not sensible"
            );
        }
        control.buffers = Some(Buffers::new(&online, size)?);
        Ok(())
    }

    /// Switches tracing on or off. EINVAL without rings.
    pub fn trace_on(&self, on: bool) -> Result<(), Errno> {
        let mut control = self.trace.control.lock();
        match &control.buffers {
            None if on => return Err(Errno::EINVAL),
            Some(b) if !on => b.rings.iter().flatten().for_each(|r| r.forget_lost()),
            _ => {}
        }
        control.on = on;
        drop(control);
        self.trace_changed();
        Ok(())
    }

    /// Makes every CPU look. What must stop, stops at once.
    fn trace_changed(&self) {
        let control = self.trace.control.lock();
        let mask = if control.on { control.events } else { 0 };
        self.trace.mask.store(mask, Ordering::Relaxed);
        drop(control);
        self.trace.epoch.fetch_add(1, Ordering::Release);
        self.resched_all();
    }
}
