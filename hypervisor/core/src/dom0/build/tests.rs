//! Whole dom0s built in a small machine's memory, then read as the kernel would read them.

use proptest::prelude::*;
use std::vec::Vec;

use hv_hw::bootinfo::memmap::Region;
use kernel_image::samples::{Builder, lz4, note, sample, wrap};
use x86_model::Gpr;

use super::*;
use crate::dom0::acpi::tests::{host_madt, read_back, table};
use crate::dom0::start_info::tests::{Read, read};

const MIB: u64 = 1 << 20;

/// Physical memory of 64 MiB, of which dom0's RAM may be written.
struct Machine {
    bytes: Vec<u8>,
    /// Writes outside these are refused.
    writable: Vec<Range>,
}

impl Machine {
    fn new() -> Self {
        Self {
            bytes: vec![0xcc; 64 << 20],
            writable: Vec::new(),
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Range {
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Range {
            start: at,
            end: at + bytes.len() as u64,
        }
    }

    fn may_write(&self, to: Hpa, len: u64) -> bool {
        self.writable
            .iter()
            .any(|r| r.start <= to.0 && to.0 + len <= r.end)
    }

    fn at(&self, address: u64, len: usize) -> &[u8] {
        &self.bytes[address as usize..address as usize + len]
    }
}

impl PhysWriter for Machine {
    fn copy(&mut self, from: Hpa, to: Hpa, len: u64) -> bool {
        let from = from.0 as usize;
        self.may_write(to, len) && {
            self.bytes
                .copy_within(from..from + len as usize, to.0 as usize);
            true
        }
    }
    fn write(&mut self, to: Hpa, bytes: &[u8]) -> bool {
        self.may_write(to, bytes.len() as u64) && {
            self.put(to.0, bytes);
            true
        }
    }
    fn zero(&mut self, to: Hpa, len: u64) -> bool {
        self.may_write(to, len) && {
            self.bytes[to.0 as usize..(to.0 + len) as usize].fill(0);
            true
        }
    }
}

/// A machine with boot modules in it.
struct Setup {
    machine: Machine,
    kernel: Vec<u8>,
    kernel_at: u64,
    kernel_line: Vec<u8>,
    initrd: Option<(u64, Vec<u8>)>,
    initrd_line: Vec<u8>,
    options: Options,
    tables: Vec<(u64, Vec<u8>)>,
}

impl Setup {
    fn new(options: &str) -> Self {
        Self {
            machine: Machine::new(),
            kernel: wrap(&with_size(lz4(&elf()), elf().len())),
            kernel_at: 40 * MIB + 0x123,
            kernel_line: b"placeholder root=/dev/sda1 ro".to_vec(),
            initrd: Some((44 * MIB, sample(12345))),
            initrd_line: Vec::new(),
            options: Options::parse(options.as_bytes()).0,
            tables: vec![
                (0xf_1000, table(b"FACP", 4, &[7; 100])),
                (0xf_2000, table(b"HPET", 1, &[7; 20])),
                (0xf_3000, host_madt()),
            ],
        }
    }

    /// Builds dom0 and reads back what its kernel would find.
    fn boot(mut self) -> Result<Booted, Dom0Error> {
        let regions = [
            (0, 0x9_fc00, Kind::Ram),
            (0x9_fc00, 0xa_0000, Kind::Reserved),
            (0xf_0000, 0x10_0000, Kind::Reserved),
            (MIB, 64 * MIB, Kind::Ram),
        ]
        .map(|(base, end, kind)| Region {
            base,
            len: end - base,
            kind,
        });
        let own = [Range {
            start: 60 * MIB,
            end: 64 * MIB,
        }];
        let kernel_range = self.machine.put(self.kernel_at, &self.kernel);
        let initrd_range = self
            .initrd
            .as_ref()
            .map(|(at, bytes)| self.machine.put(*at, bytes));
        let tables: Vec<HostTable<'_>> = self
            .tables
            .iter()
            .map(|(address, bytes)| HostTable {
                address: *address,
                bytes,
            })
            .collect();
        let input = Input {
            kernel: BootModule {
                range: kernel_range,
                command_line: &self.kernel_line,
            },
            kernel_bytes: &self.kernel,
            initrd: initrd_range.map(|range| BootModule {
                range,
                command_line: &self.initrd_line,
            }),
            options: &self.options,
            memory: HostMemory {
                regions: &regions,
                hypervisor: &own,
                tables: &[],
            },
            tables: &tables,
            apic_ids: &[0, 2],
            ioapics: &[IoApic {
                id: 0,
                address: 0xfec0_0000,
                gsi_base: 0,
            }],
        };
        let plan = Dom0Plan::new(&input)?;
        let mut machine = self.machine;
        machine.writable = plan.memory.ram().collect();
        machine.writable.push(plan.placement.tables);
        if matches!(plan.elf, Cow::Borrowed(_)) {
            // Then the segments' sources must stay untouched until they are read.
            check_sources(&plan, kernel_range);
        }
        plan.load(&mut machine)?;

        let (state, gprs) = plan.entry_state();
        assert_eq!(state.rip, plan.entry);
        assert_eq!(state.cr0, 0x11);
        let ebx = gprs.0[Gpr::Rbx as usize];
        let info = read(ebx, |a| &machine.bytes[a as usize..]);
        if let Some((_, bytes)) = &self.initrd
            && !bytes.is_empty()
        {
            let (at, len, text) = &info.modules[0];
            assert_eq!(*len, bytes.len() as u64);
            assert!(
                machine.at(*at, bytes.len()) == &bytes[..],
                "initrd at {at:#x}"
            );
            assert_eq!(text, &self.initrd_line);
            // The whole of it lies in RAM of the map.
            assert!(
                info.map
                    .iter()
                    .any(|&(base, size, kind)| kind == 1 && base <= *at && at + len <= base + size)
            );
        } else {
            assert!(info.modules.is_empty());
        }
        let (entries, _) = read_back(info.rsdp, &machine.bytes[info.rsdp as usize..]);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0], 0xf_1000);
        assert!(
            info.map.iter().any(|&(base, size, kind)| kind == 3
                && base <= info.rsdp
                && info.rsdp < base + size)
        );
        Ok(Booted {
            info,
            summary: plan.summary(),
            warnings: plan.warnings.clone(),
            placement: plan.placement,
            machine,
        })
    }
}

