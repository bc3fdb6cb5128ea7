//! The contract between Xen semantics and the machine. Both the metal and the fake machine implement it; the portable
//! core is written against [`crate::Hw`], which is one of the two by target, never a type parameter.
//!
//! All functions are called with interrupts off, on one stack per CPU, and return without sleeping.

use alloc::sync::Arc;

use x86_model::apic::ApicMode;
use x86_model::iommu::Requester;
use x86_model::pci::Bdf;
use x86_model::posted::Notice;
use x86_model::{Gpa, Gprs, Hpa, Width};

pub use crate::assist::{ApicAssist, ApicAssists};
use crate::mem::Stage2;
use crate::posted::PostTarget;

/// Number of a physical CPU: 0 is the boot CPU, then in the order of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// What ends the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    /// ACPI S5, or halt for ever if that fails.
    PowerOff,
    /// Reset by ACPI, then keyboard controller, then triple fault.
    Reboot,
    /// Stop all CPUs and keep the screen.
    Halt,
}

/// How a physical interrupt line or message is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineMode {
    /// Level-triggered (else edge).
    pub level: bool,
    /// Active low (else high).
    pub low: bool,
}

/// What a CPU's interrupts amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptCounts {
    /// Device vectors in use.
    pub vectors_used: u32,
    /// Device vectors that there are.
    pub vectors: u32,
    /// Spurious, error and other vectors that nobody asked for.
    pub spurious: u64,
    /// Writes to the interrupt command register.
    pub icr_writes: u64,
    /// Notifications for messages that were posted to this CPU.
    pub notifications: u64,
    /// How often the request words were looked at for them.
    pub posted_turns: u64,
    /// Messages dispatched for them.
    pub posted: u64,
    /// Bits posted that belong to no device vector.
    pub posted_stray: u64,
    /// Exits of guests that were settled below, so that no vCPU counts them: faults on Bochs, windows for one more interrupt.
    pub exits_settled: u64,
    /// Faults of the machine below that were put right after exits.
    pub exits_repaired: u64,
}

/// Address and data that make a device's MSI reach a host vector on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiMessage {
    /// Message address (low and high half).
    pub address: u64,
    /// Message data.
    pub data: u32,
}

/// Where a device's message is posted to.
#[derive(Clone, Debug)]
pub struct PostTo {
    /// The receiver's descriptor; kept as long as an entry names it.
    pub target: Arc<PostTarget>,
    /// The receiver's vector.
    pub vector: u8,
    /// Notify also a receiver that waits for a CPU.
    pub urgent: bool,
}

impl PartialEq for PostTo {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.target, &other.target)
            && (self.vector, self.urgent) == (other.vector, other.urgent)
    }
}

/// Who sends a message-signalled interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiSource {
    /// The function.
    pub device: Bdf,
    /// Under which id its requests arrive; looked at only where [`Machine::remaps_interrupts`].
    pub requester: Requester,
}

/// Who gets the notification for a posted interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// A vCPU in guest mode: the processor takes what is posted.
    Running,
    /// A sleeping vCPU: the hypervisor wakes it ([`HostInterrupt::Wake`]).
    Sleeping,
}

/// The physical machine, as the core sees it.
pub trait Machine: Sync {
    /// The virtual-CPU context of this machine's backend.
    type Vcpu: GuestContext;

    /// Nanoseconds since boot; the same clock on every CPU.
    fn now_ns(&self) -> u64;
    /// The time stamp counter.
    fn tsc(&self) -> u64;
    /// Its rate.
    fn tsc_khz(&self) -> u32;
    /// Nanoseconds since boot for a TSC value.
    fn tsc_to_ns(&self, tsc: u64) -> u64;
    /// Whether the TSC is invariant and synchronous over all CPUs.
    fn tsc_reliable(&self) -> bool;
    /// Wall-clock seconds since 1970 and nanoseconds at time 0 of [`Machine::now_ns`], read at boot.
    fn wallclock(&self) -> (u64, u32);
    /// Arms this CPU's timer interrupt (absolute, in the past means at once) or stops it.
    fn set_timer(&self, deadline_ns: Option<u64>);

