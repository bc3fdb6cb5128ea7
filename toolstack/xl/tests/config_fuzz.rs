//! Random configs through parser, planner and both output forms: whatever a file says, the answer is a plan that holds together or
//! an error with its place.
//!
//! `XENOLITH_CASES` sets the number of cases (a short slice by default), `XENOLITH_SEED` the seed; both stand in the message of
//! a failing run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_image::samples::Builder;
use xl::build::{Image, Parts, build};
use xl::cfg::{self, DomainConfig, domain::is_name};
use xl::domain::json;
use xl::domain::plan::{HostFacts, Step, plan};

/// xorshift64*: the same cases everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const BASE: &str = "name='n'\ntype='pvh'\nkernel='/k'\n";

/// Keys with values of which some are right.
const KEYS: &[(&str, &[&str])] = &[
    (
        "memory",
        &[
            "1",
            "64",
            "0x200",
            "4096",
            "12582912",
            "0",
            "'8'",
            "99999999999999999999",
        ],
    ),
    ("maxmem", &["64", "128", "8192", "16777216", "[]"]),
    ("vcpus", &["1", "2", "64", "128", "129", "0"]),
    ("maxvcpus", &["1", "4", "128", "'x'"]),
    (
        "cpus",
        &[
            "'0-3,^1'",
            "['0', 'node:0']",
            "'all'",
            "'^7'",
            "'9-1'",
            "[[]]",
            "''",
        ],
    ),
    ("cpus_soft", &["'0'", "['1', '', '2']", "'nodes:0-1'"]),
    (
        "disk",
        &[
            "[]",
            "['/a,raw,xvda,rw']",
            "['/a,raw,xvda,rw','/b,raw,xvdb,ro']",
            "['phy:/c,hdc:cdrom,r',]",
            "['format=qcow2,vdev=sda,target=/x,y']",
            "['/a,raw,xvda,rw','/b,raw,xvda,rw']",
            "['']",
            "'/a,raw,xvda,rw'",
        ],
    ),
    (
        "vif",
        &[
            "['']",
            "['mac=00:16:3e:00:00:01,rate=1Mb/s@1ms','bridge=b']",
            "['devid=3','mtu=9000']",
            "['mac=01:00:00:00:00:00']",
            "['rate=99999999Gb/s@9s']",
            "['mac=00:16:3e:00:00:01','mac=0:16:3e:0:0:1']",
        ],
    ),
    (
        "uuid",
        &["'00112233-4455-6677-8899-aabbccddeeff'", "'zz'", "1"],
    ),
    ("name", &["'other'", "'77'", "'a/b'", "''", "'\\x41\\n'"]),
    ("extra", &["'quiet'", "\"a\\\"b\"", "'\\377'"]),
    ("root", &["'/dev/xvda1'"]),
    ("cmdline", &["'x'"]),
    ("ramdisk", &["'/r'"]),
    (
        "on_crash",
        &["'preserve'", "'rename-restart'", "'nonsense'"],
    ),
    ("on_reboot", &["'destroy'", "'soft-reset'"]),
    ("cpu_weight", &["512", "65535", "65536"]),
    ("cap", &["0", "50"]),
    (
        "timer_mode",
        &["3", "'native'", "'one_missed_tick_pending'"],
    ),
    ("tsc_mode", &["'native'", "1", "7"]),
    ("rtc_timeoffset", &["3600", "4294967295"]),
    ("shadow_memory", &["1", "512"]),
    ("max_grant_version", &["1", "2", "3"]),
    ("max_event_channels", &["64", "131071", "131072"]),
    ("pool", &["'Pool-0'", "'x'"]),
    ("nonsense", &["1"]),
    ("pci", &["[]", "['00:01.0']"]),
    ("vfb", &["['vnc=1']"]),
    ("cpuid", &["'host,avx=0'", "['1:eax=x']"]),
    ("bootloader", &["'/b'"]),
    ("msr_relaxed", &["1"]),
    ("oos", &["0"]),
];

const SOUP: &[&str] = &[
    "name", "memory", "disk", "=", "+=", "[", "]", ",", "\n", ";", "#", "'", "\"", "'pvh'", "12",
    "0x1f", " ", "\\", "\0", "\r\n", "\u{fffd}", "Upper", "-1", "a.b", BASE,
];

fn text(random: &mut Random) -> String {
    let mut text = String::new();
    if random.one_in(4) {
        for _ in 0..random.below(40) {
            text += random.of(SOUP);
        }
        return text;
    }
    if !random.one_in(16) {
        text += BASE;
    }
    for _ in 0..random.below(8) {
        let (key, values) = random.of(KEYS);
        text += key;
        text += if random.one_in(12) { " += " } else { " = " };
        text += random.of(values);
        text += if random.one_in(8) { "; " } else { "\n" };
    }
    // One character changed, in some.
    if random.one_in(8) && !text.is_empty() {
        let mut chars: Vec<char> = text.chars().collect();
        let at = random.below(chars.len());
        chars[at] = char::from(random.next() as u8 & 0x7f);
        text = chars.into_iter().collect();
    }
    text
}

