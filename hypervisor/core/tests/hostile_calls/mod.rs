//! Makes hypercalls that are nearly right: the structure of the sub-operation, filled field by field with values that fit
//! the field's name, with a wrong one here and there.

mod toolstack;

use super::common::PAGES;
use xen_abi::layout::{FieldLayout, StructLayout};
use xen_abi::{HEADERS, compat};

/// A small generator: reproducible from its seed.
pub struct Random {
    state: u64,
    /// The case is a call from 32-bit mode.
    narrow: bool,
}

/// A hypercall, and what is written to memory before.
#[derive(Debug)]
pub struct Case {
    pub number: u64,
    pub args: [u64; 5],
    /// Address and bytes.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// From 32-bit mode.
    pub narrow: bool,
}

/// Sub-operations: number of the call, of the sub-operation, and the structure that it reads.
const OPERATIONS: &[(u64, u64, &str)] = &[
    (7, 17, "PfSettime32"),
    (7, 50, "PfFirmwareInfo"),
    (7, 55, "PfPcpuinfo"),
    (7, 62, "PfSettime64"),
    (12, 0, "MemoryReservation"),
    (12, 1, "MemoryReservation"),
    (12, 3, "MemoryDomain"),
    (12, 4, "MemoryDomain"),
    (12, 6, "MemoryReservation"),
    (12, 7, "AddToPhysmap"),
    (12, 9, "MemoryMap"),
    (12, 11, "MemoryExchange"),
    (12, 13, "ForeignMemoryMap"),
    (12, 14, "MemoryDomain"),
    (12, 15, "RemoveFromPhysmap"),
    (12, 17, "PodTarget"),
    (12, 23, "AddToPhysmapBatch"),
    (12, 24, "MemoryReservation"),
    (12, 27, "ReservedDeviceMemoryMap"),
    (12, 28, "MemAcquireResource"),
    (13, 0, "MulticallEntry"),
    (17, 6, "FeatureInfo"),
    (20, 0, "GnttabMapGrantRef"),
    (20, 1, "GnttabUnmapGrantRef"),
    (20, 2, "GnttabSetupTable"),
    (20, 5, "GnttabCopy"),
    (20, 6, "GnttabQuerySize"),
    (20, 8, "GnttabSetVersion"),
    (20, 10, "GnttabGetVersion"),
    (20, 11, "GnttabSwapGrantRef"),
    (24, 0, "VcpuHvmContext"),
    (24, 1, "VcpuSetPeriodicTimer"),
    (24, 2, "VcpuSetPeriodicTimer"),
    (24, 4, "VcpuRunstateInfo"),
    (24, 5, "VcpuRegisterRunstateMemoryArea"),
    (24, 6, "VcpuSetPeriodicTimer"),
    (24, 8, "VcpuSetSingleshotTimer"),
    (24, 10, "VcpuRegisterVcpuInfo"),
    (24, 13, "VcpuRegisterTimeMemoryArea"),
    (29, 2, "SchedShutdown"),
    (29, 3, "SchedPoll"),
    (29, 4, "SchedRemoteShutdown"),
    (29, 6, "SchedWatchdog"),
    (29, 7, "SchedPinOverride"),
    (32, 0, "EvtchnBindInterdomain"),
    (32, 1, "EvtchnBindVirq"),
    (32, 3, "EvtchnClose"),
    (32, 4, "EvtchnSend"),
    (32, 5, "EvtchnStatus"),
    (32, 6, "EvtchnAllocUnbound"),
    (32, 7, "EvtchnBindIpi"),
    (32, 8, "EvtchnBindVcpu"),
    (32, 9, "EvtchnUnmask"),
    (32, 10, "EvtchnReset"),
    (32, 11, "EvtchnInitControl"),
    (32, 12, "EvtchnExpandArray"),
    (32, 13, "EvtchnSetPriority"),
    (33, 19, "PhysdevRestoreMsi"),
    (33, 24, "PhysdevPciMmcfgReserved"),
    (33, 25, "PhysdevPciDeviceAdd"),
    (33, 26, "PhysdevPciDevice"),
    (34, 0, "HvmParam"),
    (34, 1, "HvmParam"),
    (34, 11, "HvmXentrace"),
    (34, 15, "HvmGetMemType"),
    (34, 23, "HvmEvtchnUpcallVector"),
    (35, 1, "ReadConsole"),
    (35, 3, "PhysInfo"),
    (35, 6, "GetDomainInfoList"),
    (35, 7, "DebugKeys"),
    (35, 8, "GetCpuInfo"),
    (35, 9, "AvailHeap"),
    (35, 16, "CpuTopoInfo"),
    (35, 17, "NumaInfo"),
    (35, 18, "CpupoolOp"),
    (35, 19, "SchedulerOp"),
    (35, 22, "PciTopoInfo"),
    (35, 26, "CpuFeatureset"),
    (35, 29, "CpuPolicy"),
    (36, 1, "CreateDomain"),
    (36, 1, "CreateDomain17"),
    (36, 2, "MaxMem"),
    (36, 3, "MaxMem"),
    (36, 4, "MaxMem"),
    (36, 5, "GetDomainInfo"),
    (36, 9, "VcpuAffinity"),
    (36, 10, "ShadowOp"),
    (36, 11, "MaxMem"),
    (36, 14, "GetVcpuInfo"),
    (36, 15, "MaxVcpus"),
    (36, 15, "MaxVcpus"),
    (36, 16, "SchedulerOp"),
    (36, 17, "SetDomainHandle"),
    (36, 20, "IomemPermission"),
    (36, 21, "IoportPermission"),
    (36, 22, "HypercallInit"),
    (36, 24, "SetTimeOffset"),
    (36, 25, "VcpuAffinity"),
    (36, 27, "MaxMem"),
    (36, 28, "SendTrigger"),
    (36, 29, "Subscribe"),
    (36, 33, "HvmContext"),
    (36, 34, "HvmContext"),
    (36, 39, "MemoryMapping"),
    (36, 40, "IoportMapping"),
    (36, 55, "HvmContextPartial"),
    (36, 59, "TscInfo"),
    (36, 60, "TscInfo"),
    (36, 61, "GetPageFrameInfo3"),
    (36, 66, "SetVirqHandler"),
    (36, 68, "NodeAffinity"),
    (36, 69, "NodeAffinity"),
    (36, 72, "VcpuMsrs"),
    (36, 82, "CpuPolicy"),
    (36, 83, "CpuPolicy"),
    (36, 85, "PagingMempool"),
    (36, 86, "PagingMempool"),
];