    /// This CPU.
    fn cpu(&self) -> CpuId;
    /// Numbers of CPUs in use: those that are online, and those that are not now and can be.
    fn cpu_count(&self) -> u32;
    /// Whether a CPU works, and takes vCPUs and interrupts.
    fn is_online(&self, cpu: CpuId) -> bool;
    /// Number of CPUs that are online.
    fn online_cpus(&self) -> u32 {
        (0..self.cpu_count())
            .filter(|&n| self.is_online(CpuId(n)))
            .count() as u32
    }
    /// A CPU takes device vectors from now on, or no more; one that joins others in sharing their vectors learns which are in
    /// use. No vector is given out meanwhile: the caller sees to that.
    fn set_online(&self, cpu: CpuId, online: bool);
    /// Stops this CPU until [`Machine::start_cpu`]. It has no device vectors left, and runs nothing.
    fn stop_cpu(&self) -> !;
    /// Whether a CPU has stopped by [`Machine::stop_cpu`], or was never needed.
    fn has_stopped(&self, cpu: CpuId) -> bool;
    /// Starts a CPU that has stopped, and waits until it goes on where the others came from at boot. The error is the end of
    /// a sentence. It is not online yet.
    fn start_cpu(&self, cpu: CpuId) -> Result<(), &'static str>;
    /// APIC ID and ACPI processor UID of a CPU.
    fn cpu_ids(&self, cpu: CpuId) -> Option<(u32, u32)>;
    /// Makes another CPU leave guest mode or its idle halt soon. A kick of this CPU does nothing.
    fn kick(&self, cpu: CpuId);
    /// The notice by which a posted-interrupt descriptor names a CPU: for a vCPU that runs there, or for one that sleeps.
    /// `None` if no descriptor can name it.
    fn post_notice(&self, cpu: CpuId, receiver: Receiver) -> Option<Notice>;
    /// Sends another CPU the notification for what was posted to the vCPU that runs there. In guest mode it makes no exit;
    /// outside of it, it is a kick.
    fn notify(&self, cpu: CpuId);

    /// The watchdog found that `cpu` makes no progress for more than `seconds`: says where it is and stops the machine.
    fn hangs(&self, cpu: CpuId, seconds: u64);

    /// Opens the interrupt window for an instant; the vector that arrived, if one did. It stays in service until
    /// [`Machine::eoi`]; kicks and the timer are acknowledged inside and reported as their own variants.
    fn take_interrupt(&self) -> Option<HostInterrupt>;
    /// Ends the interrupt of highest priority in service on this CPU.
    fn eoi(&self);
    /// Halts until the next interrupt unless `ready` says that there is work (checked with interrupts off, so that no
    /// wake-up is lost). Interrupts that ended the halt are left for [`Machine::take_interrupt`].
    fn idle(&self, ready: &mut dyn FnMut() -> bool);