/// No step before the last load may write where a later load reads.
fn check_sources(plan: &Dom0Plan<'_>, file: Range) {
    let last = plan
        .steps
        .iter()
        .rposition(|s| matches!(s, Step::Load { .. }))
        .unwrap();
    for step in &plan.steps[..last] {
        let (to, len) = match step {
            Step::Copy { to, len, .. } | Step::Zero { to, len } => (*to, *len),
            Step::Load { to, file } => (*to, file.len() as u64),
            Step::Write { to, bytes } => (*to, bytes.len() as u64),
        };
        assert!(
            len == 0 || to + len <= file.start || to >= file.end,
            "{step:x?} writes into the kernel file"
        );
    }
}

struct Booted {
    info: Read,
    summary: String,
    warnings: Vec<String>,
    placement: Placement,
    machine: Machine,
}

/// Two segments at 16 MiB and a bit above, the first with zeros behind it.
fn elf() -> Vec<u8> {
    let mut b = Builder::small();
    b.loads = vec![
        (16 * MIB, sample(10_000), 20_000),
        (16 * MIB + 0x8000, b"second".to_vec(), 6),
    ];
    b.build()
}

fn with_size(mut stream: Vec<u8>, size: usize) -> Vec<u8> {
    stream.extend((size as u32).to_le_bytes());
    stream
}

fn check_kernel(booted: &Booted) {
    let base = booted.placement.kernel.start;
    assert!(booted.machine.at(base, 10_000) == &sample(10_000)[..]);
    assert!(
        booted
            .machine
            .at(base + 10_000, 10_000)
            .iter()
            .all(|&b| b == 0)
    );
    assert_eq!(booted.machine.at(base + 0x8000, 6), b"second");
}

#[test]
fn a_plain_boot() {
    let booted = Setup::new("dom0_mem=48M").boot().unwrap();
    check_kernel(&booted);
    assert_eq!(booted.info.flags, 3);
    assert_eq!(booted.info.command_line, b"root=/dev/sda1 ro");
    assert_eq!(booted.placement.initrd.unwrap().start, 44 * MIB, "it stays");
    assert!(booted.warnings.is_empty(), "{:?}", booted.warnings);
    assert_eq!(
        booted.summary,
        "dom0: 47 MiB, kernel 0x1000000-0x1008006 entry 0x1000002, initrd 0x2c00000-0x2c03039, start info 0x1009000, ACPI \
         0x3060000"
    );
}

#[test]
fn initrds_at_awkward_places() {
    for (at, len) in [
        (16 * MIB - 5, 100_000),
        (16 * MIB, 4096),
        (16 * MIB + 0x7fff, 3 * 4096),
        (0x1000, 0x2000),
        (59 * MIB, 4096 * 5),
        (30 * MIB + 1, 4096 * 3),
        (48 * MIB - 0x4000, 0x8000),
    ] {
        let mut s = Setup::new("dom0_mem=40M");
        s.initrd = Some((at, sample(len)));
        check_kernel(&s.boot().unwrap_or_else(|e| panic!("{at:#x}: {e}")));
    }
}

