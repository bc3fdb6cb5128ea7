//! `info`: the machine and the hypervisor.

use super::host::{Report, Versioned, xen};
use super::{Args, Command, Context, Failure, Opt, Outcome};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use xen_abi::domctl::scheduler;
use xen_abi::sysctl::{PhysInfo, physcap};
use xen_sys::xen::Xen;

/// The rows.
pub const ROWS: &[Command] = &[Command {
    name: "info",
    options: &[Opt::flag(
        Some('n'),
        &["numa"],
        "also CPU topology and memory nodes",
    )],
    usage: "[options] [field prefix]",
    help: "Show the machine and the hypervisor",
    min: 0,
    dry_run: false,
    run: info,
}];

/// A line: key, text, JSON.
struct Line {
    key: &'static str,
    text: String,
    value: Value,
}

fn line(key: &'static str, value: impl Into<Value>) -> Line {
    let value = value.into();
    let text = match &value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Line { key, text, value }
}

/// A line whose JSON is not its text.
fn line_as(key: &'static str, text: String, value: impl Into<Value>) -> Line {
    let value = value.into();
    Line { key, text, value }
}

/// Name of a scheduler.
pub fn scheduler_name(id: u32) -> &'static str {
    match id {
        scheduler::CREDIT => "credit",
        scheduler::CREDIT2 => "credit2",
        scheduler::ARINC653 => "arinc653",
        scheduler::RTDS => "rtds",
        scheduler::NULL => "null",
        _ => "unknown",
    }
}

#[derive(Serialize)]
struct Info {
    info: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_topology: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<Value>>,
}

fn info(context: &Context, args: &Args) -> Outcome {
    let xen = xen()?;
    let prefix = args.word(0);
    let wanted = |l: &Line| prefix.is_none_or(|p| l.key.starts_with(p));
    let mut text = String::new();
    let mut map = Map::new();
    let mut tell = |lines: Vec<Line>, text: &mut String| {
        for line in lines.into_iter().filter(wanted) {
            let _ = match prefix {
                Some(_) => writeln!(text, "{}", line.text),
                // Xen's ends this one with what stands before a missing list.
                None if line.key == "virt_caps" && line.text.is_empty() => {
                    writeln!(text, "{:<23}:", line.key)
                }
                None => writeln!(text, "{:<23}: {}", line.key, line.text),
            };
            map.insert(line.key.into(), line.value);
        }
    };
    tell(this_host(), &mut text);
    tell(machine(&xen)?, &mut text);
    let numa = args.has("numa");
    let (mut cpus, mut devices, mut nodes) = (None, None, None);
    if numa {
        cpus = Some(topology(&xen, &mut text)?);
        devices = Some(device_nodes(&xen, &pci_devices(), &mut text)?);
        nodes = Some(memory_nodes(&xen, &mut text)?);
    }
    tell(hypervisor(&xen)?, &mut text);
    let info = Info {
        info: map,
        cpu_topology: cpus,
        devices,
        nodes,
    };
    Report::new(text, &Versioned::new(info))?.print(context)
}

fn this_host() -> Vec<Line> {
    let name = rustix::system::uname();
    let part = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    vec![
        line("host", part(name.nodename())),
        line("release", part(name.release())),
        line("version", part(name.version())),
        line("machine", part(name.machine())),
    ]
}

fn machine(xen: &Xen) -> Result<Vec<Line>, Failure> {
    let p = xen.physinfo()?;
    let caps: Vec<String> = p.hw_cap.iter().map(|c| format!("{c:08x}")).collect();
    let virt = capabilities(&p);
    let mhz = format!("{}.{:03}", p.cpu_khz / 1000, p.cpu_khz % 1000);
    let page = xen.version()?.page_size.max(1);
    let mib = |pages: u64| pages / ((1 << 20) / page).max(1);
    Ok(vec![
        line("nr_cpus", p.nr_cpus),
        line("max_cpu_id", p.max_cpu_id),
        line("nr_nodes", p.nr_nodes),
        line("cores_per_socket", p.cores_per_socket),
        line("threads_per_core", p.threads_per_core),
        line_as("cpu_mhz", mhz, f64::from(p.cpu_khz) / 1000.0),
        line("hw_caps", caps.join(":")),
        line_as("virt_caps", virt.join(" "), virt),
        line("total_memory", mib(p.total_pages)),
        line(
            "free_memory",
            mib(p.free_pages.saturating_sub(p.outstanding_pages)),
        ),
        line("sharing_freed_memory", mib(xen.sharing_freed_pages()?)),
        line("sharing_used_memory", mib(xen.sharing_used_pages()?)),
        line("outstanding_claims", mib(p.outstanding_pages)),
        line("free_cpus", xen.free_cpus()?.len()),
    ])
}