impl Random {
    /// Any seed will do.
    pub fn new(seed: u64) -> Self {
        Random {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            narrow: false,
        }
    }
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    /// Values that have broken code before: small, pointers into RAM, page ends, the ends of the address space.
    fn value(&mut self) -> u64 {
        match self.below(8) {
            0 => self.below(64),
            1 => self.below(PAGES * 4096),
            2 => self.below(PAGES) * 4096 + 4096 - self.below(16),
            3 => u64::MAX - self.below(64),
            4 => 1 << self.below(64),
            5 => self.below(0x8000),
            6 => PAGES * 4096 - self.below(64),
            _ => self.next(),
        }
    }
    /// Numbers as wide as the caller's registers.
    fn longs(&self, numbers: &[u64]) -> Vec<u8> {
        let width = if self.narrow { 4 } else { 8 };
        let bytes = numbers
            .iter()
            .flat_map(|n| n.to_le_bytes().into_iter().take(width));
        bytes.collect()
    }
    /// Frames in RAM, and some that are holes.
    fn gfn(&mut self) -> u64 {
        self.below(PAGES + 16)
    }
    /// A place for a structure or a list; now and then at the end of a page.
    fn place(&mut self) -> u64 {
        let at = self.below(PAGES - 1) * 4096;
        at + if self.one_in(4) {
            4096 - 8 * self.below(16)
        } else {
            8 * self.below(256)
        }
    }
    /// Twos of 32-bit numbers that can be ports, and 64-bit numbers that can be frames.
    fn list(&mut self) -> Vec<u8> {
        let numbers = 1 + self.below(40);
        (0..numbers)
            .flat_map(|_| self.gfn().to_le_bytes())
            .collect()
    }

