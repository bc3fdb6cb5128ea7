//! [`Machine`] on the metal: thin methods over the modules that own the state.

use core::sync::atomic::Ordering;

use alloc::vec::Vec;

use x86_model::pci::Bdf;
use x86_model::posted::{Ndst, Notice};
use x86_model::regs::apic as bits;
use x86_model::{Hpa, Mfn, Width};

use super::apic::{self, ioapic, vectors};
use super::asm;
use super::cpu::percpu::PerCpu;
use super::cpu::{features, msr, percpu};
use super::virt::{self, Backend, GuestCpu};
use super::{iommu, paging, panic, power, smp, time};
use crate::machine::{
    ApicAssists, CpuId, HostInterrupt, InterruptCounts, IoApicInfo, LineMode, Machine, MsiMessage,
    MsiSource, PostTo, PowerAction, Receiver, VcpuSetup,
};
use crate::mem::stage2::Format;

/// The machine. A token: whoever holds it came through the boot order, so that everything below is ready.
pub struct Metal {
    backend: Backend,
}

impl Metal {
    /// For the end of the bring-up.
    pub(super) fn new(backend: Backend) -> Self {
        Metal { backend }
    }
}

impl Machine for Metal {
    type Vcpu = GuestCpu;

    #[inline]
    fn now_ns(&self) -> u64 {
        time::now_ns()
    }
    #[inline]
    fn tsc(&self) -> u64 {
        asm::rdtsc()
    }
    fn tsc_khz(&self) -> u32 {
        time::tsc_khz()
    }
    #[inline]
    fn tsc_to_ns(&self, tsc: u64) -> u64 {
        time::tsc_to_ns(tsc)
    }
    fn tsc_reliable(&self) -> bool {
        time::tsc_reliable()
    }
    fn wallclock(&self) -> (u64, u32) {
        time::wallclock()
    }
    #[inline]
    fn set_timer(&self, deadline_ns: Option<u64>) {
        time::set_timer(deadline_ns);
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        percpu::this().id()
    }
    fn cpu_count(&self) -> u32 {
        percpu::count()
    }
    fn cpu_ids(&self, cpu: CpuId) -> Option<(u32, u32)> {
        percpu::of(cpu).map(|c| (c.apic_id(), c.acpi_uid()))
    }
    #[inline]
    fn kick(&self, cpu: CpuId) {
        if cpu != percpu::this().id()
            && let Some(target) = percpu::of(cpu)
        {
            apic::send(target, vectors::KICK);
        }
    }

    fn post_notice(&self, cpu: CpuId, receiver: Receiver) -> Option<Notice> {
        Some(Notice {
            vector: match receiver {
                Receiver::Running => vectors::POSTED,
                Receiver::Sleeping => vectors::WAKE,
            },
            dest: Ndst::new(percpu::of(cpu)?.apic_id(), apic::x2apic())?,
        })
    }
    #[inline]
    fn notify(&self, cpu: CpuId) {
        if let Some(target) = percpu::of(cpu) {
            apic::send(target, virt::notification(target));
        }
    }

    #[inline]
    fn take_interrupt(&self) -> Option<HostInterrupt> {
        let cpu = percpu::this();
        loop {
            if !cpu.has_vector() {
                asm::interrupt_window();
            }
            return Some(match cpu.take_vector()? {
                vectors::KICK | vectors::POSTED => {
                    apic::eoi();
                    HostInterrupt::Kick
                }
                vectors::POSTED_MSI => HostInterrupt::Posted,
                vectors::WAKE => {
                    apic::eoi();
                    HostInterrupt::Wake
                }
                vectors::TIMER => {
                    apic::eoi();
                    if !time::timer_fired() {
                        continue;
                    }
                    HostInterrupt::Timer
                }
                vectors::CONSOLE => {
                    apic::eoi();
                    HostInterrupt::Console
                }
                vectors::IOMMU => {
                    apic::eoi();
                    iommu::report_faults();
                    continue;
                }
                vector @ vectors::FIRST_DEVICE..=vectors::LAST_DEVICE => {
                    HostInterrupt::Device(vector)
                }
                vector => {
                    apic::unexpected(vector);
                    HostInterrupt::Spurious
                }
            });
        }
    }
    #[inline]
    fn eoi(&self) {
        apic::eoi();
    }
    fn hangs(&self, cpu: CpuId, seconds: u64) {
        if let Some(stuck) = percpu::of(cpu) {
            panic::hang(stuck, seconds);
        }
    }
    fn idle(&self, ready: &mut dyn FnMut() -> bool) {
        // A vector that an earlier halt recorded is still to be taken, and would be overwritten by the next one.
        if !percpu::this().has_vector() && !ready() {
            asm::halt_for_interrupt();
        }
    }