    /// Reserves a vector for a device interrupt on `cpu`. `None` when none is left.
    fn alloc_vector(&self, cpu: CpuId) -> Option<u8>;
    /// Reserves this vector; false if it is not free. As for [`Machine::alloc_vector`].
    fn take_vector(&self, cpu: CpuId, vector: u8) -> bool;
    /// Gives a vector back.
    fn free_vector(&self, cpu: CpuId, vector: u8);
    /// Whether a vector that is reserved on one of these CPUs is reserved on the other as well.
    fn shares_vectors(&self, one: CpuId, other: CpuId) -> bool;
    /// Whether an interrupt with this vector waits on this CPU, or is in service.
    fn vector_waits(&self, vector: u8) -> bool;
    /// Whether messages go through remapping entries, which check who sent them.
    fn remaps_interrupts(&self) -> bool;
    /// Counters of a CPU's interrupts. `None` if there is no such CPU.
    fn interrupt_counts(&self, cpu: CpuId) -> Option<InterruptCounts>;
    /// Message for a device's MSI to a reserved vector. `None` if the device cannot be given one. What it occupies is
    /// given back with the vector.
    ///
    /// With `post` the entry posts to a vCPU, and the reserved vector is only for what is under way from before. Asking again
    /// for the same CPU and vector changes the entry, from and to any form; when this returns, no unit uses the old one.
    fn msi_message(
        &self,
        source: &MsiSource,
        cpu: CpuId,
        vector: u8,
        post: Option<&PostTo>,
    ) -> Option<MsiMessage>;
    /// Whether entries can post to vCPUs.
    fn posts_interrupts(&self) -> bool;
    /// Serves [`HostInterrupt::Posted`]: gives the vectors of the messages that were posted to this CPU, and ends the
    /// interrupt, once.
    fn serve_posted(&self, dispatch: &mut dyn FnMut(u8));
    /// Makes the remapping entry of a message for one CPU and vector raise another CPU and vector, in one step. False if it
    /// cannot be written; the entry is then gone. Only where [`Machine::remaps_interrupts`].
    fn move_message(&self, from: (CpuId, u8), to: (CpuId, u8)) -> bool;
    /// Number of IO-APICs, and for each its ACPI id, address, first GSI and number of pins.
    fn ioapics(&self) -> alloc::vec::Vec<IoApicInfo>;
    /// Routes a GSI to a vector on a CPU, masked. False if no IO-APIC has the pin.
    fn route_gsi(&self, gsi: u32, cpu: CpuId, vector: u8, mode: LineMode) -> bool;
    /// Makes a routed GSI raise another vector, or one on another CPU; masked as it was. The pin is masked meanwhile: an edge
    /// may be missed. False if the CPU cannot be addressed; the pin is then masked.
    fn move_gsi(&self, gsi: u32, cpu: CpuId, vector: u8) -> bool;
    /// Masks or unmasks a GSI.
    fn mask_gsi(&self, gsi: u32, masked: bool);

    /// Port input, zero-extended. The port must have been allowed by policy.
    fn port_in(&self, port: u16, width: Width) -> u32;
    /// Port output.
    fn port_out(&self, port: u16, width: Width, value: u32);
    /// Reads device memory that is not RAM. `None` if the address is RAM or the hypervisor's own device.
    fn mmio_read(&self, hpa: Hpa, width: Width) -> Option<u64>;
    /// Writes device memory that is not RAM; false if refused as in [`Machine::mmio_read`].
    fn mmio_write(&self, hpa: Hpa, width: Width, value: u64) -> bool;
    /// Native MSR read for values that are passed through by policy. `None` if it faults.
    fn rdmsr(&self, index: u32) -> Option<u64>;
    /// What processors do for virtual local APICs.
    fn apic_assists(&self) -> ApicAssists {
        ApicAssists::default()
    }
    /// Native CPUID (EAX, EBX, ECX, EDX).
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];

    /// A fresh vCPU context. The stage-2 tree must outlive it. `None` without memory.
    fn new_vcpu(&self, setup: &VcpuSetup) -> Option<Self::Vcpu>;
    /// Entry format of this machine's second-stage tables.
    fn stage2_format(&self) -> crate::mem::stage2::Format;
    /// Order of the largest page that the second stage can map: 9, or 18 where 1 GiB pages exist.
    fn stage2_order(&self) -> u8;
    /// Bits of guest-physical address that the second stage can map (at most 48).
    fn phys_bits(&self) -> u8;

    /// Whether a machine frame holds registers of a device that the hypervisor uses itself.
    fn page_is_ours(&self, mfn: x86_model::Mfn) -> bool;
    /// PCI functions that the hypervisor uses itself.
    fn own_functions(&self) -> alloc::vec::Vec<Bdf>;

    /// Sends bytes to the hypervisor's consoles, unformatted; `keep` puts them into the log too.
    fn console_write(&self, bytes: &[u8], keep: bool);
    /// Takes bytes typed on the hypervisor's console; returns how many.
    fn console_read(&self, buf: &mut [u8]) -> usize;
    /// Copies the hypervisor's log from a position in the stream of all its bytes; how many, and the position after them.
    /// What has been overwritten is passed over.
    fn log_read(&self, position: u64, buf: &mut [u8]) -> (usize, u64);
    /// Position after the newest byte of the log; cheap enough to look at often.
    fn log_end(&self) -> u64;
    /// Forgets the log before a position.
    fn log_clear(&self, position: u64);
    /// Whether this I/O port belongs to the hypervisor (its UART) and is denied to every domain.
    fn port_is_ours(&self, port: u16) -> bool;

    /// Ends the machine.
    fn power(&self, action: PowerAction) -> !;
}