    fn field(&mut self, f: &FieldLayout, memory: &mut Vec<(u64, Vec<u8>)>) -> u64 {
        const POINTERS: &[&str] = &[
            "extent_start",
            "buffer",
            "frame_list",
            "ports",
            "idxs",
            "gpfns",
            "errs",
            "addr",
            "leaves",
            "msrs",
            "array",
            "keys",
            "info",
            "cputopo",
            "meminfo",
            "distance",
            "features",
            "devs",
            "nodes",
            "nodemap",
            "cpumap_hard",
            "cpumap_soft",
            "cpumap",
        ];
        let name = f.name;
        if name.starts_with('_') {
            return 0;
        }
        if POINTERS.contains(&name) {
            let at = if name == "frame_list" && self.one_in(3) {
                0
            } else {
                self.place()
            };
            let list = self.list();
            memory.push((at, list));
            return at;
        }
        let has = |part: &str| name.contains(part);
        if f.size == 2 && has("dom") {
            // SELF, both domains, nobody, IO, XEN.
            return self.pick(&[0x7ff0, 0x7ff0, 0, 1, 1234, 0x7ff1, 0x7ff2]);
        }
        if name == "host_addr" {
            return self.gfn() << 12;
        }
        if has("gfn") || has("pfn") || has("mfn") || name == "idx" || name == "frame" {
            return self.gfn();
        }
        if has("port") || has("ref") || name == "handle" {
            return self.below(24);
        }
        if has("vcpu") || name == "kind" || has("version") || has("reason") || name == "pcpu" {
            return self.below(4);
        }
        if name == "timeout" || name.ends_with("_ns") {
            return self.pick(&[0, 1, 10, 1_000_000, 5_000_000_000]);
        }
        match f.size {
            1 | 2 => self.below(300),
            _ if has("flags") => 1 << self.below(5),
            _ => self.below(48),
        }
    }

    /// A structure with fitting fields, one of them wrong now and then.
    fn structure(&mut self, layout: &StructLayout, memory: &mut Vec<(u64, Vec<u8>)>) -> Vec<u8> {
        let mut bytes = vec![0; layout.size];
        let wrong = self.one_in(6).then(|| self.below(8) as usize);
        for (i, f) in layout.fields.iter().enumerate() {
            let value = if wrong == Some(i) {
                self.value()
            } else {
                self.field(f, memory)
            };
            let n = f.size.min(8);
            bytes[f.offset..f.offset + n].copy_from_slice(&value.to_le_bytes()[..n]);
            // A set: pointer, then length.
            if f.size == 16 && f.name.contains("map") {
                let bits = self.below(600) as u32;
                bytes[f.offset + 8..f.offset + 12].copy_from_slice(&bits.to_le_bytes());
            }
        }
        bytes
    }
}

/// The structure of a call; some names stand in two headers.
fn layout(number: u64, name: &str, narrow: bool) -> &'static StructLayout {
    let mut twins = compat::HEADERS.iter().flat_map(|h| h.structs);
    if let (true, Some(twin)) = (narrow, twins.find(|s| s.name == name)) {
        return twin;
    }
    let (first, other): (&[_], &[_]) = match number {
        35 => (&["sysctl.h"], &["domctl.h"]),
        _ => (&["domctl.h"], &["sysctl.h"]),
    };
    let find = |wanted: &dyn Fn(&str) -> bool| {
        HEADERS
            .iter()
            .filter(|h| wanted(h.file))
            .flat_map(|h| h.structs)
            .find(|s| s.name == name)
    };
    find(&|file| first.contains(&file))
        .or_else(|| find(&|file| !other.contains(&file)))
        .unwrap_or_else(|| panic!("no structure {name}"))
}

impl Case {
    /// The next case.
    pub fn new(random: &mut Random) -> Case {
        random.narrow = random.one_in(3);
        let case = if random.one_in(6) {
            Case::wild(random)
        } else {
            Case::fitting(random, true)
        };
        Case {
            narrow: random.narrow,
            ..case
        }
    }

    /// Any number, any arguments, a structure of any bytes.
    fn wild(random: &mut Random) -> Case {
        let numbers = [
            7, 12, 13, 15, 17, 18, 20, 21, 24, 26, 29, 32, 33, 34, 35, 36, 41, 42, 48, 60,
        ];
        let number = if random.one_in(50) {
            random.value()
        } else {
            random.pick(&numbers)
        };
        let at = random.place();
        let bytes: Vec<u8> = (0..16).flat_map(|_| random.value().to_le_bytes()).collect();
        let mut args = [0; 5].map(|_| random.value());
        args[0] = if [7, 35, 36].contains(&number) {
            at
        } else {
            random.below(32)
        };
        if random.one_in(2) {
            args[1] = at;
        }
        if random.one_in(3) {
            args[2] = at;
        }
        Case {
            number,
            args,
            memory: vec![(at, bytes)],
            narrow: false,
        }
    }