/// What holds of every config that is accepted.
fn check_config(c: &DomainConfig) {
    assert!(is_name(&c.name), "name {:?}", c.name);
    assert!(c.memory > 0 && c.memory <= c.maxmem);
    assert!(c.vcpus > 0 && c.vcpus <= c.maxvcpus && c.maxvcpus <= 128);
    let disks: BTreeSet<_> = c
        .disks
        .iter()
        .map(|d| d.devid().expect("a number"))
        .collect();
    assert_eq!(disks.len(), c.disks.len());
    let vifs: BTreeSet<_> = c.vifs.iter().map(|v| v.devid.expect("chosen")).collect();
    assert_eq!(vifs.len(), c.vifs.len());
    let text = json::text(c).expect("a form in JSON");
    let back: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(back["c_info"]["name"], c.name);
    assert_eq!(back["b_info"]["target_memkb"], c.memory);
}

/// What holds of every plan.
fn check_plan(c: &DomainConfig, host: &HostFacts, image: &Image<'_>, paused: bool) {
    let steps = plan(c, host, image, paused);
    assert!(matches!(&steps[0], Step::Create(new) if new.vcpus == c.maxvcpus));
    assert_eq!(steps.last() == Some(&Step::Unpause), !paused);
    let (mut claimed, mut populated, mut end) = (0, 0, 0);
    let (mut disks, mut vifs, mut pinned) = (Vec::new(), Vec::new(), Vec::new());
    for step in &steps {
        match step {
            Step::Claim(pages) => claimed = claimed.max(*pages),
            Step::Populate(frames) => {
                assert!(
                    frames.start >= end && frames.end > frames.start,
                    "{frames:?}"
                );
                end = frames.end;
                populated += frames.end - frames.start;
            }
            Step::Pin { vcpu, hard, soft } => {
                let cpus = hard.iter().chain(soft).flatten();
                assert!(cpus.max().is_none_or(|n| (*n as usize) < host.nodes.len()));
                pinned.push(*vcpu);
            }
            Step::MaxMemory(kib) => assert!(*kib > c.maxmem),
            Step::Paging(bytes) => assert!(*bytes > 0 && bytes.is_multiple_of(4096)),
            Step::Disk(n, _) => disks.push(*n),
            Step::Vif(n) => vifs.push(*n),
            _ => {}
        }
        assert!(!step.to_string().contains('\n'));
    }
    assert_eq!(claimed, populated);
    assert!(populated >= c.memory / 4);
    assert!(pinned.windows(2).all(|w| w[0] < w[1]) && pinned.iter().all(|n| *n < c.maxvcpus));
    assert_eq!(disks, (0..c.disks.len()).collect::<Vec<_>>());
    assert_eq!(vifs, (0..c.vifs.len()).collect::<Vec<_>>());
}

/// True if a plan came out of it.
fn case(text: &str, word: &str, kernel: &[u8], hosts: &[HostFacts]) -> bool {
    let words = if word.is_empty() {
        vec![]
    } else {
        vec![word.to_owned()]
    };
    let parsed = match cfg::parse("f", text, &words) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n'), "{error:?}");
            assert!(
                error.starts_with("f:") || error.starts_with("command line, "),
                "{error:?}"
            );
            return false;
        }
    };
    assert!(parsed.warnings.iter().all(|w| !w.contains('\n')));
    let c = &parsed.config;
    check_config(c);
    let parts = Parts {
        kernel,
        ramdisk: c.ramdisk.is_some().then_some(b"ramdisk"),
        cmdline: &c.cmdline,
        memory: c.memory << 10,
        vcpus: c.maxvcpus,
    };
    let Ok(image) = build(&parts) else {
        return false;
    };
    for host in hosts {
        check_plan(c, host, &image, host.grant_v2);
    }
    true
}

fn number(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn any_config_gives_a_plan_that_holds_together_or_an_error() {
    let cases = number("XENOLITH_CASES", 5_000);
    let seed = number("XENOLITH_SEED", 0x5eed_c0ff_ee00);
    let mut random = Random(seed.max(1));
    let kernel = Builder::small().build();
    let hosts = [
        HostFacts {
            nodes: vec![0; 4],
            grant_v2: true,
            pool: 0,
        },
        HostFacts {
            nodes: vec![0, 1, 0, 1, 1, 0],
            grant_v2: false,
            pool: 1,
        },
    ];
    let mut planned = 0;
    for n in 0..cases {
        let text = text(&mut random);
        let word = match random.one_in(3) {
            true => format!("{}={}", random.of(KEYS).0, random.of(SOUP)),
            false => String::new(),
        };
        let done = catch_unwind(AssertUnwindSafe(|| case(&text, &word, &kernel, &hosts)));
        match done {
            Ok(plan) => planned += u64::from(plan),
            Err(_) => panic!("case {n} of seed {seed}: {text:?} with {word:?}"),
        }
    }
    // Refusals alone would show little.
    assert!(
        planned * 10 > cases,
        "only {planned} of {cases} were planned"
    );
    println!("{planned} of {cases} configs gave a plan");
}