/// One physical IO-APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApicInfo {
    /// ACPI identifier.
    pub id: u8,
    /// Register page.
    pub address: Hpa,
    /// First GSI.
    pub gsi_base: u32,
    /// Number of pins.
    pub pins: u32,
}

/// What [`Machine::take_interrupt`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostInterrupt {
    /// A kick by another CPU (acknowledged).
    Kick,
    /// This CPU's timer (acknowledged).
    Timer,
    /// Devices' messages were posted to this CPU; in service until [`Machine::serve_posted`].
    Posted,
    /// Something was posted to a vCPU that sleeps on this CPU (acknowledged).
    Wake,
    /// The console has input or room (acknowledged).
    Console,
    /// A device vector, in service until [`Machine::eoi`].
    Device(u8),
    /// Spurious or error vector (acknowledged, counted by the machine).
    Spurious,
}

/// What a vCPU context is made for.
#[derive(Clone, Copy, Debug)]
pub struct VcpuSetup {
    /// Frame of the stage-2 root.
    pub stage2_root: x86_model::Mfn,
    /// The ports in this bitmap (8192 bytes, set bit = exit) go to hardware directly when clear; `None` traps all.
    pub io_bitmap: Option<&'static [u8; 8192]>,
    /// Guest-visible XCR0 bits that may be set.
    pub xcr0_allowed: u64,
    /// Size of the XSAVE area for those bits, in bytes.
    pub xsave_size: u32,
    /// The page behind the APIC's registers, which the stage-2 tree maps at their address: the processor then may handle
    /// xAPIC mode. Only where [`ApicAssists::page`].
    pub apic_page: Option<x86_model::Mfn>,
    /// The processor may handle x2APIC mode.
    pub assist_x2apic: bool,
}

/// Why the guest stopped. Instruction lengths are 0 where the hardware did not tell.
#[allow(
    missing_docs,
    reason = "`len` is the instruction length; the rest is named in the variant"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A physical interrupt waits: open the window.
    Interrupt,
    /// A physical NMI was taken.
    Nmi,
    /// The guest can take a virtual interrupt now (asked for by [`GuestContext::request_window`]).
    InterruptWindow,
    /// CPUID.
    Cpuid { len: u8 },
    /// VMCALL or VMMCALL.
    Hypercall { len: u8 },
    /// RDMSR or WRMSR; ECX has the index.
    Msr { write: bool, len: u8 },
    /// Port access.
    Io(IoExit),
    /// HLT.
    Hlt { len: u8 },
    /// No or insufficient second-stage mapping.
    Stage2(Stage2Fault),
    /// XSETBV.
    Xsetbv { len: u8 },
    /// Write to CR0, CR4 or CR8 or a read of them where intercepted: (register, is write, GPR number, length). The length
    /// is 0 if hardware tells neither it nor the GPR.
    Cr {
        reg: u8,
        write: bool,
        gpr: u8,
        len: u8,
    },
    /// WBINVD, INVD: treated as no-ops or executed by policy.
    CacheFlush { len: u8 },
    /// An instruction that guests may not use (VMX/SVM, MONITOR, ...): inject #UD.
    Undefined,
    /// The guest ended the interrupt with this vector, where the processor delivers interrupts
    /// ([`ApicAssist::delivery`]) and the end had to be told.
    Ended(u8),
    /// The guest wrote a register of its APIC; the instruction is done. With the destination half of the interrupt command,
    /// which it writes without an exit in xAPIC mode where [`ApicAssist::registers`].
    ApicWrite {
        register: u16,
        value: u32,
        destination: u32,
    },
    /// Triple fault.
    Shutdown,
    /// Task switch, or anything else that the backend cannot express; the numbers are for the crash message.
    Unsupported { code: u64, info1: u64, info2: u64 },
}