    /// An operation of a device model in a buffer of about its size. Ends of domains are kept rare.
    fn device_model(random: &mut Random) -> Case {
        let (buffers, at) = (random.place(), random.place());
        let number = match random.below(8) {
            0..4 => 14,
            4 if random.one_in(20) => 16,
            5 => 20,
            _ => random.below(24),
        };
        let size = random.pick(&[8, 12, 24, 23, 7, 0, u64::MAX]);
        let message = [random.value(), 0xfee0_0000 | random.below(1 << 20)];
        let words = [
            number | u64::from(random.one_in(9)) << 32,
            message[0] & 0xffff_ffff,
            message[1],
        ];
        let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Case {
            number: 41,
            args: [random.below(4), random.below(5), buffers, 0, 0],
            memory: vec![(buffers, random.longs(&[at, size])), (at, bytes(&words))],
            narrow: false,
        }
    }

    /// A sub-operation with its structure.
    fn fitting(random: &mut Random, multicalls: bool) -> Case {
        match random.below(32) {
            0 => return Case::plain(15, [random.value(), 0, 0, 0, 0]),
            1 => return Case::plain(21, [random.below(2), random.below(8), 0, 0, 0]),
            2 => {
                let buffer = random.place();
                let args = [random.below(2), random.below(9000), buffer, 0, 0];
                return Case::plain(18, args);
            }
            3 => {
                let buffer = random.place();
                return Case::plain(17, [random.below(12), buffer, 0, 0, 0]);
            }
            4 => {
                let path: &[u8] = random.pick(&[
                    b"/\0",
                    b"/buildinfo\0",
                    b"/buildinfo/config\0",
                    b"/buildinfo/version/extra\0",
                    b"/buildinfo/none\0",
                    b"buildinfo\0\0",
                ]);
                let (at, buffer) = (random.place(), random.place());
                let len = path.len() as u64 + u64::from(random.one_in(8));
                return Case {
                    number: 42,
                    args: [random.below(4), at, len, buffer, random.below(9000)],
                    memory: vec![(at, path.to_vec())],
                    narrow: false,
                };
            }
            5 => return Case::device_model(random),
            _ => {}
        }
        let (number, sub, name) = loop {
            let op = random.pick(OPERATIONS);
            // Ends of the machine are kept rare, or little else would be seen.
            let ends = (op.0, op.1) == (29, 2);
            if (op.0 != 13 || multicalls) && (!ends || random.one_in(20)) {
                break op;
            }
        };
        if number == 13 {
            return Case::multicall(random);
        }
        let mut memory = Vec::new();
        let layout = layout(number, name, random.narrow);
        let count = if number == 20 { 1 + random.below(3) } else { 1 };
        let at = random.place();
        let mut bytes = Vec::new();
        if number == 7 {
            bytes.extend((sub as u32).to_le_bytes());
            bytes.extend(0x0300_0001u32.to_le_bytes());
        }
        match number {
            35 => bytes.extend([sub as u32, 0x15].iter().flat_map(|w| w.to_le_bytes())),
            36 => bytes.extend(toolstack::domctl_head(random, sub as u32)),
            _ => {}
        }
        for _ in 0..count {
            let mut argument = random.structure(layout, &mut memory);
            if number == 36 {
                toolstack::amend(random, sub as u32, &mut argument, &mut memory);
            }
            bytes.extend(argument);
        }
        match number {
            7 => bytes.resize(136, 0),
            35 => bytes.resize(136, 0),
            36 => bytes.resize(144, 0),
            _ => {}
        }
        memory.push((at, bytes));
        let args = match number {
            7 | 35 | 36 => [at, 0, 0, 0, 0],
            20 => [sub, at, count, 0, 0],
            24 => [sub, random.below(3), at, 0, 0],
            _ => [sub, at, 0, 0, 0],
        };
        Case {
            number,
            args,
            memory,
            narrow: false,
        }
    }

    fn plain(number: u64, args: [u64; 5]) -> Case {
        Case {
            number,
            args,
            memory: Vec::new(),
            narrow: false,
        }
    }

    /// A list of fitting calls.
    fn multicall(random: &mut Random) -> Case {
        let count = 1 + random.below(6);
        let mut memory = Vec::new();
        let mut list = Vec::new();
        for _ in 0..count {
            let inner = Case::fitting(random, false);
            memory.extend(inner.memory);
            list.extend(random.longs(&[inner.number, 0]));
            list.extend(random.longs(&inner.args));
            list.extend(random.longs(&[0]));
        }
        let at = random.place();
        memory.push((at, list));
        Case {
            number: 13,
            args: [at, count, 0, 0, 0],
            memory,
            narrow: false,
        }
    }
}