/// What the machine can do for guests, in the order of Xen's `xl`.
fn capabilities(p: &PhysInfo) -> Vec<&'static str> {
    let has = |bits: u32| p.capabilities & bits == bits;
    [
        (physcap::PV, "pv"),
        (physcap::HVM, "hvm"),
        (physcap::HVM | physcap::DIRECTIO, "hvm_directio"),
        (physcap::PV | physcap::DIRECTIO, "pv_directio"),
        (physcap::HAP, "hap"),
        (physcap::SHADOW, "shadow"),
        (physcap::IOMMU_HAP_PT_SHARE, "iommu_hap_pt_share"),
        (physcap::VMTRACE, "vmtrace"),
        (physcap::VPMU, "vpmu"),
        (physcap::GNTTAB_V1, "gnttab-v1"),
        (physcap::GNTTAB_V2, "gnttab-v2"),
    ]
    .into_iter()
    .filter(|(bits, _)| has(*bits))
    .map(|(_, name)| name)
    .collect()
}

fn hypervisor(xen: &Xen) -> Result<Vec<Line>, Failure> {
    let v = xen.version()?;
    let id: String = v.build_id.iter().map(|b| format!("{b:02x}")).collect();
    Ok(vec![
        line("xen_major", v.major),
        line("xen_minor", v.minor),
        line("xen_extra", v.extra.clone()),
        line("xen_version", format!("{}.{}{}", v.major, v.minor, v.extra)),
        line("xen_caps", v.capabilities),
        line("xen_scheduler", scheduler_name(xen.scheduler()?)),
        line("xen_pagesize", v.page_size),
        line("platform_params", format!("virt_start={:#x}", v.virt_start)),
        line("xen_changeset", v.changeset),
        line("xen_commandline", v.command_line),
        line("cc_compiler", v.compiler),
        line("cc_compile_by", v.built_by),
        line("cc_compile_domain", v.built_domain),
        line("cc_compile_date", v.built_date),
        line("build_id", id),
        line("xend_config_format", 4),
    ])
}

fn topology(xen: &Xen, text: &mut String) -> Result<Vec<Value>, Failure> {
    text.push_str("cpu_topology           :\ncpu:    core    socket     node\n");
    let mut found = Vec::new();
    for (cpu, t) in xen.cpu_topology()?.iter().enumerate() {
        if t.core == u32::MAX {
            continue;
        }
        let (core, socket, node) = (t.core, t.socket, t.node);
        let _ = writeln!(text, "{cpu:>3}:    {core:>4}     {socket:>4}     {node:>4}");
        found.push(json!({ "cpu": cpu, "core": core, "socket": socket, "node": node }));
    }
    Ok(found)
}

/// The PCI devices that this kernel sees, as text and as the hypervisor counts them.
fn pci_devices() -> Vec<(String, u32)> {
    let mut names: Vec<String> = std::fs::read_dir("/sys/bus/pci/devices")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    let numbered = names.into_iter().filter_map(|name| {
        let number = pci_number(&name)?;
        Some((name, number))
    });
    numbered.collect()
}

/// `0000:00:1f.2` as segment << 16 | bus << 8 | devfn.
fn pci_number(name: &str) -> Option<u32> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (segment, rest) = name.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let (segment, bus) = (hex(segment)?, hex(bus)?);
    let (device, function) = (hex(device)?, hex(function)?);
    let fits = segment < 1 << 16 && bus < 256 && device < 32 && function < 8;
    fits.then_some(segment << 16 | bus << 8 | device << 3 | function)
}

fn device_nodes(
    xen: &Xen,
    devices: &[(String, u32)],
    text: &mut String,
) -> Result<Vec<Value>, Failure> {
    text.push_str("device topology        :\ndevice           node\n");
    let numbers: Vec<u32> = devices.iter().map(|(_, n)| *n).collect();
    let nodes = xen.device_nodes(&numbers)?;
    let mut found = Vec::new();
    for ((name, _), node) in devices.iter().zip(nodes) {
        let Some(node) = node else { continue };
        let _ = writeln!(text, "{name}      {node}");
        found.push(json!({ "device": name, "node": node }));
    }
    if found.is_empty() {
        text.push_str("No device topology data available\n");
    }
    Ok(found)
}

