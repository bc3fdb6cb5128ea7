//! Two looks at the system as text or JSON. Columns are those of Xen's `xentop`.

use super::sample::{Domain, Sample};
use serde_json::{Value, json};
use std::fmt::Write;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// A line with the time of each vCPU.
    pub vcpus: bool,
    /// A line for each network interface.
    pub networks: bool,
    /// A line for each disk.
    pub disks: bool,
    /// Names are not cut.
    pub full_names: bool,
    /// What comes first.
    pub order: Order,
}

/// What domains are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By name.
    Name,
    /// The busiest first.
    Cpu,
    /// The largest first.
    Memory,
    /// By number.
    Number,
}

impl Order {
    /// The next one, round and round.
    pub fn next(self) -> Order {
        match self {
            Order::Name => Order::Cpu,
            Order::Cpu => Order::Memory,
            Order::Memory => Order::Number,
            Order::Number => Order::Name,
        }
    }
}

/// Per cent of a CPU that a domain used between two looks.
fn cpu_percent(before: &Sample, now: &Sample, domain: &Domain) -> f64 {
    let old = before.domains.iter().find(|d| d.domid == domain.domid);
    let used = old.map_or(0, |o| domain.cpu_time.saturating_sub(o.cpu_time));
    let span = now.at.duration_since(before.at).as_nanos();
    if span == 0 {
        return 0.0;
    }
    used as f64 * 100.0 / span as f64
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

/// The six letters of the column STATE.
fn letters(domain: &Domain) -> String {
    let at = match (domain.state, domain.reason) {
        ("dying", _) => 0,
        ("shutdown", Some("crash" | "watchdog")) => 4,
        ("shutdown", _) => 1,
        ("blocked", _) => 2,
        ("paused", _) => 3,
        ("running", _) => 5,
        _ => 6,
    };
    let letter = |(n, letter)| if n == at { letter } else { '-' };
    "dsbpcr".chars().enumerate().map(letter).collect()
}

/// The domains in order.
fn sorted<'a>(before: &Sample, now: &'a Sample, order: Order) -> Vec<&'a Domain> {
    let mut domains: Vec<&Domain> = now.domains.iter().collect();
    match order {
        Order::Name => domains.sort_by(|a, b| a.name.cmp(&b.name)),
        Order::Cpu => {
            domains.sort_by(|a, b| {
                cpu_percent(before, now, b).total_cmp(&cpu_percent(before, now, a))
            });
        }
        Order::Memory => domains.sort_by_key(|d| std::cmp::Reverse(d.memory)),
        Order::Number => domains.sort_by_key(|d| d.domid),
    }
    domains
}

const HEAD: &str = "      NAME  STATE   CPU(sec) CPU(%)     MEM(k) MEM(%)  MAXMEM(k) MAXMEM(%) VCPUS NETS NETTX(k) NETRX(k) VBDS   VBD_OO   VBD_RD   VBD_WR  VBD_RSECT  VBD_WSECT SSID";

/// The page.
pub fn render(before: &Sample, now: &Sample, view: &View) -> String {
    let mut text = head(now);
    let _ = writeln!(text, "{HEAD}");
    for domain in sorted(before, now, view.order) {
        row(before, now, domain, view, &mut text);
        details(domain, view, &mut text);
    }
    text
}

fn head(now: &Sample) -> String {
    let count = |wanted: &dyn Fn(&Domain) -> bool| now.domains.iter().filter(|d| wanted(d)).count();
    let state = |name: &'static str| count(&|d| d.state == name);
    let crashed = |d: &Domain| matches!(d.reason, Some("crash" | "watchdog"));
    let (day, used) = (now.clock % 86_400, now.memory.saturating_sub(now.free));
    format!(
        "xentop - {:02}:{:02}:{:02}   Xen {}\n\
         {} domains: {} running, {} blocked, {} paused, {} crashed, {} dying, {} shutdown\n\
         Mem: {}k total, {used}k used, {}k free    CPUs: {} @ {}MHz\n",
        day / 3600,
        day / 60 % 60,
        day % 60,
        now.version,
        now.domains.len(),
        state("running"),
        state("blocked"),
        state("paused"),
        count(&crashed),
        state("dying"),
        count(&|d| d.state == "shutdown" && !crashed(d)),
        now.memory,
        now.free,
        now.cpus,
        now.mhz,
    )
}

