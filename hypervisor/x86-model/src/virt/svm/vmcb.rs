//! Layout of the virtual machine control block (APM vol. 2, appendix B): one page, control area then save area.

use core::mem::offset_of;

use zerocopy::FromZeros;

/// A segment register in the VMCB. `attr` has the descriptor's bits 47:40 in 7:0 and its bits 55:52 in 11:8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the architecture's")]
pub struct VmcbSegment {
    pub selector: u16,
    pub attr: u16,
    pub limit: u32,
    pub base: u64,
}

/// Control area: what is intercepted, and why the guest stopped.
#[derive(FromZeros)]
#[repr(C)]
pub struct Control {
    /// CR reads (15:0) and writes (31:16) that exit.
    pub intercept_cr: u32,
    /// DR reads (15:0) and writes (31:16) that exit.
    pub intercept_dr: u32,
    /// Exceptions that exit, by vector.
    pub intercept_exceptions: u32,
    /// Exit codes 0x60 to 0x7f.
    pub intercept_1: u32,
    /// Exit codes 0x80 to 0x9f.
    pub intercept_2: u32,
    /// Exit codes 0xa0 to 0xbf.
    pub intercept_3: u32,
    _reserved_018: [u32; 9],
    /// Distance in cycles between PAUSEs of one loop.
    pub pause_filter_threshold: u16,
    /// PAUSEs until an exit.
    pub pause_filter_count: u16,
    /// Physical address of the I/O permission map (12 KiB).
    pub iopm_base: u64,
    /// Physical address of the MSR permission map (8 KiB).
    pub msrpm_base: u64,
    /// Added to the guest's TSC reads.
    pub tsc_offset: u64,
    /// TLB tag; 0 is the host's.
    pub asid: u32,
    /// One of the `TLB_*` values.
    pub tlb_control: u8,
    _reserved_05d: [u8; 3],
    /// Virtual interrupt control (`V_*` bits).
    pub int_ctl: u64,
    /// Bit 0: interrupt shadow.
    pub int_state: u64,
    /// Why the guest stopped; see [`super::exit_code`].
    pub exit_code: u64,
    /// First detail.
    pub exit_info_1: u64,
    /// Second detail.
    pub exit_info_2: u64,
    /// The event whose delivery was under way, see [`super::event`].
    pub exit_int_info: u64,
    /// Bit 0: nested paging on.
    pub nested_ctl: u64,
    /// AVIC APIC BAR.
    pub avic_apic_bar: u64,
    /// GHCB address (SEV-ES).
    pub ghcb: u64,
    /// The event to deliver at the next VMRUN, see [`super::event`].
    pub event_inj: u64,
    /// Root of the nested page tables.
    pub nested_cr3: u64,
    /// Bit 0: LBR virtualization; bit 1: virtual VMLOAD and VMSAVE.
    pub lbr_ctl: u64,
    /// Bits set by software for groups of fields unchanged since the last exit (`CLEAN_*`).
    pub clean: u32,
    _reserved_0c4: u32,
    /// Next instruction, for instruction intercepts (if the CPU saves it).
    pub next_rip: u64,
    /// Number of bytes in `fetched`.
    pub fetched_len: u8,
    /// Instruction bytes at RIP for data #PF and #NPF (decode assists).
    pub fetched: [u8; 15],
    /// AVIC backing page.
    pub avic_backing: u64,
    _reserved_0e8: u64,
    /// AVIC logical table.
    pub avic_logical: u64,
    /// AVIC physical table.
    pub avic_physical: u64,
    _reserved_100: [u64; 0x60],
}

/// Save area: the guest's registers. VMRUN and #VMEXIT swap most of it; FS, GS, TR, LDTR, KERNEL_GS_BASE, the SYSCALL and
/// SYSENTER registers only move by VMLOAD and VMSAVE.
#[derive(FromZeros)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub struct Save {
    pub es: VmcbSegment,
    pub cs: VmcbSegment,
    pub ss: VmcbSegment,
    pub ds: VmcbSegment,
    pub fs: VmcbSegment,
    pub gs: VmcbSegment,
    pub gdtr: VmcbSegment,
    pub ldtr: VmcbSegment,
    pub idtr: VmcbSegment,
    pub tr: VmcbSegment,
    _reserved_0a0: [u8; 0x2b],
    pub cpl: u8,
    _reserved_0cc: u32,
    pub efer: u64,
    _reserved_0d8: [u64; 14],
    pub cr4: u64,
    pub cr3: u64,
    pub cr0: u64,
    pub dr7: u64,
    pub dr6: u64,
    pub rflags: u64,
    pub rip: u64,
    _reserved_180: [u64; 11],
    pub rsp: u64,
    pub s_cet: u64,
    pub ssp: u64,
    pub isst: u64,
    pub rax: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
    pub sysenter_cs: u64,
    pub sysenter_esp: u64,
    pub sysenter_eip: u64,
    pub cr2: u64,
    _reserved_248: [u64; 4],
    /// The guest's PAT, used with nested paging.
    pub g_pat: u64,
    pub dbgctl: u64,
    pub br_from: u64,
    pub br_to: u64,
    pub last_excp_from: u64,
    pub last_excp_to: u64,
    _reserved_298: [u64; 0x12d],
}

/// The whole page.
#[derive(FromZeros)]
#[repr(C, align(4096))]
#[allow(missing_docs, reason = "see the types")]
pub struct Vmcb {
    pub control: Control,
    pub save: Save,
}

