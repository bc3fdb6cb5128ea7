//! Kernels put together byte by byte, for the tests of what loads them.

use alloc::vec;
use alloc::vec::Vec;

/// A kernel to be written as a file.
#[derive(Clone)]
pub struct Builder {
    /// (paddr, file bytes, memsz).
    pub loads: Vec<(u64, Vec<u8>, u64)>,
    /// Contents of the notes.
    pub notes: Vec<u8>,
    /// Alignment that their header states.
    pub note_align: u64,
    /// Put the notes in a section instead of a segment.
    pub note_section: bool,
}

impl Builder {
    /// One segment at 16 MiB and an entry in it.
    pub fn small() -> Self {
        Self {
            loads: vec![(16 << 20, b"code".to_vec(), 0x3000)],
            notes: note(b"Xen\0", 18, &0x100_0002_u64.to_le_bytes(), 4),
            note_align: 4,
            note_section: false,
        }
    }

    /// The same with other notes.
    pub fn with_notes(notes: &[Vec<u8>]) -> Self {
        Self {
            notes: notes.concat(),
            ..Self::small()
        }
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        let phnum = self.loads.len() + usize::from(!self.note_section);
        let mut data = Vec::new();
        let base = 64 + 56 * phnum + 64;
        let mut headers = Vec::new();
        for (paddr, bytes, memsz) in &self.loads {
            let at = base + data.len();
            headers.extend(phdr(1, at, *paddr, bytes.len(), *memsz, 0x20_0000));
            data.extend_from_slice(bytes);
        }
        let notes_at = base + data.len();
        let len = self.notes.len();
        data.extend_from_slice(&self.notes);
        let mut section = vec![0; 64];
        if self.note_section {
            section[4..8].copy_from_slice(&7_u32.to_le_bytes());
            section[24..32].copy_from_slice(&(notes_at as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(len as u64).to_le_bytes());
            section[48..56].copy_from_slice(&self.note_align.to_le_bytes());
        } else {
            headers.extend(phdr(4, notes_at, 0, len, len as u64, self.note_align));
        }
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        for half in [2_u16, 62] {
            file.extend(half.to_le_bytes());
        }
        file.extend(1_u32.to_le_bytes());
        let shoff = if self.note_section { base - 64 } else { 0 };
        for word in [0, 64, shoff as u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for half in [64, 56, phnum, 64, usize::from(self.note_section), 0] {
            file.extend((half as u16).to_le_bytes());
        }
        file.extend(headers);
        file.extend(section);
        file.extend(data);
        file
    }
}

fn phdr(kind: u32, offset: usize, paddr: u64, filesz: usize, memsz: u64, align: u64) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(7_u32.to_le_bytes());
    for word in [offset as u64, paddr, paddr, filesz as u64, memsz, align] {
        out.extend(word.to_le_bytes());
    }
    out
}

/// A note, padded.
pub fn note(owner: &[u8], kind: u32, desc: &[u8], align: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [owner.len() as u32, desc.len() as u32, kind] {
        out.extend(word.to_le_bytes());
    }
    out.extend_from_slice(owner);
    out.resize(out.len().next_multiple_of(align), 0);
    out.extend_from_slice(desc);
    out.resize(out.len().next_multiple_of(align), 0);
    out
}

/// Data with the marks of a kernel: calls with relative targets, runs, text, noise.
pub fn sample(len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut seed = 1u64;
    while out.len() < len {
        seed = (seed * 1_103_515_245 + 12345) & 0x7fff_ffff;
        let r = seed >> 16;
        let byte = (r >> 2) as u8;
        match r & 3 {
            0 => {
                out.push(0xe8);
                out.extend_from_slice(&((seed >> 3) as u16).to_le_bytes());
                out.extend_from_slice(&[0, 0]);
            }
            1 => {
                let count = 1 + (r >> 10 & 15) * (1 + (r >> 4 & 7) * 3);
                out.resize(out.len() + count as usize, byte);
            }
            2 => out.extend_from_slice(b"kernel text "),
            _ => out.extend_from_slice(&[byte, (r >> 7) as u8]),
        }
    }
    out.truncate(len);
    out
}

/// As the kernel's build compresses with LZ4.
pub fn lz4(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x02, 0x21, 0x4c, 0x18];
    for block in data.chunks(8 << 20) {
        let packed = lz4_flex::block::compress(block);
        out.extend((packed.len() as u32).to_le_bytes());
        out.extend(packed);
    }
    out
}

/// Wraps a payload (with its size word) into a minimal bzImage.
pub fn wrap(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0u8; 2 * 512 + 0x2c];
    file[0x1f1] = 1;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    file[0x248..0x24c].copy_from_slice(&0x2c_u32.to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    file.extend_from_slice(payload);
    file
}
