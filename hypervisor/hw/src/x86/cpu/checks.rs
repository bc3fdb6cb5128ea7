//! Whether another CPU is like the boot CPU: features, memory types, microcode. Each CPU compares by itself, all at once;
//! the boot CPU tells the result.

use arrayvec::ArrayVec;
use x86_model::regs::{cr, msr};

use super::super::asm;
use super::features;
use super::msr::{rdmsr_safe, wrmsr_safe};

/// Variable ranges that are compared; hardware has 8 to 10.
const MAX_RANGES: u32 = 16;

/// What the boot CPU has.
struct Reference {
    /// Cores have several threads.
    threads: bool,
    microcode: u32,
    /// Memory-type registers with their values.
    memory_types: ArrayVec<(u32, u64), 64>,
}

static REFERENCE: spin::Once<Reference> = spin::Once::new();

/// What was found on another CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Differences {
    /// A feature that the boot CPU has and this one lacks. Such a CPU cannot be used.
    pub missing: Option<&'static str>,
    /// The first memory-type register that differed: MSR, boot CPU's value, this one's.
    pub memory_type: Option<(u32, u64, u64)>,
    /// The same, after the CPU was given the boot CPU's values.
    pub memory_type_left: Option<(u32, u64, u64)>,
    /// Microcode revisions, the boot CPU's and this one's, if they differ.
    pub microcode: Option<(u32, u32)>,
}

/// Remembers what the boot CPU has; on the boot CPU, before the others start.
pub fn take_reference() {
    REFERENCE.call_once(|| Reference {
        threads: features::thread_bits() > 0,
        microcode: microcode(),
        memory_types: memory_type_registers()
            .filter_map(|index| Some((index, rdmsr_safe(index)?)))
            .collect(),
    });
}

/// Compares the calling CPU with the boot CPU.
pub fn compare() -> Differences {
    let mut found = Differences {
        missing: features::missing_here(),
        ..Differences::default()
    };
    let Some(reference) = REFERENCE.get() else {
        return found;
    };
    found.memory_type = reference.other_memory_type();
    if found.memory_type.is_some() {
        reference.adopt_memory_types();
        found.memory_type_left = reference.other_memory_type();
    }
    let here = microcode();
    found.microcode = (here != reference.microcode).then_some((reference.microcode, here));
    found
}

impl Reference {
    fn other_memory_type(&self) -> Option<(u32, u64, u64)> {
        self.memory_types.iter().find_map(|&(index, boot)| {
            let here = rdmsr_safe(index).unwrap_or(0);
            (here != boot).then_some((index, boot, here))
        })
    }

    /// Gives this CPU the boot CPU's MTRRs: some machines, QEMU's among them, lose them in INIT. As SDM vol. 3, 13.11.8
    /// wants it for one CPU: caches off and empty, no cached translations, ranges off while they change. The CPU is new
    /// here, so nobody waits for it. The threads of a core share the registers, so with threads one CPU goes after the other.
    fn adopt_memory_types(&self) {
        static ONE: spin::Mutex<()> = spin::Mutex::new(());
        let _one = self.threads.then(|| ONE.lock());
        let cr0 = asm::read_cr0();
        let cr4 = asm::read_cr4();
        let default_type = |v: u64| {
            // SAFETY: the boot CPU's own value, or the same with all ranges off, which makes memory uncached.
            unsafe { wrmsr_safe(msr::MTRR_DEF_TYPE, v) };
        };
        let empty = || {
            asm::wbinvd();
            // SAFETY: the same tables once more; global pages are off, so every translation is dropped.
            unsafe { asm::write_cr3(asm::read_cr3()) };
        };
        // SAFETY: mappings stay as they are; caches and global translations go off.
        unsafe {
            asm::write_cr0(cr0 & !cr::CR0_NW | cr::CR0_CD);
            asm::write_cr4(cr4 & !cr::CR4_PGE);
        }
        empty();
        let values = || (self.memory_types.iter()).filter(|r| r.0 != msr::PAT);
        if let Some(&(_, value)) = values().find(|r| r.0 == msr::MTRR_DEF_TYPE) {
            default_type(value & !MTRR_ENABLES);
            for &(index, value) in values().filter(|r| r.0 != msr::MTRR_DEF_TYPE) {
                // SAFETY: the boot CPU's value of a memory-type register, under which it runs the same memory.
                unsafe { wrmsr_safe(index, value) };
            }
            default_type(value);
        }
        empty();
        // SAFETY: back to what they were.
        unsafe {
            asm::write_cr0(cr0);
            asm::write_cr4(cr4);
        }
    }
}

/// IA32_MTRR_DEF_TYPE: ranges, and fixed ranges, are on.
const MTRR_ENABLES: u64 = 3 << 10;

/// PAT, and the MTRRs where CPUID has them: default type, fixed ranges, variable ranges (SDM vol. 3, 13.11).
fn memory_type_registers() -> impl Iterator<Item = u32> {
    let capabilities = if features::get().mtrr {
        rdmsr_safe(msr::MTRR_CAP)
    } else {
        None
    };
    let ranges = capabilities.map_or(0, |c| (c as u32 & 0xff).min(MAX_RANGES));
    let fixed = capabilities.is_some_and(|c| c & 1 << 8 != 0);
    let variable = (0..2 * ranges).map(|n| msr::MTRR_PHYS_BASE0 + n);
    [msr::PAT]
        .into_iter()
        .chain(capabilities.map(|_| msr::MTRR_DEF_TYPE))
        .chain(msr::MTRR_FIX.into_iter().filter(move |_| fixed))
        .chain(variable)
}

/// The microcode revision; 0 where the CPU does not tell.
fn microcode() -> u32 {
    if &features::get().vendor == b"GenuineIntel" {
        // CPUID puts the revision into the upper half, if the register held 0 (SDM vol. 3, 11.11.7.1).
        // SAFETY: this register only holds the revision.
        if !unsafe { wrmsr_safe(msr::UCODE_REV, 0) } {
            return 0;
        }
        asm::cpuid(1, 0);
        return (rdmsr_safe(msr::UCODE_REV).unwrap_or(0) >> 32) as u32;
    }
    rdmsr_safe(msr::UCODE_REV).unwrap_or(0) as u32
}
