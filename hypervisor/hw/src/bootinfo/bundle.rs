//! A bundle: several modules in one file, for loaders that pass a single one (QEMU's `-kernel ... -initrd FILE`).
//!
//! Layout, little-endian, offsets from the start of the file:
//!
//! | offset | size | |
//! |---|---|---|
//! | 0 | 8 | `XENOBNDL` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | number of entries, 1 to 16 |
//! | 16 | 32 each | entries: u64 offset of the file, u64 its size, u64 offset of its command line, u64 length of that |
//!
//! Files start on 4 KiB borders; command lines have no NUL. The order is that of Multiboot2 modules: dom0 kernel first.

use super::bytes::{slice, u32_at, u64_at};
use super::{BootError, BootInfo, MAX_MODULES};

/// First bytes of a bundle.
pub const MAGIC: [u8; 8] = *b"XENOBNDL";
/// Bytes before the first entry.
const HEAD: usize = 16;
/// Bytes of an entry.
const ENTRY: usize = 32;

/// Replaces module 0 by the modules that it bundles, if it is a bundle. `file` is its contents.
pub fn unpack(file: &[u8], info: &mut BootInfo) -> Result<(), BootError> {
    if !file.starts_with(&MAGIC) || info.modules.is_empty() {
        return Ok(());
    }
    let error = |entry, why| BootError::Bundle { entry, why };
    if u32_at(file, 8) != Some(1) {
        return Err(error(0, "unknown version"));
    }
    let count = u32_at(file, 12).ok_or(error(0, "cut short"))? as usize;
    if !(1..=MAX_MODULES).contains(&count) {
        return Err(error(0, "number of entries is not 1 to 16"));
    }
    let outer = info.modules.remove(0);
    for i in 0..count {
        let cut = error(i, "reaches past the end of the file");
        let entry = slice(file, HEAD + i * ENTRY, ENTRY).ok_or(cut)?;
        let field = |at| u64_at(entry, at).unwrap_or(u64::MAX);
        let within = |at: u64, len: u64| {
            let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
            slice(file, at, len)
        };
        let (start, size) = (field(0), field(8));
        within(start, size).ok_or(cut)?;
        if start % 4096 != 0 {
            return Err(error(i, "file is not on a 4 KiB border"));
        }
        let line = within(field(16), field(24)).ok_or(cut)?;
        let module = info.module(outer.start + start, size, line);
        if info.modules.try_insert(i, module).is_err() {
            info.note("too many modules: the rest is ignored");
        }
    }
    Ok(())
}

/// Makes a bundle of `(contents, command line)` pairs (for build tools and tests).
#[cfg(not(target_os = "none"))]
pub fn pack(files: &[(&[u8], &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&(files.len() as u32).to_le_bytes());
    let mut lines = HEAD + files.len() * ENTRY;
    let text: usize = files.iter().map(|f| f.1.len()).sum();
    let mut at = (lines + text).next_multiple_of(4096);
    for (contents, line) in files {
        for v in [at, contents.len(), lines, line.len()] {
            out.extend_from_slice(&(v as u64).to_le_bytes());
        }
        lines += line.len();
        at = (at + contents.len()).next_multiple_of(4096);
    }
    for (_, line) in files {
        out.extend_from_slice(line.as_bytes());
    }
    for (contents, _) in files {
        out.resize(out.len().next_multiple_of(4096), 0);
        out.extend_from_slice(contents);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_module(size: usize) -> Box<BootInfo> {
        let mut info = Box::new(BootInfo::new());
        info.push_module(0x10_0000, size as u64, b"outer");
        info
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let kernel = vec![0xaa; 5000];
        let file = pack(&[(&kernel, "root=/dev/vda1"), (b"initrd", ""), (b"", "empty")]);
        let mut info = with_module(file.len());
        info.push_module(0x900_0000, 3, b"second");
        unpack(&file, &mut info).unwrap();
        let got: Vec<(Vec<u8>, &str)> = info.modules[..3]
            .iter()
            .map(|m| {
                let at = (m.start - 0x10_0000) as usize;
                (file[at..at + m.size as usize].to_vec(), info.module_line(m))
            })
            .collect();
        assert_eq!(got[0], (kernel, "root=/dev/vda1"));
        assert_eq!(got[1], (b"initrd".to_vec(), ""));
        assert_eq!(got[2], (Vec::new(), "empty"));
        assert_eq!(info.module_line(&info.modules[3]), "second");
    }

    #[test]
    fn other_files_are_left_alone() {
        let mut info = with_module(10);
        unpack(b"\x7fELF......", &mut info).unwrap();
        assert_eq!(info.modules.len(), 1);
        unpack(&MAGIC, &mut BootInfo::new()).unwrap();
    }

    #[test]
    fn impossible_headers_are_refused() {
        let file = pack(&[(b"kernel", "line"), (b"x", "y")]);
        let broken = |at: usize, v: u64, n: usize| {
            let mut f = file.clone();
            f[at..at + n].copy_from_slice(&v.to_le_bytes()[..n]);
            unpack(&f, &mut with_module(f.len()))
        };
        assert!(broken(8, 2, 4).is_err());
        assert!(broken(12, 0, 4).is_err());
        assert!(broken(12, 17, 4).is_err());
        let second = 16 + 32;
        for (field, v) in [
            (0, u64::MAX),
            (0, 1 << 30),
            (8, u64::MAX),
            (16, 1 << 40),
            (24, u64::MAX),
            (0, 8),
        ] {
            assert!(
                matches!(
                    broken(second + field, v, 8),
                    Err(BootError::Bundle { entry: 1, .. })
                ),
                "{field}: {v:#x}"
            );
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(mut file in proptest::collection::vec(any::<u8>(), 16..400), count in 0u32..20) {
            file[..8].copy_from_slice(&MAGIC);
            file[8..12].copy_from_slice(&1u32.to_le_bytes());
            file[12..16].copy_from_slice(&count.to_le_bytes());
            let mut info = with_module(file.len());
            let _ = unpack(&file, &mut info);
        }
    }
}
