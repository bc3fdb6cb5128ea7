//! What does the hypervisor's file system answer, and what is in /buildinfo?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{HYPFS_OP, Ret, call, ptr};
use guest_rt::{check, fact};

guest_rt::entry!("hypfs", run);

const ROOM: usize = 16384;

/// `path` must have its NUL.
fn op(cmd: u64, path: &mut [u8], buffer: &mut [u8]) -> Ret {
    let (at, len) = (ptr(path), path.len() as u64);
    let size = buffer.len() as u64;
    Ret(call(HYPFS_OP, [cmd, at, len, ptr(buffer), size]))
}

/// A copy of a path in memory that may be handed out.
fn path(text: &str) -> ([u8; 64], usize) {
    let mut bytes = [0; 64];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    (bytes, text.len() + 1)
}

fn read(text: &str, buffer: &mut [u8]) -> Ret {
    let (mut bytes, len) = path(text);
    op(1, &mut bytes[..len], buffer)
}

/// Type, encoding, pad, greatest write; the length is apart, because it follows from the contents.
fn head(buffer: &[u8]) -> ([u8; 4], u32, u32) {
    let word = |at: usize| u32::from_le_bytes(buffer[at..at + 4].try_into().unwrap_or([0; 4]));
    (
        buffer[..4].try_into().unwrap_or([0xff; 4]),
        word(4),
        word(8),
    )
}

fn show(name: &str, text: &str, buffer: &mut [u8]) {
    buffer.fill(0xaa);
    let ret = read(text, buffer);
    let (kind, _, write) = head(buffer);
    fact!(("{name}"), "ret={ret} {kind:x?} write={write:#x}");
}

/// The entries of a directory, one fact each.
fn list(name: &str, text: &str, buffer: &mut [u8]) {
    show(name, text, buffer);
    let mut at = 12;
    for _ in 0..16 {
        let (kind, _, write) = head(&buffer[at..]);
        let next = usize::from(u16::from_le_bytes([buffer[at + 12], buffer[at + 13]]));
        let rest = &buffer[at + 14..];
        let end = rest.iter().position(|&b| b == 0).unwrap_or(0);
        let entry = core::str::from_utf8(&rest[..end]).unwrap_or("?");
        // The last has no next one, so the step is its name's length rounded up.
        let last = next == 0;
        check!(
            last || next == 14 + (end + 1).next_multiple_of(4),
            "{entry}: next at {next}"
        );
        fact!(("{name}-{entry}"), "{kind:x?} write={write:#x}");
        if last {
            return;
        }
        at += next;
    }
}

fn run() {
    let mut buffer = [0xaau8; ROOM];
    fact!("version", "{}", Ret(call(HYPFS_OP, [0; 5])));
    for arg in 1..5 {
        let mut args = [0u64; 5];
        args[arg] = 4096;
        fact!(("version-arg-{arg}"), "{}", Ret(call(HYPFS_OP, args)));
    }
    list("buildinfo", "/buildinfo", &mut buffer);
    list("compileinfo", "/buildinfo/compileinfo", &mut buffer);
    list("version-dir", "/buildinfo/version", &mut buffer);
    show("slash-at-end", "/buildinfo/version/", &mut buffer);
    show("root", "/", &mut buffer);
    show("major", "/buildinfo/version/major", &mut buffer);
    fact!("major-value", "{:x?} {}", &buffer[12..16], head(&buffer).1);
    show("extra", "/buildinfo/version/extra", &mut buffer);
    let len = head(&buffer).1 as usize;
    check!(
        (1..64).contains(&len) && buffer[12 + len - 1] == 0 && buffer[12 + len] == 0xaa,
        "extra has {len} bytes"
    );
    show("config", "/buildinfo/config", &mut buffer);
    fact!("config-magic", "{:x?}", &buffer[12..15]);
    for (name, text) in [
        ("none", "/nope"),
        ("part-of-name", "/build"),
        ("name-and-more", "/buildinfoo"),
        ("below-a-leaf", "/buildinfo/config/x"),
        ("slash-after-leaf", "/buildinfo/config/"),
        ("two-slashes", "//buildinfo"),
        ("relative", "buildinfo"),
        ("empty", ""),
    ] {
        fact!(("path-{name}"), "{}", read(text, &mut buffer));
    }
    fact!("path-no-bytes", "{}", op(1, &mut [], &mut buffer));
    fact!("path-no-nul", "{}", op(1, &mut [b'/'], &mut buffer));
    let mut two = *b"/\0\0";
    fact!("path-two-nuls", "{}", op(1, &mut two, &mut buffer));
    let mut long = [0u8; 1025];
    long[..1024].fill(b'/');
    fact!("path-1025", "{}", op(1, &mut long, &mut buffer));
    let mut full = [b'/'; 1024];
    full[1023] = 0;
    fact!("path-1024", "{}", op(1, &mut full, &mut buffer));
    let bad = |args: [u64; 5]| Ret(call(HYPFS_OP, args));
    fact!(
        "path-bad-pointer",
        "{}",
        bad([1, 1 << 46, 2, ptr(&mut buffer), 64])
    );
    let (mut config, len) = path("/buildinfo/config");
    let at = ptr(&mut config);
    fact!(
        "buffer-bad-pointer",
        "{}",
        bad([1, at, len as u64, 1 << 46, 64])
    );
    for size in [0, 11, 12, 13] {
        buffer.fill(0xaa);
        let ret = read("/buildinfo/config", &mut buffer[..size]);
        fact!(
            ("config-in-{size}"),
            "{ret} {:x?} then {:x}",
            &buffer[..4],
            buffer[12]
        );
    }
    for cmd in [2, 3, 99] {
        fact!(
            ("command-{cmd}"),
            "{}",
            op(cmd, &mut config[..len], &mut buffer[..4])
        );
    }
    let (mut none, len) = path("/nope");
    fact!(
        "write-none",
        "{}",
        op(2, &mut none[..len], &mut buffer[..4])
    );
    fact!(
        "command-99-none",
        "{}",
        op(99, &mut none[..len], &mut buffer[..4])
    );
}