/// TLB control: leave the TLB alone.
pub const TLB_KEEP: u8 = 0;
/// TLB control: drop all entries of all ASIDs.
pub const TLB_FLUSH_ALL: u8 = 1;
/// TLB control: drop this guest's entries (needs FLUSH_BY_ASID).
pub const TLB_FLUSH_ASID: u8 = 3;

/// Interrupt control: the guest's TPR (CR8) in bits 7:0; only 3:0 are used.
pub const V_TPR_MASK: u64 = 0xff;
/// Interrupt control: a virtual interrupt is pending.
pub const V_IRQ: u64 = 1 << 8;
/// Interrupt control: vector of the pending virtual interrupt, in bits 39:32.
pub const V_VECTOR_SHIFT: u32 = 32;
/// Interrupt control: the pending interrupt ignores V_TPR.
pub const V_IGN_TPR: u64 = 1 << 20;
/// Interrupt control: the guest's IF and CR8 do not govern physical interrupts.
pub const V_INTR_MASKING: u64 = 1 << 24;
/// Interrupt state: the instruction at RIP is in an interrupt shadow.
pub const INT_SHADOW: u64 = 1 << 0;

/// Clean bit: intercept words, TSC offset, pause filter.
pub const CLEAN_INTERCEPTS: u32 = 1 << 0;
/// Clean bit: permission map addresses.
pub const CLEAN_MAPS: u32 = 1 << 1;
/// Clean bit: ASID.
pub const CLEAN_ASID: u32 = 1 << 2;
/// Clean bit: interrupt control.
pub const CLEAN_TPR: u32 = 1 << 3;
/// Clean bit: nested paging root and guest PAT.
pub const CLEAN_NESTED: u32 = 1 << 4;
/// Clean bit: CR0, CR3, CR4, EFER.
pub const CLEAN_CRX: u32 = 1 << 5;
/// Clean bit: DR6, DR7.
pub const CLEAN_DRX: u32 = 1 << 6;
/// Clean bit: GDTR, IDTR.
pub const CLEAN_TABLES: u32 = 1 << 7;
/// Clean bit: CS, DS, SS, ES, CPL.
pub const CLEAN_SEGMENTS: u32 = 1 << 8;
/// Clean bit: CR2.
pub const CLEAN_CR2: u32 = 1 << 9;
/// Clean bit: DBGCTL and the last-branch registers.
pub const CLEAN_LBR: u32 = 1 << 10;
/// All clean bits of the fields that we use.
pub const CLEAN_ALL: u32 = 0x7ff;

macro_rules! offsets {
    ($ty:ty { $($field:ident = $at:expr),* $(,)? }) => {
        $(const _: () = assert!(offset_of!($ty, $field) == $at, concat!("VMCB field ", stringify!($field)));)*
    };
}
offsets!(Control {
    intercept_cr = 0x000,
    intercept_dr = 0x004,
    intercept_exceptions = 0x008,
    intercept_1 = 0x00c,
    intercept_2 = 0x010,
    intercept_3 = 0x014,
    pause_filter_threshold = 0x03c,
    pause_filter_count = 0x03e,
    iopm_base = 0x040,
    msrpm_base = 0x048,
    tsc_offset = 0x050,
    asid = 0x058,
    tlb_control = 0x05c,
    int_ctl = 0x060,
    int_state = 0x068,
    exit_code = 0x070,
    exit_info_1 = 0x078,
    exit_info_2 = 0x080,
    exit_int_info = 0x088,
    nested_ctl = 0x090,
    avic_apic_bar = 0x098,
    ghcb = 0x0a0,
    event_inj = 0x0a8,
    nested_cr3 = 0x0b0,
    lbr_ctl = 0x0b8,
    clean = 0x0c0,
    next_rip = 0x0c8,
    fetched_len = 0x0d0,
    fetched = 0x0d1,
    avic_backing = 0x0e0,
    avic_logical = 0x0f0,
    avic_physical = 0x0f8,
});
offsets!(Save {
    es = 0x000,
    cs = 0x010,
    ss = 0x020,
    ds = 0x030,
    fs = 0x040,
    gs = 0x050,
    gdtr = 0x060,
    ldtr = 0x070,
    idtr = 0x080,
    tr = 0x090,
    cpl = 0x0cb,
    efer = 0x0d0,
    cr4 = 0x148,
    cr3 = 0x150,
    cr0 = 0x158,
    dr7 = 0x160,
    dr6 = 0x168,
    rflags = 0x170,
    rip = 0x178,
    rsp = 0x1d8,
    s_cet = 0x1e0,
    ssp = 0x1e8,
    isst = 0x1f0,
    rax = 0x1f8,
    star = 0x200,
    lstar = 0x208,
    cstar = 0x210,
    sfmask = 0x218,
    kernel_gs_base = 0x220,
    sysenter_cs = 0x228,
    sysenter_esp = 0x230,
    sysenter_eip = 0x238,
    cr2 = 0x240,
    g_pat = 0x268,
    dbgctl = 0x270,
    br_from = 0x278,
    br_to = 0x280,
    last_excp_from = 0x288,
    last_excp_to = 0x290,
});
offsets!(Vmcb {
    control = 0x000,
    save = 0x400,
});
offsets!(VmcbSegment {
    selector = 0,
    attr = 2,
    limit = 4,
    base = 8,
});
const _: () = assert!(size_of::<Vmcb>() == 4096 && size_of::<Control>() == 0x400);
