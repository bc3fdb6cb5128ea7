//! Guests of a dom0, one after the other in one boot: `ci/vm-tests/dom0/compat.sh`.

use super::Found;
use super::list::{Entry, What};
use super::table::{Cell, Ground, TAIL};
use crate::media::{self, On, Plan};
use crate::{setup, ui};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vm_tests::FATAL;
use vmtest::bundle::Bundle;
use vmtest::console::Outcome;
use vmtest::kernels::Kernel;
use vmtest::place::Place;
use vmtest::qemu::Vm;

/// Series of dom0's kernel.
const DOM0: &str = "6.1";
const SCRIPT: &str = "compat";
/// Seconds for dom0, and for one guest, which the script gives up when it is silent.
const TIMEOUT: u64 = 240;
const TIMEOUT_GUEST: u64 = 1200;

/// Runs the guests on `ground`.
pub fn run(
    ground: Ground,
    hypervisor: &Path,
    kernels: &[Kernel],
    entries: &[&Entry],
    place: Place,
) -> Result<Vec<Found>> {
    let on = match ground {
        Ground::Xenolith => On::XenolithDirect,
        Ground::Xen => On::Xen,
    };
    let step = ui::step(&format!("{} guests on {ground}", entries.len()));
    let bundle = Bundle::new(&format!("compat/guests-{ground}").replace(' ', "-"))?;
    let dom0 = kernels.iter().find(|k| k.series == DOM0);
    let dom0 = dom0.context("no kernel for dom0")?;
    let initrd = media::initrd_with_guests(dom0, on, files(kernels, entries, &bundle.dir)?)?;
    let mut machine = media::machine("q35", on)?;
    machine.memory = "3G".into();
    let plan = Plan {
        on,
        hypervisor,
        cmdline: "dom0_mem=1400M,max:1400M",
        kernel: &dom0.image,
        initrd: &initrd,
        dom0_cmdline: &format!("xt.test={SCRIPT} xt.slow=1"),
        tables: &[],
    };
    let mut vm = Vm::start(plan.args(&machine, &bundle.dir)?, &bundle.dir, place)?;
    let seconds = TIMEOUT + TIMEOUT_GUEST * entries.len() as u64;
    let until = Instant::now() + Duration::from_secs(seconds);
    let end = follow(&mut vm, until);
    let console = vm.console.text();
    drop(vm);
    bundle.drop_media();
    step.end(if end.is_none() { "ok" } else { "no" }, "");
    Ok(entries
        .iter()
        .map(|entry| found(entry, ground, &console, end.as_deref()))
        .collect())
}

/// Waits for the end of the script; why it did not come, if so.
fn follow(vm: &mut Vm, until: Instant) -> Option<String> {
    let (pass, fail) = (
        format!("XT-RESULT {SCRIPT} pass"),
        format!("XT-RESULT {SCRIPT} fail"),
    );
    let needles = [&[pass.as_str(), &fail, "XT-FAIL"], FATAL].concat();
    loop {
        match vm.wait(&needles, until) {
            Outcome::Found(0, _) => return None,
            // A guest's last words are shown too.
            Outcome::Found(_, line) if line.contains("COMPAT-TAIL") => {}
            Outcome::Found(_, line) => return Some(line),
            outcome => return Some(format!("no result: {outcome:?}")),
        }
    }
}

/// The list, the kernels and the RAM disks as files of dom0.
fn files(
    kernels: &[Kernel],
    entries: &[&Entry],
    dir: &Path,
) -> Result<Vec<(String, u32, PathBuf)>> {
    let lines = entries.iter().filter_map(|e| match &e.what {
        What::Guest { line, .. } => Some(format!("{line}\n")),
        _ => None,
    });
    let lines: String = lines.collect();
    let list = dir.join("list");
    fs::write(&list, &lines)?;
    let file = |name: String, path| (format!("/guest/{name}"), 0o644, path);
    let mut files = vec![file("list".into(), list)];
    // A boot loader takes them from a disk that is made in dom0.
    let needed = |series: &str| lines.contains(&format!(" initrd-{series}\n"));
    for kernel in kernels.iter().filter(|k| needed(&k.series)) {
        let series = &kernel.series;
        files.push(file(format!("vmlinuz-{series}"), kernel.image.clone()));
        let initrd = media::guest_initrd(kernel)?;
        files.push(file(format!("initrd-{series}"), initrd));
    }
    let grub = setup::tree("grub-pvh")?.join("usr/lib/grub-xen/grub-i386-xen_pvh.bin");
    files.push(file("grub.bin".into(), grub));
    let shim = setup::tree("debian-xl")?.join("usr/lib/xen-4.17/boot/xen-shim");
    files.push(file("xen-shim".into(), shim));
    Ok(files)
}

/// What the console says about one guest.
fn found(entry: &Entry, ground: Ground, console: &str, end: Option<&str>) -> Found {
    let What::Guest { name, .. } = &entry.what else {
        unreachable!("only guests are in this job")
    };
    let (cell, tail) = verdict(name, console).unwrap_or_else(|| {
        let lines: Vec<&str> = console.lines().collect();
        let shown = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        let why = format!("dom0 ended before: {}", end.unwrap_or("no word of it"));
        (Cell::Red(why), shown)
    });
    Found {
        key: entry.key.clone(),
        ground,
        cell,
        tail,
    }
}

/// The guest's line, and its console's.
fn verdict(name: &str, console: &str) -> Option<(Cell, String)> {
    let head = format!("COMPAT {name} ");
    let line = console.lines().find_map(|l| Some(l.split_once(&head)?.1))?;
    let mut words = line.trim().splitn(3, ' ');
    let (word, seconds) = (words.next()?, words.next()?);
    if word == "pass" {
        return Some((Cell::Pass(format!("{seconds} s")), String::new()));
    }
    let head = format!("COMPAT-TAIL {name} ");
    let tail: Vec<&str> = console
        .lines()
        .filter_map(|l| Some(l.split_once(&head)?.1))
        .collect();
    let why = words.next().unwrap_or("no reason");
    Some((Cell::Red(why.into()), tail.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_guest_are_its_own() {
        let console = "x\nCOMPAT a-1 pass 12\r\nCOMPAT a-10 fail 3 the guest is gone\n\
                       COMPAT-TAIL a-10 last\nCOMPAT-TAIL a-1 other\n";
        let pass = Some((Cell::Pass("12 s".into()), String::new()));
        assert_eq!(verdict("a-1", console), pass);
        let red = Some((Cell::Red("the guest is gone".into()), "last".into()));
        assert_eq!(verdict("a-10", console), red);
        assert_eq!(verdict("a", console), None);
    }
}
