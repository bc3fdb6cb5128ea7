//! Owned control structure and permission maps of a vCPU.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use spin::Once;
use x86_model::regs::cr;
use x86_model::virt::vmx::capability::Controls;
use x86_model::virt::vmx::control::{exit, secondary};
use x86_model::virt::vmx::field::*;
use x86_model::virt::vmx::{CR0_HOST_OWNED, CR4_GUEST_OWNED, delivery, ept, msr_bitmap};
use x86_model::{Hpa, PAGE_SIZE};

use super::cpu::CpuBlock;
use super::entry;
use super::instr::write;
use crate::machine::VcpuSetup;
use crate::x86::apic::vectors;
use crate::x86::asm::{rdmsr, read_cr0, read_cr3, read_cr4};
use crate::x86::cpu::{gdt, percpu};
use crate::x86::quirks;
use crate::x86::virt::pages::Pages;

/// Two pages: ports 0 to 0x7fff, and the others.
const PORT_PAGES: usize = 2;
/// #DB and #AC are intercepted and put back: a guest can arrange that the delivery of either raises it again, without
/// end, and with no instruction boundary at which the CPU would take an interrupt. #MC belongs to the host.
const EXCEPTIONS: u32 = 1 << 1 | 1 << 17 | 1 << 18;
/// On Bochs all those that instructions raise as faults ([`quirks::bochs`]).
const FAULTS: u32 = !(1 << 2 | 1 << 3 | 1 << 4 | 1 << 8);

/// The maps that all vCPUs share: all ports trapped, and the MSR policy.
struct SharedMaps {
    ports: Pages,
    msrs: Pages,
    /// With the x2APIC MSRs that need no exit under each of [`X2APIC_CONTROLS`].
    x2apic_msrs: [Pages; 4],
}

/// What the CPU may do in x2APIC mode.
const X2APIC_CONTROLS: [u32; 4] = [
    secondary::X2APIC,
    secondary::X2APIC | secondary::APIC_REGISTERS,
    secondary::X2APIC | secondary::INTERRUPT_DELIVERY,
    secondary::X2APIC | secondary::APIC_REGISTERS | secondary::INTERRUPT_DELIVERY,
];

static SHARED: Once<SharedMaps> = Once::new();

fn shared() -> Option<&'static SharedMaps> {
    SHARED
        .try_call_once(|| {
            let ports = Pages::new(PORT_PAGES, 0xff).ok_or(())?;
            let mut msrs = Pages::new(1, 0xff).ok_or(())?;
            let map = msrs.bytes_mut().as_mut_array().ok_or(())?;
            for msr in msr_bitmap::DIRECT {
                msr_bitmap::set(map, msr, true, true);
            }
            let mut opened = |controls| {
                let mut map = Pages::new(1, 0).ok_or(())?;
                map.bytes_mut().copy_from_slice(msrs.bytes_mut());
                let bits = map.bytes_mut().as_mut_array().ok_or(())?;
                // On Bochs none may be requested while the guest cannot take it: see `delivery::show_one`.
                delivery::set_bitmap(bits, controls, !quirks::bochs());
                Ok(map)
            };
            let [a, b, c, d] = X2APIC_CONTROLS;
            let x2apic_msrs = [opened(a)?, opened(b)?, opened(c)?, opened(d)?];
            Ok::<_, ()>(SharedMaps {
                ports,
                msrs,
                x2apic_msrs,
            })
        })
        .ok()
}

/// A control structure, the virtual APIC page, and the vCPU's own port map, if it has one.
pub struct OwnedVmcs {
    page: Pages,
    apic: Pages,
    _ports: Option<Pages>,
}

