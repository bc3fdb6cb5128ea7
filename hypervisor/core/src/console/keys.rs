//! Debug keys: one letter typed to the hypervisor prints a part of its state. Letters are Xen's where Xen has the key.
//!
//! Each collects its lines under the lock that it needs and prints them afterwards: a serial line is slow, and nobody may wait
//! for it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hv_hw::machine::{CpuId, PowerAction};
use hv_hw::mem::{frames, heap};
use hv_hw::{Machine, config};

use crate::hotplug::Stage;
use crate::hypervisor::{Hypervisor, Pcpu};
use crate::vcpu::run::sleep_name;
use crate::vcpu::{NO_CPU, Vcpu};

/// Ports shown of each domain.
const MOST_PORTS: usize = 256;

/// A key.
pub struct Key {
    /// The letter.
    pub letter: u8,
    /// What it does, for `h`.
    pub help: &'static str,
    /// Part of `*`: it only looks.
    pub looks: bool,
    run: fn(&Hypervisor),
}

const fn look(letter: u8, help: &'static str, run: fn(&Hypervisor)) -> Key {
    Key {
        letter,
        help,
        looks: true,
        run,
    }
}

/// All keys.
pub const KEYS: &[Key] = &[
    Key {
        letter: b'*',
        help: "all keys that only look",
        looks: false,
        run: |hv| {
            for key in KEYS.iter().filter(|k| k.looks) {
                (key.run)(hv);
            }
        },
    },
    Key {
        letter: b'R',
        help: "reboot the machine",
        looks: false,
        run: |hv| {
            hv.say(format_args!("'R' pressed -> rebooting machine"));
            hv.hw.power(PowerAction::Reboot)
        },
    },
    look(b'e', "event channels of all domains", events),
    look(b'g', "grant tables of all domains", grants),
    Key {
        letter: b'h',
        help: "this list",
        looks: false,
        run: help,
    },
    look(b'i', "interrupt bindings", interrupts),
    look(b'k', "the build's configuration", configuration),
    look(b'm', "memory", memory),
    look(b'q', "domains and their vCPUs", domains),
    look(b'r', "run queues", run_queues),
];

impl Hypervisor {
    /// Serves a debug key.
    pub fn debug_key(&self, letter: u8) {
        match KEYS.iter().find(|k| k.letter == letter) {
            Some(key) => (key.run)(self),
            // Enter, and what a terminal sends by itself, is no question.
            None if letter.is_ascii_graphic() => self.say(format_args!(
                "'{}' is no debug key; 'h' lists them",
                char::from(letter)
            )),
            None => {}
        }
    }

    fn say_all(&self, lines: Vec<String>) {
        for line in lines {
            self.say(format_args!("{line}"));
        }
    }
}

fn help(hv: &Hypervisor) {
    hv.say(format_args!("'h' pressed -> showing installed handlers"));
    for key in KEYS {
        let letter = char::from(key.letter);
        hv.say(format_args!(" key '{letter}' => {}", key.help));
    }
}

fn configuration(hv: &Hypervisor) {
    hv.say(format_args!("'k' pressed -> the build's configuration"));
    for line in config::text().lines().filter(|l| l.contains("CONFIG_")) {
        hv.say(format_args!("{line}"));
    }
}

fn memory(hv: &Hypervisor) {
    let kib = |frames: usize| frames << 2;
    hv.say(format_args!(
        "'m' pressed -> memory: {} KiB of RAM, {} KiB free, {} bytes of objects",
        kib(frames::total_frames()),
        kib(frames::free_frames()),
        heap::in_use()
    ));
}

fn vcpu_line(v: &Vcpu) -> String {
    let on = match v.running_on.load(Ordering::Relaxed) {
        NO_CPU => String::from("not running"),
        cpu => format!("on CPU {cpu}"),
    };
    format!(
        "  {}: {}, {on}, {}, holds {}, exits {}, hypercalls {}, injections {}",
        v.key,
        if v.up.load(Ordering::Relaxed) {
            "up"
        } else {
            "down"
        },
        sleep_name(v.sleep.load(Ordering::Relaxed)),
        v.pause.load(Ordering::Relaxed),
        v.stats.exits(),
        v.stats.hypercalls(),
        v.stats.injections()
    )
}