/// A port access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoExit {
    /// Port.
    pub port: u16,
    /// Width (1, 2 or 4).
    pub width: Width,
    /// IN or INS (else OUT or OUTS).
    pub input: bool,
    /// INS or OUTS.
    pub string: bool,
    /// With REP.
    pub rep: bool,
    /// Address of the next instruction (always known for port exits).
    pub next_rip: u64,
}

/// A second-stage fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage2Fault {
    /// Guest-physical address.
    pub gpa: Gpa,
    /// A write.
    pub write: bool,
    /// An instruction fetch.
    pub fetch: bool,
    /// While the hardware walked the guest's own page tables.
    pub walk: bool,
}

/// An event to put into the guest at the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// External interrupt with this vector.
    Interrupt(u8),
    /// NMI.
    Nmi,
    /// Exception with an optional error code.
    Exception(u8, Option<u32>),
}

/// A segment register with its hidden part. `access` is in VMX/Xen form: bits 7:0 type, S, DPL, P; 12 AVL; 13 L; 14 D/B;
/// 15 G; 16 unusable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Selector.
    pub selector: u16,
    /// Access rights.
    pub access: u32,
    /// Limit in bytes.
    pub limit: u32,
    /// Base.
    pub base: u64,
}

/// Segment registers in the order of [`SystemState::segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub enum Seg {
    Es = 0,
    Cs = 1,
    Ss = 2,
    Ds = 3,
    Fs = 4,
    Gs = 5,
    Ldtr = 6,
    Tr = 7,
}

/// The vCPU's system registers, apart from the GPRs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub struct SystemState {
    pub rip: u64,
    pub rflags: u64,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub efer: u64,
    pub pat: u64,
    pub dr6: u64,
    pub dr7: u64,
    /// By [`Seg`].
    pub segments: [Segment; 8],
    pub gdtr: (u64, u16),
    pub idtr: (u64, u16),
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
    pub sysenter: [u64; 3],
}

/// What the walk and the privilege checks need, cheap to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub struct PagingState {
    pub cr0: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub efer: u64,
    pub rflags: u64,
    pub cpl: u8,
    /// CS.L with EFER.LMA: 64-bit code.
    pub long: bool,
}

/// The interrupts of a virtual APIC, for a processor that delivers them itself. Bit set by vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApicVectors {
    /// Requested.
    pub irr: [u64; 4],
    /// In service.
    pub isr: [u64; 4],
    /// Level-triggered: their end is told ([`Exit::Ended`]).
    pub tmr: [u64; 4],
    /// Task priority.
    pub tpr: u8,
}