impl OwnedVmcs {
    /// A structure with all fixed fields set; guest state and host state are not. It is clear afterwards.
    ///
    /// `descriptor` is where vectors are posted to the vCPU; every exit by an interrupt then acknowledges it.
    pub fn new(
        setup: &VcpuSetup,
        controls: &Controls,
        cpu: &CpuBlock,
        descriptor: Option<Hpa>,
    ) -> Option<Self> {
        let shared = shared()?;
        let mut page = Pages::new(1, 0)?;
        page.bytes_mut()[..4].copy_from_slice(&controls.revision.to_le_bytes());
        let apic = Pages::new(1, 0)?;
        let ports = match setup.io_bitmap {
            Some(bitmap) => {
                let mut map = Pages::new(PORT_PAGES, 0xff)?;
                map.bytes_mut().copy_from_slice(bitmap);
                Some(map)
            }
            None => None,
        };
        let port_map = ports.as_ref().unwrap_or(&shared.ports).hpa();
        let this = OwnedVmcs {
            page,
            apic,
            _ports: ports,
        };
        // SAFETY: a fresh page of ours with the revision in it, which no CPU knows yet. The fields make every host interrupt
        // exit and confine the guest to the second-stage tree of `setup`, which the caller keeps alive.
        unsafe {
            super::instr::vmclear(this.hpa()).ok()?;
            let previous = cpu.load(this.hpa());
            write(PIN_CONTROLS, controls.pin);
            write(PRIMARY_CONTROLS, controls.primary);
            write(SECONDARY_CONTROLS, controls.secondary);
            match descriptor {
                Some(at) => {
                    write(EXIT_CONTROLS, controls.exit | exit::ACKNOWLEDGE);
                    write(POSTED_VECTOR, vectors::POSTED.into());
                    write(POSTED_DESCRIPTOR, at.0);
                }
                None => write(EXIT_CONTROLS, controls.exit),
            }
            write(ENTRY_CONTROLS, controls.entry);
            let faults = if quirks::bochs() { FAULTS } else { 0 };
            write(EXCEPTION_BITMAP, EXCEPTIONS | faults);
            for zero in [
                PAGE_FAULT_MASK,
                PAGE_FAULT_MATCH,
                CR3_TARGETS,
                EXIT_MSR_STORES,
                EXIT_MSR_LOADS,
                ENTRY_MSR_LOADS,
                ENTRY_EVENT,
                TPR_THRESHOLD,
                GUEST_INTERRUPTIBILITY,
                GUEST_ACTIVITY,
            ] {
                write(zero, 0);
            }
            write(GUEST_PENDING_DEBUG, 0);
            write(GUEST_DEBUGCTL, 0);
            write(VMCS_LINK, u64::MAX);
            write(TSC_OFFSET, 0);
            write(IO_BITMAP_A, port_map.0);
            write(IO_BITMAP_B, port_map.0 + PAGE_SIZE);
            write(MSR_BITMAP, shared.msrs.hpa().0);
            write(VIRTUAL_APIC, this.apic.hpa().0);
            if let Some(page) = setup.apic_page {
                write(APIC_ACCESS, page.hpa().0);
            }
            write(EPT_POINTER, ept::pointer(setup.stage2_root.hpa()));
            if controls.tagged() {
                // A tag that the first entry replaces; 0 would be refused.
                write(VPID, 1);
            }
            write(CR0_MASK, CR0_HOST_OWNED);
            write(CR4_MASK, !CR4_GUEST_OWNED);
            cpu.unload(this.hpa(), previous);
        }
        Some(this)
    }

    /// Physical address.
    #[inline]
    pub fn hpa(&self) -> Hpa {
        self.page.hpa()
    }

    fn tpr_byte(&self) -> &AtomicU8 {
        // SAFETY: a byte of our own page, which the CPU changes too, and only this view touches.
        unsafe {
            &*self
                .apic
                .pointer()
                .as_ptr()
                .add(delivery::TPR)
                .cast::<AtomicU8>()
        }
    }

    /// The register at `offset` in the virtual APIC page.
    #[inline]
    pub fn apic_register(&self, offset: usize) -> &AtomicU32 {
        let at = offset & (PAGE_SIZE as usize - 4);
        // SAFETY: an aligned word of our own page, which the CPU changes too.
        unsafe { &*self.apic.pointer().as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// The MSR bitmap for these secondary controls.
    pub fn msr_bitmap(controls: u32) -> Option<Hpa> {
        let shared = shared()?;
        let at = X2APIC_CONTROLS
            .iter()
            .position(|&c| c == controls & delivery::CONTROLS);
        let map = at.map_or(&shared.msrs, |n| &shared.x2apic_msrs[n]);
        Some(map.hpa())
    }

    /// The guest's task priority.
    #[inline]
    pub fn tpr(&self) -> u8 {
        self.tpr_byte().load(Ordering::Relaxed)
    }

    /// Sets it.
    #[inline]
    pub fn set_tpr(&self, value: u8) {
        self.tpr_byte().store(value, Ordering::Relaxed);
    }
}

/// Sets the fields that exits restore on the calling CPU. Its structure must be current.
pub fn write_host_state() {
    let cpu = percpu::this();
    let (gdt_base, tss_base) = gdt::bases(cpu);
    // SAFETY: what this CPU runs with now, so that an exit leaves it as it was; RIP is the second half of `entry::enter`,
    // which sets RSP itself.
    unsafe {
        write(HOST_CR0, read_cr0());
        write(HOST_CR3, read_cr3());
        write(HOST_CR4, read_cr4());
        write(HOST_CS, gdt::CODE);
        write(HOST_TR, gdt::TSS);
        for data in [HOST_SS, HOST_DS, HOST_ES] {
            write(data, gdt::DATA);
        }
        for unused in [HOST_FS, HOST_GS] {
            write(unused, 0);
        }
        write(HOST_FS_BASE, 0);
        write(HOST_GS_BASE, rdmsr(x86_model::regs::msr::GS_BASE));
        write(HOST_TR_BASE, tss_base);
        write(HOST_GDTR_BASE, gdt_base);
        write(HOST_IDTR_BASE, crate::x86::cpu::idt::base());
        write(HOST_SYSENTER_CS, 0);
        write(HOST_SYSENTER_ESP, 0);
        write(HOST_SYSENTER_EIP, 0);
        write(HOST_PAT, rdmsr(x86_model::regs::msr::PAT));
        write(HOST_EFER, rdmsr(x86_model::regs::msr::EFER));
        write(HOST_RIP, entry::exit_address());
    }
}

/// CR4 for the CPU when the guest's is `value`: VMX needs its bit, and a machine check in the guest must find an open door.
pub fn real_cr4(value: u64) -> u64 {
    value | cr::CR4_VMXE | read_cr4() & cr::CR4_MCE
}