fn domains(hv: &Hypervisor) {
    hv.say(format_args!("'q' pressed -> domains"));
    for d in hv.domains() {
        hv.say(format_args!(
            "{}: {:?}, {} of {} pages, {} of {} vCPUs{}, shutdown {:?}, held {}",
            d.id,
            d.life(),
            d.p2m.pages(),
            d.max_pages(),
            d.vcpus().len(),
            d.max_vcpus(),
            if d.privileged { ", control domain" } else { "" },
            d.shutdown_reason(),
            d.is_paused()
        ));
        hv.say_all(d.vcpus().iter().map(|v| vcpu_line(v)).collect());
    }
}

fn run_queues(hv: &Hypervisor) {
    let mut lines = Vec::new();
    let name = hv.sched.with(|p| {
        p.dump(&mut |line| lines.push(line));
        p.name()
    });
    hv.say(format_args!("'r' pressed -> run queues of {name}"));
    hv.say_all(lines);
}

fn interrupts(hv: &Hypervisor) {
    hv.say(format_args!("'i' pressed -> interrupt bindings"));
    let bound = hv.irqs.all();
    let lines = bound.iter().map(|(_, irq)| {
        let at = irq.moving.at();
        let old: Vec<String> = (irq.moving.places().skip(1))
            .map(|p| format!(" (old: CPU {} vector {:#04x})", p.cpu, p.vector))
            .collect();
        format!(
            "  CPU {} vector {:#04x}: {} {:?}, {} arrived, {} of them late, moved {} times{}",
            at.cpu,
            at.vector,
            irq.binding.domain,
            irq.binding.source,
            irq.arrivals.0,
            irq.arrivals.1,
            irq.moves,
            old.concat()
        )
    });
    hv.say_all(lines.collect());
    let sum = |f: fn(&Pcpu) -> &AtomicU64| -> u64 {
        hv.pcpus.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
    };
    let waiting: usize = bound
        .iter()
        .map(|(_, irq)| irq.moving.places().count() - 1)
        .sum();
    hv.say(format_args!(
        "  of unknown origin: {}, late: {}, vectors to be given back: {waiting}, moves in all: {}",
        sum(|p| &p.stray),
        sum(|p| &p.late),
        bound.iter().map(|(_, irq)| irq.moves).sum::<u64>()
    ));
    for (n, cpu) in hv.pcpus.iter().enumerate() {
        if let Some(c) = hv.hw.interrupt_counts(CpuId(n as u32)) {
            let away = match cpu.hotplug.stage() {
                Stage::Online => "",
                _ => " (not online)",
            };
            hv.say(format_args!(
                "  CPU {n}{away}: {} of {} device vectors in use, {} spurious, {} of unknown origin, {} late, {} messages sent",
                c.vectors_used,
                c.vectors,
                c.spurious,
                cpu.stray.load(Ordering::Relaxed),
                cpu.late.load(Ordering::Relaxed),
                c.icr_writes
            ));
            if c.notifications != 0 {
                hv.say(format_args!(
                    "  CPU {n}: {} messages posted, {} notifications for them, {} turns, {} of no device",
                    c.posted, c.notifications, c.posted_turns, c.posted_stray
                ));
            }
        }
    }
}

fn grants(hv: &Hypervisor) {
    hv.say(format_args!("'g' pressed -> grant tables"));
    for d in hv.domains() {
        let (frames, most) = d.grants.query_size();
        hv.say(format_args!(
            "domain {}: version {}, {frames} of {most} frames, maps {} pages of others",
            d.id.0,
            d.grants.version(),
            d.grants.mappings()
        ));
    }
}

fn events(hv: &Hypervisor) {
    hv.say(format_args!("'e' pressed -> event channels"));
    for d in hv.domains() {
        let mut lines = Vec::new();
        let bound = d.evtchn.dump(MOST_PORTS, &mut |line| lines.push(line));
        hv.say(format_args!("domain {}: {bound} ports in use", d.id.0));
        hv.say_all(lines);
    }
}