fn row(before: &Sample, now: &Sample, domain: &Domain, view: &View, text: &mut String) {
    let name: String = match view.full_names {
        true => domain.name.clone(),
        false => domain.name.chars().take(10).collect(),
    };
    let (max, max_share) = match domain.max_memory {
        Some(max) => (max.to_string(), format!("{:.1}", percent(max, now.memory))),
        None => ("no limit".into(), "n/a".into()),
    };
    let sum = |f: fn(&super::sample::Requests) -> u64| domain.disks.iter().map(f).sum::<u64>();
    let _ = writeln!(
        text,
        "{name:>10} {} {:>10} {:>6.1} {:>10} {:>6.1} {max:>10} {max_share:>9} {:>5} {:>4} {:>8} {:>8} {:>4} {:>8} {:>8} {:>8} {:>10} {:>10} {:>4}",
        letters(domain),
        domain.cpu_time / 1_000_000_000,
        cpu_percent(before, now, domain),
        domain.memory,
        percent(domain.memory, now.memory),
        domain.vcpus.len(),
        domain.networks.len(),
        domain.networks.iter().map(|n| n.sent).sum::<u64>() / 1024,
        domain.networks.iter().map(|n| n.received).sum::<u64>() / 1024,
        domain.disks.len(),
        sum(|d| d.out_of),
        sum(|d| d.reads),
        sum(|d| d.writes),
        sum(|d| d.sectors_read),
        sum(|d| d.sectors_written),
        domain.ssidref,
    );
}

fn details(domain: &Domain, view: &View, text: &mut String) {
    if view.vcpus {
        text.push_str("VCPUs(sec): ");
        for (number, time) in domain.vcpus.iter().enumerate() {
            let _ = write!(text, " {number:>3}: {:>10}s", time / 1_000_000_000);
        }
        text.push('\n');
    }
    for network in domain.networks.iter().filter(|_| view.networks) {
        let _ = writeln!(
            text,
            "Net{} RX: {:>10}bytes TX: {:>10}bytes",
            network.devid, network.received, network.sent
        );
    }
    for disk in domain.disks.iter().filter(|_| view.disks) {
        let _ = writeln!(
            text,
            "VBD BlkBack {:>5}  OO: {:>8}   RD: {:>8}   WR: {:>8}  RSECT: {:>10}  WSECT: {:>10}",
            disk.devid,
            disk.out_of,
            disk.reads,
            disk.writes,
            disk.sectors_read,
            disk.sectors_written
        );
    }
}

