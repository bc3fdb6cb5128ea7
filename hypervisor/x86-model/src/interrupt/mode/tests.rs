//! Every combination of facts against a second description of the rules, and the rows that people ask about by name.

extern crate std;
use super::*;
use std::string::ToString;
use std::vec;

const MODES: [X2apicMode; 3] = [X2apicMode::Physical, X2apicMode::Cluster, X2apicMode::Mixed];

/// A machine with x2APIC and nothing on its command line.
const PLAIN: Facts = Facts {
    x2apic: true,
    mode: None,
    phys: None,
    default: X2apicMode::Mixed,
    cpu_x2apic: true,
    enabled_by_firmware: false,
    opt_out: false,
    fadt_physical: false,
    fadt_cluster: false,
    remapping: Remapping::Off,
    highest_id: 3,
    cpus: 4,
};

fn every(mut check: impl FnMut(&Facts)) -> usize {
    let mut count = 0;
    let modes = [None, Some(MODES[0]), Some(MODES[1]), Some(MODES[2])];
    let machines = [
        (0, 1),
        (7, 8),
        (8, 8),
        (8, 9),
        (254, 8),
        (255, 2),
        (1 << 20, 600),
    ];
    for bits in 0..1u32 << 6 {
        let bit = |n: u32| bits >> n & 1 != 0;
        for mode in modes {
            for phys in [None, Some(false), Some(true)] {
                for default in MODES {
                    for remapping in [Remapping::Off, Remapping::Restricted, Remapping::Full] {
                        for (highest_id, cpus) in machines {
                            check(&Facts {
                                x2apic: bit(0),
                                cpu_x2apic: bit(1),
                                enabled_by_firmware: bit(2),
                                opt_out: bit(3),
                                fadt_physical: bit(4),
                                fadt_cluster: bit(5),
                                mode,
                                phys,
                                default,
                                remapping,
                                highest_id,
                                cpus,
                            });
                            count += 1;
                        }
                    }
                }
            }
        }
    }
    count
}

/// A rule: applies if every `Some` field equals the fact; the first that applies decides. `None` does not care.
struct Rule {
    firmware: Option<bool>,
    cpu: Option<bool>,
    option: Option<bool>,
    opt_out: Option<bool>,
    mode: Option<Option<X2apicMode>>,
    phys: Option<Option<bool>>,
    fadt_physical: Option<bool>,
    default: Option<X2apicMode>,
    full: Option<bool>,
    /// `None`: an xAPIC driver, chosen by the machine's size.
    driver: Option<Driver>,
    reason: Reason,
}

const ANY: Rule = Rule {
    firmware: None,
    cpu: None,
    option: None,
    opt_out: None,
    mode: None,
    phys: None,
    fadt_physical: None,
    default: None,
    full: None,
    driver: None,
    reason: Reason::Default,
};
const PHYS: Option<Driver> = Some(Driver::X2APIC_PHYSICAL);
const CLUSTER: Option<Driver> = Some(Driver::X2APIC_CLUSTER);
const MIXED: Option<Driver> = Some(Driver::X2APIC_MIXED);

#[rustfmt::skip]
const RULES: [Rule; 15] = [
    Rule { firmware: Some(false), cpu: Some(false), reason: Reason::NoX2apic, ..ANY },
    Rule { firmware: Some(false), option: Some(false), reason: Reason::CommandLine, ..ANY },
    Rule { firmware: Some(false), opt_out: Some(true), reason: Reason::OptOut, ..ANY },
    Rule { mode: Some(Some(X2apicMode::Physical)), driver: PHYS, reason: Reason::Mode, ..ANY },
    Rule { mode: Some(Some(X2apicMode::Mixed)), driver: MIXED, reason: Reason::Mode, ..ANY },
    Rule { mode: Some(Some(X2apicMode::Cluster)), full: Some(true), driver: CLUSTER, reason: Reason::Mode, ..ANY },
    Rule { mode: Some(Some(X2apicMode::Cluster)), driver: MIXED, reason: Reason::Mode, ..ANY },
    Rule { phys: Some(Some(true)), driver: PHYS, reason: Reason::Phys, ..ANY },
    Rule { phys: Some(Some(false)), driver: MIXED, reason: Reason::Phys, ..ANY },
    Rule { fadt_physical: Some(true), driver: PHYS, reason: Reason::Fadt, ..ANY },
    Rule { default: Some(X2apicMode::Physical), driver: PHYS, ..ANY },
    Rule { default: Some(X2apicMode::Mixed), driver: MIXED, ..ANY },
    Rule { default: Some(X2apicMode::Cluster), full: Some(true), driver: CLUSTER, ..ANY },
    Rule { default: Some(X2apicMode::Cluster), full: Some(false), driver: MIXED, ..ANY },
    // Never reached; the test says so.
    Rule { reason: Reason::OptOut, ..ANY },
];