#[test]
fn odd_initrds() {
    let mut s = Setup::new("");
    s.initrd = None;
    check_kernel(&s.boot().unwrap());
    let mut s = Setup::new("");
    s.initrd = Some((30 * MIB, Vec::new()));
    check_kernel(&s.boot().unwrap());
    let mut s = Setup::new("");
    s.initrd_line = vec![b'y'; 2048];
    check_kernel(&s.boot().unwrap());
}

#[test]
fn plain_elf_files_are_loaded_from_where_they_lie() {
    // Far away, on its own destination, and beside it.
    for at in [30 * MIB, 16 * MIB, 16 * MIB + 0x100, 16 * MIB - 0x3000] {
        let mut s = Setup::new("");
        s.kernel = elf();
        s.kernel_at = at;
        s.initrd = Some((16 * MIB + 0x10000, sample(30_000)));
        check_kernel(&s.boot().unwrap_or_else(|e| panic!("{at:#x}: {e}")));
    }
}

#[test]
fn command_lines() {
    let line = |module: &str, options: &str| {
        String::from_utf8(command_line(
            module.as_bytes(),
            &Options::parse(options.as_bytes()).0,
        ))
        .unwrap()
    };
    assert_eq!(line("", ""), "");
    assert_eq!(line("placeholder", ""), "");
    assert_eq!(line("  placeholder   a b \0c", ""), "a b");
    assert_eq!(line("placeholders a", ""), "placeholders a");
    assert_eq!(line("a", "-- b c"), "a b c");
    // Forwarded options arrive even on an empty line, and once.
    assert_eq!(line("", "noapic"), "noapic");
    assert_eq!(line("a noapic", "noapic acpi=off"), "a noapic acpi=off");
    assert_eq!(line("acpi=ht", "acpi=off -- b"), "acpi=ht b");
}

#[test]
fn warnings_for_the_administrator() {
    let mut s = Setup::new("");
    s.kernel_line = vec![b'k'; 2100];
    let booted = s.boot().unwrap();
    assert_eq!(
        booted.warnings,
        ["dom0's command line has 2100 bytes; Linux reads 2047"]
    );
    assert_eq!(booted.info.command_line.len(), 2100);
}

#[test]
fn errors_are_one_clear_line() {
    let text = |s: Setup| match s.boot() {
        Ok(_) => panic!("booted"),
        Err(e) => std::format!("{e}"),
    };
    let mut s = Setup::new("");
    s.kernel = b"not a kernel".to_vec();
    assert!(text(s).starts_with("dom0 kernel: the first module is neither"));
    let mut s = Setup::new("");
    // The first block's length, after container header and magic number.
    s.kernel[1024 + 0x2c + 4..][..4].fill(0xff);
    let message = text(s);
    assert!(message.contains("lz4 payload"), "{message}");
    assert!(text(Setup::new("dom0_mem=8M")).contains("raise dom0_mem"));
    let mut s = Setup::new("");
    s.kernel = Builder::with_notes(&[note(b"Xen\0", 1, &[0; 8], 4)]).build();
    assert!(text(s).contains("PV guest only"));
}

proptest! {
    #![proptest_config(crate::testing::cases(24))]

    /// Modules anywhere, also on top of one another's destination: nothing is overwritten before it is read.
    #[test]
    fn modules_anywhere(
        plain: bool,
        kernel_at in prop_oneof![Just(16 * MIB), 15 * MIB..17 * MIB, MIB..58 * MIB],
        initrd_at in prop_oneof![Just(16 * MIB), 15 * MIB..17 * MIB, 0x1000..0x9_0000u64, MIB..62 * MIB],
        initrd_len in prop_oneof![Just(0usize), Just(4096), 1..100usize, 1..1_000_000usize],
        mem in prop_oneof![Just(64u64), 24..60u64],
    ) {
        let mut s = Setup::new(&std::format!("dom0_mem={mem}M"));
        if plain {
            s.kernel = elf();
        }
        s.kernel_at = kernel_at;
        let initrd_len = initrd_len.min((0xa_0000u64.saturating_sub(initrd_at)) as usize + if initrd_at >= MIB { 1_000_000 } else { 0 });
        // Boot loaders do not lay modules over one another.
        let kernel_end = kernel_at + s.kernel.len() as u64;
        prop_assume!(initrd_at + initrd_len as u64 <= kernel_at || initrd_at >= kernel_end);
        s.initrd = Some((initrd_at, sample(initrd_len)));
        check_kernel(&s.boot().map_err(|e| TestCaseError::fail(std::format!("{e}")))?);
    }
}
