//! A domain's memory and registers as a file: Xen's dump-core format, an ELF file with sections and no segments.
//!
//! Facts: Xen's `docs/misc/dump-core-format.txt`, `elfnote.h`.

use std::io::{self, Write};
use xen_abi::elfnote::dumpcore;
use xen_abi::guest_context::{VcpuGuestContext, vgcf};
use xen_abi::hvm::save::HwCpu;
use xen_sys::xen::Version;
use zerocopy::IntoBytes;

const PAGE: u64 = 4096;
/// Pages that are read at a time.
const RUN: usize = 256;
/// Of the ELF header, and of a section's header.
const HEADER: u64 = 64;
const SECTION: u64 = 64;
/// Magic number of a dump of a domain that is not PV.
const MAGIC_HVM: u64 = 0xf00f_ebee;
/// Version 0.1 of the format.
const FORMAT: u64 = 1;
const NAMES: [&str; 6] = [
    "",
    ".shstrtab",
    ".note.Xen",
    ".xen_prstatus",
    ".xen_pfn",
    ".xen_pages",
];

/// What goes into the file.
pub struct Core<'a> {
    /// Of the hypervisor.
    pub version: &'a Version,
    /// Of each vCPU that is on, in order.
    pub vcpus: &'a [VcpuGuestContext],
    /// Of the pages, in order.
    pub frames: &'a [u64],
}

/// A vCPU's saved state in the form of the dump.
pub fn context(cpu: &HwCpu) -> VcpuGuestContext {
    let mut ctrlreg = [0; 8];
    (ctrlreg[0], ctrlreg[2], ctrlreg[3], ctrlreg[4]) = (cpu.cr0, cpu.cr2, cpu.cr3, cpu.cr4);
    let mut debugreg = [0; 8];
    debugreg[..4].copy_from_slice(&[cpu.dr0, cpu.dr1, cpu.dr2, cpu.dr3]);
    (debugreg[6], debugreg[7]) = (cpu.dr6, cpu.dr7);
    // The privilege level is that of the stack segment.
    let kernel = cpu.ss_arbytes >> 5 & 3 == 0;
    let mut flags = vgcf::ONLINE | vgcf::I387_VALID;
    flags |= if kernel { vgcf::IN_KERNEL } else { 0 };
    let (own, other) = (cpu.gs_base, cpu.shadow_gs);
    let (gs_base_kernel, gs_base_user) = if kernel { (own, other) } else { (other, own) };
    VcpuGuestContext {
        fpu_ctxt: cpu.fpu_regs,
        flags,
        r15: cpu.r15,
        r14: cpu.r14,
        r13: cpu.r13,
        r12: cpu.r12,
        rbp: cpu.rbp,
        rbx: cpu.rbx,
        r11: cpu.r11,
        r10: cpu.r10,
        r9: cpu.r9,
        r8: cpu.r8,
        rax: cpu.rax,
        rcx: cpu.rcx,
        rdx: cpu.rdx,
        rsi: cpu.rsi,
        rdi: cpu.rdi,
        rip: cpu.rip,
        rflags: cpu.rflags,
        rsp: cpu.rsp,
        // Selectors are 16 bits wide.
        cs: cpu.cs_sel as u16,
        ss: cpu.ss_sel as u16,
        ds: cpu.ds_sel as u16,
        es: cpu.es_sel as u16,
        fs: cpu.fs_sel as u16,
        gs: cpu.gs_sel as u16,
        ctrlreg,
        debugreg,
        fs_base: cpu.fs_base,
        gs_base_kernel,
        gs_base_user,
        ..VcpuGuestContext::default()
    }
}

/// Writes the file. `pages` fills in the pages from a frame on.
///
/// # Errors
/// Those of the file, and of `page`.
pub fn write(
    out: &mut impl Write,
    core: &Core<'_>,
    mut pages: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut strings = Vec::new();
    let mut name_at = Vec::new();
    for name in NAMES {
        name_at.push(strings.len() as u32);
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
    }
    let notes = notes(core);
    let vcpus: Vec<u8> = core
        .vcpus
        .iter()
        .flat_map(|v| v.as_bytes().to_vec())
        .collect();
    let frames: Vec<u8> = core.frames.iter().flat_map(|f| f.to_le_bytes()).collect();
    let total = core.frames.len() as u64 * PAGE;
    // Type, length, alignment, length of an entry.
    let sections = [
        (0u32, 0, 0, 0),
        (3, strings.len() as u64, 1, 0),
        (7, notes.len() as u64, 4, 0),
        (
            1,
            vcpus.len() as u64,
            8,
            size_of::<VcpuGuestContext>() as u64,
        ),
        (1, frames.len() as u64, 8, 8),
        (1, total, PAGE, PAGE),
    ];
    let mut bytes = header();
    let mut at = HEADER + SECTION * NAMES.len() as u64;
    let mut starts = Vec::new();
    for ((kind, length, align, entry), name) in sections.iter().zip(name_at) {
        at = at.next_multiple_of((*align).max(1));
        let start = if *kind == 0 { 0 } else { at };
        starts.push(start);
        for word in [name, *kind] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for long in [0, 0, start, *length] {
            bytes.extend_from_slice(&long.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 8]);
        for long in [*align, *entry] {
            bytes.extend_from_slice(&long.to_le_bytes());
        }
        at += length;
    }
    for (start, part) in starts[1..].iter().zip([&strings, &notes, &vcpus, &frames]) {
        bytes.resize(*start as usize, 0);
        bytes.extend_from_slice(part);
    }
    bytes.resize(starts[5] as usize, 0);
    out.write_all(&bytes)?;
    let mut buffer = vec![0; RUN * PAGE as usize];
    let mut rest = core.frames;
    while let Some(first) = rest.first() {
        let follows = |(n, frame): (usize, &u64)| *frame == first + n as u64;
        let run = rest.iter().enumerate().take(RUN);
        let run = run.take_while(|r| follows(*r)).count();
        let buffer = &mut buffer[..run * PAGE as usize];
        pages(*first, buffer)?;
        out.write_all(buffer)?;
        rest = &rest[run..];
    }
    out.flush()
}

