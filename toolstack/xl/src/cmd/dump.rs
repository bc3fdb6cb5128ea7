//! `dump-core`: a domain's memory and registers into a file.

use super::failure::{Failure, Outcome};
use super::host::Host;
use super::{Args, Command, Context};
use crate::core_file::{self, Core};
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use xen_abi::DomId;
use xen_abi::domctl::dominf;
use xen_sys::foreign::ForeignMemory;
use xen_sys::xen::Xen;

/// The rows.
pub const ROWS: &[Command] = &[Command {
    name: "dump-core",
    options: &[],
    usage: "<Domain> <filename>",
    help: "Write a domain's memory to a file",
    min: 2,
    dry_run: false,
    run: dump_core,
}];

fn dump_core(_: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let domain = host.domain(&args.words[0])?;
    if domain.id() == DomId::DOM0 {
        return Err(Failure::new("domain 0 cannot dump itself"));
    }
    if !domain.is(dominf::HVM_GUEST) {
        return Err(Failure::new("dumps of PV domains are not built yet"));
    }
    dump(&host.xen, domain.id(), Path::new(&args.words[1]))
}

/// Writes the file. The domain stands still meanwhile. Of a failed dump no file is left, and one that was there before stays as it
/// was: a domain that crashes again and is ended meanwhile must not take its earlier dump along.
///
/// # Errors
/// What went wrong.
pub fn dump(xen: &Xen, domid: DomId, path: &Path) -> Outcome {
    let memory = ForeignMemory::open()?;
    xen.pause(domid)?;
    let read = |frame: u64, pages: &mut [u8]| memory.read(domid, frame << 12, pages);
    let result = write_whole(path, |to| write(xen, domid, to, read));
    // It runs again whatever happened.
    let unpaused = xen.unpause(domid);
    result?;
    Ok(unpaused?)
}

/// Lets `write` make a file beside `path`, which takes that name once it is whole. What is no file, such as a pipe, is written to.
fn write_whole(path: &Path, write: impl FnOnce(&Path) -> Outcome) -> Outcome {
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return write(path);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&part);
    let written = write(part).and_then(|()| {
        let renamed = fs::rename(part, path);
        renamed.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
    });
    if written.is_err() {
        // There may be none.
        let _ = fs::remove_file(part);
    }
    written
}

/// Where the search for a domain's frames ends. Its RAM lies below 4 GiB, and from there on as far as the domain may grow; what it
/// has plugged in is not far behind. It can have a page anywhere in 256 TiB, and each frame takes its time.
fn search_end(max_pages: u64) -> u64 {
    const GIB: u64 = 1 << 18;
    max_pages.saturating_add(5 * GIB)
}

fn write(
    xen: &Xen,
    domid: DomId,
    path: &Path,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> Outcome {
    let domain = xen.domain(domid)?;
    let domain = domain.ok_or_else(|| Failure::new("the domain is gone"))?;
    let mut vcpus = Vec::new();
    for vcpu in 0..domain.vcpus() {
        if xen.vcpu(domid, vcpu)?.online != 0 {
            vcpus.push(core_file::context(&xen.cpu_record(domid, vcpu)?));
        }
    }
    let frames = xen.present_frames(domid, search_end(domain.0.max_pages))?;
    if (frames.len() as u64) < domain.0.tot_pages {
        eprintln!(
            "xl: warning: {} pages that lie far above the domain's memory are not in the dump",
            domain.0.tot_pages - frames.len() as u64
        );
    }
    let version = xen.version()?;
    // A guest's memory holds its secrets.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
    let core = Core {
        version: &version,
        vcpus: &vcpus,
        frames: &frames,
    };
    let (total, shown) = (frames.len(), io::stderr().is_terminal());
    let mut done = 0usize;
    core_file::write(
        &mut BufWriter::with_capacity(1 << 20, file),
        &core,
        |frame, pages| {
            if shown {
                eprint!("\r{} of {} MiB", done >> 8, total >> 8);
            }
            done += pages.len() / 4096;
            read(frame, pages)
        },
    )
    .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
    if shown {
        eprint!("\r\x1b[K");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, run};
    use super::super::host::Host;
    use super::{Failure, search_end, write, write_whole};
    use std::fs;
    use xen_abi::DomId;

    #[test]
    fn a_dump_has_the_frames_that_are_there() {
        let f = Fixture::new();
        f.machine.borrow_mut().domains.get_mut(&3).unwrap().frames = vec![0, 1, 1500];
        let path = std::env::temp_dir().join(format!("xl-dump-{}", std::process::id()));
        let host = &mut Host::open().unwrap();
        let mut seen = Vec::new();
        let read = |frame, pages: &mut [u8]| {
            seen.push((frame, pages.len()));
            Ok(())
        };
        write(&host.xen, DomId(3), &path, read).unwrap();
        let length = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(seen, [(0, 8192), (1500, 4096)]);
        assert!(length > 3 * 4096 + 2 * 5168 && length < 7 * 4096 + 2 * 5168);
    }

    #[test]
    fn a_page_at_the_end_of_the_world_is_not_looked_for() {
        let f = Fixture::new();
        let far = search_end(f.machine.borrow().domains[&3].info.max_pages);
        f.machine.borrow_mut().domains.get_mut(&3).unwrap().frames =
            vec![0, far - 1, far, (1 << 36) - 1];
        let path = std::env::temp_dir().join(format!("xl-dump-far-{}", std::process::id()));
        let host = &mut Host::open().unwrap();
        let mut seen = Vec::new();
        let read = |frame, _: &mut [u8]| {
            seen.push(frame);
            Ok(())
        };
        write(&host.xen, DomId(3), &path, read).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(seen, [0, far - 1]);
        assert_eq!(search_end(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_dump_that_fails_leaves_the_one_before() {
        let dir = std::env::temp_dir().join(format!("xl-dump-twice-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("web");
        write_whole(&path, |to| Ok(fs::write(to, "first")?)).unwrap();
        let failed = write_whole(&path, |to| {
            fs::write(to, "sec")?;
            Err(Failure::new("the domain is gone"))
        });
        assert_eq!(failed.unwrap_err().message, "the domain is gone");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        write_whole(&path, |to| Ok(fs::write(to, "third")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
        write_whole("/dev/null".as_ref(), |to| Ok(fs::write(to, "pipe")?)).unwrap();
    }

    #[test]
    fn errors() {
        let _f = Fixture::new();
        assert!(run("dump-core 0 /tmp/x").1.contains("cannot dump itself"));
        assert_eq!(run("dump-core web").0, 2);
    }
}