/// The same as JSON.
pub fn to_json(before: &Sample, now: &Sample) -> Value {
    let domains = now.domains.iter().map(|d| {
        let networks = d.networks.iter().map(
            |n| json!({ "devid": n.devid, "sent_bytes": n.sent, "received_bytes": n.received }),
        );
        let disks = d.disks.iter().map(|v| {
            json!({
                "devid": v.devid,
                "out_of_requests": v.out_of,
                "reads": v.reads,
                "writes": v.writes,
                "sectors_read": v.sectors_read,
                "sectors_written": v.sectors_written,
            })
        });
        let seconds = |ns: &u64| *ns as f64 / 1e9;
        json!({
            "domid": d.domid,
            "name": d.name,
            "state": d.state,
            "reason": d.reason,
            "cpu_seconds": seconds(&d.cpu_time),
            "cpu_percent": cpu_percent(before, now, d),
            "memory_kib": d.memory,
            "max_memory_kib": d.max_memory,
            "vcpu_seconds": d.vcpus.iter().map(seconds).collect::<Vec<_>>(),
            "networks": networks.collect::<Vec<_>>(),
            "disks": disks.collect::<Vec<_>>(),
        })
    });
    json!({
        "xen_version": now.version,
        "memory_kib": { "total": now.memory, "free": now.free },
        "cpus": now.cpus,
        "cpu_mhz": now.mhz,
        "domains": domains.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Domain, Requests, Sample, Traffic};
    use super::{Order, View, render, to_json};
    use std::time::{Duration, Instant};

    const PLAIN: View = View {
        vcpus: false,
        networks: false,
        disks: false,
        full_names: false,
        order: Order::Name,
    };

    /// Two looks, two seconds apart.
    fn looks() -> (Sample, Sample) {
        let at = Instant::now();
        let sample = |at, times: [u64; 3]| {
            let domain = |domid, name: &str, state, reason, cpu_time| Domain {
                domid,
                name: name.into(),
                state,
                reason,
                cpu_time,
                memory: 262_144,
                max_memory: Some(524_288),
                vcpus: vec![cpu_time],
                ..Domain::default()
            };
            let mut domains = vec![
                domain(0, "Domain-0", "running", None, times[0]),
                domain(3, "a-web-server", "blocked", None, times[1]),
                domain(4, "old", "shutdown", Some("crash"), times[2]),
            ];
            domains[0].max_memory = None;
            domains[1].networks = vec![Traffic {
                devid: 0,
                sent: 2048,
                received: 4100,
            }];
            domains[1].disks = vec![Requests {
                devid: 51712,
                out_of: 1,
                reads: 2,
                writes: 3,
                sectors_read: 4,
                sectors_written: 5,
            }];
            domains[1].ssidref = 9;
            Sample {
                at,
                clock: 3_723,
                version: "4.17.5".into(),
                memory: 1_048_576,
                free: 262_144,
                cpus: 4,
                mhz: 2400,
                domains,
            }
        };
        let before = sample(at, [1_000_000_000, 500_000_000, 0]);
        let now = sample(
            at + Duration::from_secs(2),
            [2_000_000_000, 3_500_000_000, 0],
        );
        (before, now)
    }

    #[test]
    fn the_page() {
        let (before, now) = looks();
        assert_eq!(
            render(&before, &now, &PLAIN),
            "\
xentop - 01:02:03   Xen 4.17.5
3 domains: 1 running, 1 blocked, 0 paused, 1 crashed, 0 dying, 0 shutdown
Mem: 1048576k total, 786432k used, 262144k free    CPUs: 4 @ 2400MHz
      NAME  STATE   CPU(sec) CPU(%)     MEM(k) MEM(%)  MAXMEM(k) MAXMEM(%) VCPUS NETS NETTX(k) NETRX(k) VBDS   VBD_OO   VBD_RD   VBD_WR  VBD_RSECT  VBD_WSECT SSID
  Domain-0 -----r          2   50.0     262144   25.0   no limit       n/a     1    0        0        0    0        0        0        0          0          0    0
a-web-serv --b---          3  150.0     262144   25.0     524288      50.0     1    1        2        4    1        1        2        3          4          5    9
       old ----c-          0    0.0     262144   25.0     524288      50.0     1    0        0        0    0        0        0        0          0          0    0
"
        );
    }

    #[test]
    fn more_lines_and_other_orders() {
        let (before, now) = looks();
        let view = View {
            vcpus: true,
            networks: true,
            disks: true,
            full_names: true,
            order: Order::Cpu,
        };
        let text = render(&before, &now, &view);
        let lines: Vec<&str> = text.lines().skip(4).collect();
        assert!(lines[0].starts_with("a-web-server --b--- "));
        assert_eq!(lines[1], "VCPUs(sec):    0:          3s");
        assert_eq!(lines[2], "Net0 RX:       4100bytes TX:       2048bytes");
        assert_eq!(
            lines[3],
            "VBD BlkBack 51712  OO:        1   RD:        2   WR:        3  RSECT:          4  WSECT:          5"
        );
        assert!(lines[4].starts_with("  Domain-0"));
        let mut order = Order::Name;
        for _ in 0..4 {
            order = order.next();
        }
        assert_eq!(order, Order::Name);
    }

    #[test]
    fn json_has_the_same() {
        let (before, now) = looks();
        let all = to_json(&before, &now);
        let web = &all["domains"][1];
        assert_eq!(
            (&web["cpu_percent"], &web["disks"][0]["writes"]),
            (&150.0.into(), &3.into())
        );
        assert_eq!(all["domains"][0]["max_memory_kib"], serde_json::Value::Null);
        assert_eq!(all["domains"][2]["reason"], "crash");
    }
}