/// A virtual CPU's hardware context. Used by one CPU at a time; moves between CPUs only through [`GuestContext::leave`].
pub trait GuestContext: Send {
    /// General-purpose registers.
    fn gprs(&self) -> &Gprs;
    /// General-purpose registers.
    fn gprs_mut(&mut self) -> &mut Gprs;
    /// Instruction pointer.
    fn rip(&self) -> u64;
    /// Sets the instruction pointer and ends an interrupt shadow.
    fn set_rip(&mut self, rip: u64);
    /// Paging and privilege state.
    fn paging(&self) -> PagingState;
    /// All system registers.
    fn state(&self) -> SystemState;
    /// Sets all system registers.
    fn set_state(&mut self, state: &SystemState);
    /// Sets CR4, which has been validated, and drops the translations that a write to it drops.
    fn set_cr4(&mut self, value: u64);
    /// Reads one MSR that lives in this context (EFER, FS/GS bases, STAR.., SYSENTER, PAT, DEBUGCTL, TSC_AUX, XSS).
    fn context_msr(&self, index: u32) -> Option<u64>;
    /// Writes such an MSR; false if it does not live here. The value has been validated.
    fn set_context_msr(&mut self, index: u32, value: u64) -> bool;
    /// XCR0; validated by the caller.
    fn set_xcr0(&mut self, value: u64);
    /// XCR0.
    fn xcr0(&self) -> u64;
    /// Extended registers (x87, SSE, AVX, ...) as of the last [`GuestContext::leave`], in the standard form of XSAVE, with
    /// room for all components that the vCPU may use. Only while the vCPU is on no CPU.
    fn extended(&self) -> &[u8];
    /// Replaces them by an image in that form; what the processor would refuse is dropped ([`x86_model::xsave::replace`]).
    /// Only while the vCPU is on no CPU.
    fn set_extended(&mut self, image: &[u8]);
    /// DR0 to DR3, as of the last [`GuestContext::leave`]. Only while the vCPU is on no CPU.
    fn breakpoints(&self) -> [u64; 4];
    /// Sets them. Only while the vCPU is on no CPU.
    fn set_breakpoints(&mut self, at: [u64; 4]);
    /// Adds to the guest's view of the TSC.
    fn set_tsc_offset(&mut self, offset: u64);
    /// The vCPU starts to run on this CPU: loads FPU state and asks for a fresh TLB tag.
    fn enter_cpu(&mut self);
    /// The vCPU stops running on this CPU: saves FPU state.
    fn leave(&mut self);
    /// Runs the guest until it exits. Flushes its translations first if `stage2` has moved on since the last entry.
    fn run(&mut self, stage2: &Stage2) -> Exit;
    /// The last exit by the processor's own number, for people who read traces. Only while the vCPU is on a CPU.
    fn exit_number(&self) -> u32;
    /// Whether an external interrupt could be delivered now (IF set, no shadow, nothing injected yet).
    fn interruptible(&self) -> bool;
    /// RFLAGS.IF.
    fn interrupts_enabled(&self) -> bool;
    /// Queues an event for the next entry; the one event that the hardware may still have to re-deliver has priority, and
    /// this returns false if there is one.
    fn inject(&mut self, event: Event) -> bool;
    /// Whether an event that [`GuestContext::inject`] took has not reached the guest yet.
    fn injecting(&self) -> bool;
    /// Asks for (or withdraws) [`Exit::InterruptWindow`] as soon as [`GuestContext::interruptible`] becomes true.
    fn request_window(&mut self, on: bool);
    /// Bytes at RIP that the hardware fetched for the last second-stage fault (decode assists); empty if it has none.
    fn fetched_bytes(&self) -> &[u8];
    /// The task priority, which the guest changes by CR8 without an exit. `last` is what this or [`GuestContext::set_tpr`]
    /// had last: where the hardware keeps the class alone (bits 7:4), the rest follows from it.
    fn tpr(&self, last: u8) -> u8;
    /// Sets it; the guest reads its class from CR8.
    fn set_tpr(&mut self, tpr: u8);
    /// Asks for one exit when the guest lowers its task priority below `class` (1 to 15): [`Exit::InterruptWindow`], or the
    /// write to CR8 itself. One more than asked for may come.
    fn watch_tpr(&mut self, class: u8);
    /// Has the processor do what it can for an APIC in this mode from the next entry on; what that is. It delivers no
    /// interrupt of one that is disabled by software. [`GuestContext::set_tpr`] must follow.
    fn set_apic_mode(&mut self, _mode: ApicMode, _enabled: bool) -> ApicAssist {
        ApicAssist::default()
    }
    /// The APIC's registers by offset in its page, without vectors and priorities: after each change, where
    /// [`ApicAssist::registers`].
    fn put_registers(&mut self, _registers: &[(u32, u32)]) {}
    /// What the APIC holds, before each entry. Its task priority counts only where [`ApicAssist::delivery`]. An interrupt that
    /// is injected has priority over all of it.
    fn put_vectors(&mut self, _vectors: &ApicVectors) {}
    /// What became of it, after each exit, where [`ApicAssist::delivery`].
    fn vectors(&self) -> ApicVectors {
        ApicVectors::default()
    }
    /// Where this vCPU's interrupts can be posted, so that they reach it without an exit; the same for its life. `None`
    /// where the hardware does not deliver posted interrupts.
    fn post_target(&self) -> Option<Arc<PostTarget>> {
        None
    }
}