    fn alloc_vector(&self, cpu: CpuId) -> Option<u8> {
        vectors::alloc(percpu::of(cpu)?)
    }
    fn is_online(&self, cpu: CpuId) -> bool {
        percpu::of(cpu).is_some_and(PerCpu::is_online)
    }
    fn set_online(&self, cpu: CpuId, online: bool) {
        if let Some(block) = percpu::of(cpu) {
            if online {
                vectors::inherit(block);
            }
            block.set_online(online);
        }
    }
    fn stop_cpu(&self) -> ! {
        smp::stop_this_cpu(self.backend)
    }
    fn has_stopped(&self, cpu: CpuId) -> bool {
        percpu::of(cpu).is_some_and(|block| block.halted.load(Ordering::Acquire))
    }
    fn start_cpu(&self, cpu: CpuId) -> Result<(), &'static str> {
        smp::start_again(percpu::of(cpu).ok_or("there is no such CPU")?)
    }
    fn take_vector(&self, cpu: CpuId, vector: u8) -> bool {
        percpu::of(cpu).is_some_and(|cpu| vectors::take(cpu, vector))
    }
    fn shares_vectors(&self, one: CpuId, other: CpuId) -> bool {
        match (percpu::of(one), percpu::of(other)) {
            (Some(one), Some(other)) => vectors::shared(one, other),
            _ => false,
        }
    }
    fn vector_waits(&self, vector: u8) -> bool {
        apic::waits(vector) || iommu::host_posts::waits(percpu::this().id(), vector)
    }
    fn move_message(&self, from: (CpuId, u8), to: (CpuId, u8)) -> bool {
        percpu::of(to.0).is_some_and(|target| {
            let how = apic::target(target, to.1, false);
            iommu::move_message((from.0.0, from.1), to.0.0, how)
        })
    }
    fn move_gsi(&self, gsi: u32, cpu: CpuId, vector: u8) -> bool {
        percpu::of(cpu).is_some_and(|target| ioapic::reroute(gsi, target, vector))
    }
    fn free_vector(&self, cpu: CpuId, vector: u8) {
        // The entry first: nobody may get the vector while a message can still raise it.
        iommu::forget_message(cpu.0, vector);
        if let Some(cpu) = percpu::of(cpu) {
            vectors::free(cpu, vector);
        }
    }
    fn interrupt_counts(&self, cpu: CpuId) -> Option<InterruptCounts> {
        let posts = iommu::host_posts::counts(cpu);
        let cpu = percpu::of(cpu)?;
        let (settled, repaired) = cpu.settled_and_repaired();
        Some(InterruptCounts {
            vectors_used: cpu.vectors.used(),
            vectors: x86_model::interrupt::vectors::COUNT,
            spurious: cpu.spurious.load(Ordering::Relaxed),
            icr_writes: cpu.icr_writes.load(Ordering::Relaxed),
            notifications: posts[0],
            posted_turns: posts[1],
            posted: posts[2],
            posted_stray: posts[3],
            exits_settled: settled,
            exits_repaired: repaired,
        })
    }
    fn remaps_interrupts(&self) -> bool {
        iommu::active()
    }
    fn posts_interrupts(&self) -> bool {
        iommu::posts()
    }
    fn serve_posted(&self, dispatch: &mut dyn FnMut(u8)) {
        iommu::host_posts::serve(percpu::this().id(), dispatch);
    }
    fn msi_message(
        &self,
        source: &MsiSource,
        cpu: CpuId,
        vector: u8,
        post: Option<&PostTo>,
    ) -> Option<MsiMessage> {
        let target = percpu::of(cpu)?;
        if iommu::active() {
            let target = apic::target(target, vector, false);
            return iommu::message(source, cpu.0, target, post);
        }
        Some(MsiMessage {
            address: bits::msi_address(target.apic_id())?,
            data: u32::from(vector),
        })
    }
    fn ioapics(&self) -> Vec<IoApicInfo> {
        ioapic::list()
    }
    fn route_gsi(&self, gsi: u32, cpu: CpuId, vector: u8, mode: LineMode) -> bool {
        percpu::of(cpu).is_some_and(|target| ioapic::route(gsi, target, vector, mode))
    }
    fn mask_gsi(&self, gsi: u32, masked: bool) {
        ioapic::mask(gsi, masked);
    }

    fn port_in(&self, port: u16, width: Width) -> u32 {
        match width {
            Width::B1 => asm::inb(port).into(),
            Width::B2 => asm::inw(port).into(),
            Width::B4 => asm::inl(port),
            Width::B8 => u32::MAX,
        }
    }
    fn port_out(&self, port: u16, width: Width, value: u32) {
        // SAFETY: the caller's policy allowed the port, which is what the contract asks of it; devices that could be
        // programmed to overwrite the hypervisor by DMA are held back by the IOMMU where there is one.
        unsafe {
            match width {
                Width::B1 => asm::outb(port, value as u8),
                Width::B2 => asm::outw(port, value as u16),
                Width::B4 => asm::outl(port, value),
                Width::B8 => {}
            }
        }
    }
    fn mmio_read(&self, hpa: Hpa, width: Width) -> Option<u64> {
        let p = device(hpa, width)?;
        // SAFETY: `device` gave a mapping of at least `width` bytes of device memory.
        unsafe {
            Some(match width {
                Width::B1 => p.read_volatile().into(),
                Width::B2 => p.cast::<u16>().read_volatile().into(),
                Width::B4 => p.cast::<u32>().read_volatile().into(),
                Width::B8 => p.cast::<u64>().read_volatile(),
            })
        }
    }
    fn mmio_write(&self, hpa: Hpa, width: Width, value: u64) -> bool {
        let Some(p) = device(hpa, width) else {
            return false;
        };
        // SAFETY: as for `mmio_read`; not RAM and not a device of the hypervisor's.
        unsafe {
            match width {
                Width::B1 => p.write_volatile(value as u8),
                Width::B2 => p.cast::<u16>().write_volatile(value as u16),
                Width::B4 => p.cast::<u32>().write_volatile(value as u32),
                Width::B8 => p.cast::<u64>().write_volatile(value),
            }
        }
        true
    }
    fn rdmsr(&self, index: u32) -> Option<u64> {
        msr::rdmsr_safe(index)
    }
    fn apic_assists(&self) -> ApicAssists {
        self.backend.apic_assists()
    }
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        asm::cpuid(leaf, subleaf)
    }

    fn new_vcpu(&self, setup: &VcpuSetup) -> Option<Self::Vcpu> {
        self.backend.new_vcpu(setup)
    }
    fn stage2_format(&self) -> Format {
        self.backend.stage2_format()
    }
    fn stage2_order(&self) -> u8 {
        self.backend.stage2_order()
    }
    fn phys_bits(&self) -> u8 {
        features::get().phys_bits.min(48)
    }

    fn page_is_ours(&self, mfn: Mfn) -> bool {
        mfn == apic::page_address().mfn() || ioapic::owns(mfn.hpa()) || iommu::owns(mfn.hpa())
    }
    fn own_functions(&self) -> Vec<Bdf> {
        iommu::own_functions()
    }

    fn console_write(&self, bytes: &[u8], keep: bool) {
        crate::log::console_write(bytes, keep);
    }
    #[inline]
    fn log_end(&self) -> u64 {
        crate::log::ring_end()
    }
    fn log_read(&self, position: u64, buf: &mut [u8]) -> (usize, u64) {
        crate::log::read_ring(position, buf)
    }
    fn log_clear(&self, position: u64) {
        crate::log::clear_ring(position);
    }
    fn console_read(&self, buf: &mut [u8]) -> usize {
        crate::log::console_read(buf)
    }
    fn port_is_ours(&self, port: u16) -> bool {
        crate::log::owns_port(port)
    }

    fn power(&self, action: PowerAction) -> ! {
        power::end(action)
    }
}

/// A pointer to device memory that a domain may touch: naturally aligned (so that it stays in one page), not RAM, not
/// the local APIC's window, not an IO-APIC, not an IOMMU.
fn device(hpa: Hpa, width: Width) -> Option<*mut u8> {
    let aligned = hpa.0.is_multiple_of(width.bytes() as u64);
    let ours = hpa.mfn() == apic::page_address().mfn() || ioapic::owns(hpa) || iommu::owns(hpa);
    if !aligned || ours {
        return None;
    }
    paging::map_mmio(hpa, width.bytes() as u64)
}