fn memory_nodes(xen: &Xen, text: &mut String) -> Result<Vec<Value>, Failure> {
    text.push_str("numa_info              :\nnode:    memsize    memfree    distances\n");
    let (nodes, distances) = xen.nodes()?;
    let mut found = Vec::new();
    for (node, memory) in nodes.iter().enumerate() {
        if memory.memsize == u64::MAX {
            continue;
        }
        let (size, free) = (memory.memsize >> 20, memory.memfree >> 20);
        let row = &distances[node * nodes.len()..(node + 1) * nodes.len()];
        let words: Vec<String> = row.iter().map(u32::to_string).collect();
        let words = words.join(",");
        let _ = writeln!(text, "{node:>4}:    {size:>6}     {free:>6}      {words}");
        found.push(json!({ "node": node, "memory_mib": size, "free_mib": free, "distances": row }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed};
    use super::{device_nodes, pci_number};
    use xen_sys::xen::Version;

    fn fixture() -> Fixture {
        let f = Fixture::new();
        f.machine.borrow_mut().version = Version {
            major: 4,
            minor: 17,
            extra: ".5".into(),
            capabilities: "xen-3.0-x86_64 hvm-3.0-x86_32 ".into(),
            page_size: 4096,
            virt_start: 0xffff_8000_0000_0000,
            changeset: "abc".into(),
            command_line: "dom0_mem=1G".into(),
            compiler: "rustc 1.95".into(),
            built_by: "me".into(),
            built_domain: "here".into(),
            built_date: "today".into(),
            build_id: vec![0x1f, 0xa0],
        };
        f
    }

    /// Without the lines on this machine's kernel.
    fn after_host(text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        for (line, key) in lines.iter().zip(["host", "release", "version", "machine"]) {
            assert!(line.starts_with(&format!("{key:<23}: ")), "{line}");
        }
        lines[4..].join("\n") + "\n"
    }

    const MACHINE: &str = "\
nr_cpus                : 4
max_cpu_id             : 3
nr_nodes               : 1
cores_per_socket       : 4
threads_per_core       : 1
cpu_mhz                : 2400.000
hw_caps                : 00000001:20202020:00000003:00000004:00000005:00000006:00000007:ffffffff
virt_caps              : pv hvm hap gnttab-v1
total_memory           : 4096
free_memory            : 1023
sharing_freed_memory   : 0
sharing_used_memory    : 0
outstanding_claims     : 1
free_cpus              : 0
";
    const XEN: &str = "\
xen_major              : 4
xen_minor              : 17
xen_extra              : .5
xen_version            : 4.17.5
xen_caps               : xen-3.0-x86_64 hvm-3.0-x86_32 \n\
xen_scheduler          : credit2
xen_pagesize           : 4096
platform_params        : virt_start=0xffff800000000000
xen_changeset          : abc
xen_commandline        : dom0_mem=1G
cc_compiler            : rustc 1.95
cc_compile_by          : me
cc_compile_domain      : here
cc_compile_date        : today
build_id               : 1fa0
xend_config_format     : 4
";

    #[test]
    fn all_lines_in_order() {
        let _f = fixture();
        assert_eq!(after_host(&printed("info")), format!("{MACHINE}{XEN}"));
    }

    #[test]
    fn one_line() {
        let _f = fixture();
        assert_eq!(printed("info xen_version"), "4.17.5\n");
        assert_eq!(printed("info cpu_"), "2400.000\n");
        assert_eq!(printed("info nr_"), "4\n1\n");
        assert_eq!(printed("info virt_caps"), "pv hvm hap gnttab-v1\n");
        assert_eq!(printed("info nothing"), "");
    }

    #[test]
    fn nodes() {
        let f = fixture();
        f.machine.borrow_mut().topology[2].core = u32::MAX;
        let text = after_host(&printed("info -n"));
        let cpus = "\
cpu_topology           :
cpu:    core    socket     node
  0:       0        0        0
  1:       1        0        0
  3:       3        0        0
device topology        :
device           node
";
        assert!(text.starts_with(&format!("{MACHINE}{cpus}")), "{text}");
        let memory = "\
numa_info              :
node:    memsize    memfree    distances
   0:      4096       1024      10
";
        assert!(text.ends_with(&format!("{memory}{XEN}")), "{text}");
        let all = json("info -n");
        assert_eq!(all["cpu_topology"][2]["cpu"], 3);
        assert_eq!(all["nodes"][0]["distances"], serde_json::json!([10]));
    }

    #[test]
    fn devices() {
        assert_eq!(pci_number("0001:02:1f.7"), Some(0x0001_02ff));
        assert_eq!(pci_number("0000:00:20.0"), None);
        let _f = fixture();
        let xen = super::xen().unwrap();
        let mut text = String::new();
        device_nodes(&xen, &[("0000:00:01.0".into(), 8)], &mut text).unwrap();
        assert!(text.ends_with("\n0000:00:01.0      0\n"));
        text.clear();
        device_nodes(&xen, &[], &mut text).unwrap();
        assert!(text.ends_with("\nNo device topology data available\n"));
    }

    #[test]
    fn numbers_are_numbers_in_json() {
        let _f = fixture();
        let info = &json("info")["info"];
        assert_eq!(
            (&info["nr_cpus"], &info["cpu_mhz"]),
            (&4.into(), &2400.0.into())
        );
        assert_eq!(info["virt_caps"][1], "hvm");
        assert_eq!(json("info xen_v")["info"].as_object().unwrap().len(), 1);
    }
}