fn fits<T: PartialEq>(wanted: Option<T>, is: T) -> bool {
    wanted.is_none_or(|w| w == is)
}

#[test]
fn every_combination_follows_the_table() {
    let mut used = [0u32; RULES.len()];
    let count = every(|f| {
        let full = f.remapping == Remapping::Full;
        let at = RULES
            .iter()
            .position(|r| {
                fits(r.firmware, f.enabled_by_firmware)
                    && fits(r.cpu, f.cpu_x2apic)
                    && fits(r.option, f.x2apic)
                    && fits(r.opt_out, f.opt_out)
                    && fits(r.mode, f.mode)
                    && fits(r.phys, f.phys)
                    && fits(r.fadt_physical, f.fadt_physical)
                    && fits(r.default, f.default)
                    && fits(r.full, full)
            })
            .expect("the last rule fits everything");
        used[at] += 1;
        let small = f.cpus <= 8 && !f.fadt_physical && !f.fadt_cluster;
        let driver = RULES[at].driver.unwrap_or(if small {
            Driver::XAPIC_FLAT
        } else {
            Driver::XAPIC_PHYSICAL
        });
        let d = decide(f);
        assert_eq!((d.driver, d.reason), (driver, RULES[at].reason), "{f:?}");
        assert_eq!(d.by_firmware, f.enabled_by_firmware);
    });
    assert_eq!(count, 64 * 4 * 3 * 3 * 3 * 7);
    assert!(used[..14].iter().all(|&n| n > 0), "{used:?}");
    assert_eq!(used[14], 0);
}

#[test]
fn every_combination_warns_of_what_was_overruled_and_of_nothing_else() {
    every(|f| {
        let d = decide(f);
        let x2 = d.driver.x2apic();
        let wanted_cluster = x2
            && f.remapping != Remapping::Full
            && match (f.mode, f.phys) {
                (Some(mode), _) => mode == X2apicMode::Cluster,
                (None, Some(_)) => false,
                (None, None) => !f.fadt_physical && f.default == X2apicMode::Cluster,
            };
        let limit = if x2 && f.remapping == Remapping::Full {
            1 << 20
        } else {
            255
        };
        let has = |w: Warning| d.warnings.contains(&w);
        for (warning, wanted) in [
            (Warning::CannotDisable, f.enabled_by_firmware && !f.x2apic),
            (Warning::CannotOptOut, f.enabled_by_firmware && f.opt_out),
            (
                Warning::PhysIsDeprecated,
                x2 && f.phys.is_some() && f.mode.is_none(),
            ),
            (
                Warning::PhysIsIgnored,
                x2 && f.phys.is_some() && f.mode.is_some(),
            ),
            (
                Warning::ModeHasNoEffect,
                !x2 && (f.phys.is_some() || f.mode.is_some()),
            ),
            (Warning::ClusterNeedsRemapping(f.remapping), wanted_cluster),
            (Warning::OutOfReach, f.highest_id >= limit),
        ] {
            assert_eq!(has(warning), wanted, "{warning:?} {f:?}");
        }
        assert_eq!(d.first_unreachable, limit);
    });
}

#[test]
fn a_logical_device_interrupt_is_never_chosen_without_room_for_it() {
    use super::super::driver::ExternalAddressing;
    every(|f| {
        let d = decide(f);
        if d.driver.external == ExternalAddressing::Cluster {
            assert_eq!(f.remapping, Remapping::Full, "{f:?}");
        }
    });
}

#[test]
fn boot_lines() {
    let line = |f: Facts| decide(&f).to_string();
    assert_eq!(line(PLAIN), "x2apic_mixed (default)");
    assert_eq!(
        line(Facts {
            fadt_physical: true,
            ..PLAIN
        }),
        "x2apic_phys (the ACPI FADT asks for physical mode)"
    );
    assert_eq!(
        line(Facts {
            x2apic: false,
            cpus: 9,
            ..PLAIN
        }),
        "bigsmp (xAPIC: x2apic=0)"
    );
    let kept = decide(&Facts {
        x2apic: false,
        enabled_by_firmware: true,
        ..PLAIN
    });
    assert_eq!(
        kept.to_string(),
        "x2apic_mixed (default; x2APIC enabled by the firmware)"
    );
    assert_eq!(kept.warnings, vec![Warning::CannotDisable]);
    let cluster = decide(&Facts {
        mode: Some(X2apicMode::Cluster),
        ..PLAIN
    });
    assert_eq!(cluster.to_string(), "x2apic_mixed (x2apic-mode)");
    assert!(
        cluster.warnings[0]
            .to_string()
            .contains("interrupt remapping, which is off; using mixed")
    );
}