/// 64 bits, little endian, System V; a core file for x86-64.
fn header() -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    bytes.resize(16, 0);
    for half in [4u16, 62] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    bytes.extend_from_slice(&1u32.to_le_bytes());
    // Entry point, segments, sections.
    for long in [0, 0, HEADER] {
        bytes.extend_from_slice(&long.to_le_bytes());
    }
    bytes.extend_from_slice(&0u32.to_le_bytes());
    for half in [HEADER as u16, 0, 0, SECTION as u16, NAMES.len() as u16, 1] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    bytes
}

fn notes(core: &Core<'_>) -> Vec<u8> {
    let v = core.version;
    let mut version = Vec::new();
    for long in [u64::from(v.major), u64::from(v.minor)] {
        version.extend_from_slice(&long.to_le_bytes());
    }
    for (text, room) in [
        (&v.extra, 16),
        (&v.compiler, 64),
        (&v.built_by, 16),
        (&v.built_domain, 32),
        (&v.built_date, 32),
        (&v.capabilities, 1024),
        (&v.changeset, 64),
    ] {
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        version.extend_from_slice(bytes);
        version.resize(version.len() + room - bytes.len(), 0);
    }
    for long in [v.virt_start, v.page_size] {
        version.extend_from_slice(&long.to_le_bytes());
    }
    let numbers = [
        MAGIC_HVM,
        core.vcpus.len() as u64,
        core.frames.len() as u64,
        PAGE,
    ];
    let head: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let mut bytes = Vec::new();
    for (kind, body) in [
        (dumpcore::NONE, &[][..]),
        (dumpcore::HEADER, &head),
        (dumpcore::XEN_VERSION, &version),
        (dumpcore::FORMAT_VERSION, &FORMAT.to_le_bytes()),
    ] {
        for word in [4, body.len() as u32, kind] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(b"Xen\0");
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn file() -> Vec<u8> {
        let cpu = HwCpu {
            rip: 0x1000,
            cr3: 0x2000,
            cs_sel: 0x10,
            ss_arbytes: 0xc93,
            gs_base: 7,
            shadow_gs: 8,
            ..HwCpu::default()
        };
        let version = Version {
            major: 4,
            minor: 17,
            ..Version::default()
        };
        let core = Core {
            version: &version,
            vcpus: &[context(&cpu)],
            frames: &[0, 1, 0xfeff8],
        };
        let mut bytes = Vec::new();
        let fill = |first: u64, pages: &mut [u8]| {
            for (frame, page) in (first..).zip(pages.chunks_mut(4096)) {
                page.fill(frame as u8);
            }
            Ok(())
        };
        write(&mut bytes, &core, fill).unwrap();
        bytes
    }

    /// Start and length of each section, by name.
    fn sections(bytes: &[u8]) -> Vec<(String, usize, usize)> {
        let head = |n: usize| 64 + 64 * n;
        let (start, _) = (number(bytes, head(1) + 24) as usize, 0);
        let name = |at: usize| {
            let end = bytes[start + at..].iter().position(|b| *b == 0).unwrap();
            String::from_utf8(bytes[start + at..start + at + end].to_vec()).unwrap()
        };
        let section = |n| {
            let at = u32::from_le_bytes(bytes[head(n)..head(n) + 4].try_into().unwrap());
            let (start, length) = (number(bytes, head(n) + 24), number(bytes, head(n) + 32));
            (name(at as usize), start as usize, length as usize)
        };
        (0..6).map(section).collect()
    }

    #[test]
    fn the_sections_hold_what_their_names_say() {
        let bytes = file();
        let all = sections(&bytes);
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, NAMES);
        let (_, start, length) = all[4];
        let frames: Vec<u64> = (0..3).map(|n| number(&bytes, start + 8 * n)).collect();
        assert_eq!((frames, length), (vec![0, 1, 0xfeff8], 24));
        let (_, start, length) = all[5];
        assert_eq!(
            (start % 4096, length, bytes.len()),
            (0, 3 * 4096, start + 3 * 4096)
        );
        assert_eq!(
            (bytes[start], bytes[start + 4096], bytes[start + 8192]),
            (0, 1, 0xf8)
        );
        let (_, start, length) = all[3];
        assert_eq!(length, 5168);
        // RIP, CS, CR3, GS bases of a vCPU in its kernel.
        assert_eq!(number(&bytes, start + 648), 0x1000);
        assert_eq!(number(&bytes, start + 656), 0x10);
        assert_eq!(number(&bytes, start + 4984 + 24), 0x2000);
        assert_eq!(
            (number(&bytes, start + 5152), number(&bytes, start + 5160)),
            (7, 8)
        );
    }

    #[test]
    fn the_notes_are_xens() {
        let bytes = file();
        let (_, start, length) = sections(&bytes)[2];
        // Three words and the name of each note.
        assert_eq!(length, 4 * 16 + 32 + 1280 + 8);
        assert_eq!(number(&bytes, start + 32), 0xf00f_ebee);
        assert_eq!(
            (number(&bytes, start + 40), number(&bytes, start + 48)),
            (1, 3)
        );
        assert_eq!(
            (number(&bytes, start + 80), number(&bytes, start + 88)),
            (4, 17)
        );
    }
}
