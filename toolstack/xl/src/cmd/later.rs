//! Commands that Xen's `xl` has and this one does not have yet: they say so. A command leaves this file when it is built.

use super::{Args, Command, Context, Failure, Outcome};

const fn row(
    name: &'static str,
    min: usize,
    dry_run: bool,
    usage: &'static str,
    help: &'static str,
) -> Command {
    Command {
        name,
        options: &[],
        usage,
        help,
        min,
        dry_run,
        run: refuse,
    }
}

/// Not reached: rows of this file are refused before their options are read.
fn refuse(_: &Context, _: &Args) -> Outcome {
    Err(Failure::new("not built yet"))
}

/// The rows.
#[rustfmt::skip]
pub const ROWS: &[Command] = &[
    row("pci-attach", 2, false, "<Domain> <BDF> [Virtual Slot]", "Give a domain a PCI device"),
    row("pci-detach", 2, false, "<Domain> <BDF>", "Take a PCI device from a domain"),
    row("pci-list", 1, false, "<Domain>", "Show the PCI devices of a domain"),
    row("pci-assignable-add", 1, false, "[options] <BDF>", "Set a PCI device aside for domains"),
    row("pci-assignable-remove", 1, false, "[options] <BDF>", "Give a PCI device that was set aside back"),
    row("pci-assignable-list", 0, false, "", "Show the PCI devices that are set aside"),
    row("vncviewer", 1, false, "[options] <Domain>", "Show a domain's screen in a VNC viewer"),
    row("save", 2, false, "[options] <Domain> <CheckpointFile> [<ConfigFile>]", "Write a domain to a file and end it"),
    row("migrate", 2, false, "[options] <Domain> <host>", "Move a domain to another machine"),
    row("restore", 1, false, "[options] [<ConfigFile>] <CheckpointFile>", "Continue a saved domain"),
    row("migrate-receive", 0, false, "- for internal use only", "Other end of migrate; not for people"),
    row("cd-insert", 3, true, "<Domain> <vdev> <path>", "Put an image into a domain's CD drive"),
    row("cd-eject", 2, true, "<Domain> <vdev>", "Empty a domain's CD drive"),
    row("button-press", 2, false, "<Domain> <Button>", "Press a power or sleep button of a domain"),
    row("sched-rtds", 0, false, "[-d <Domain> [-v[=VCPUID/all]] [-p[=PERIOD]] [-b[=BUDGET]]]", "Show or set parameters of the rtds scheduler"),
    row("set-parameters", 1, false, "<Params>", "Set the hypervisor's parameters"),
    row("channel-list", 1, false, "<Domain(s)>", "Show the channels of domains"),
    row("vtpm-list", 1, false, "<Domain(s)>", "Show the TPMs of domains"),
    row("cpupool-create", 0, true, "[options] [<ConfigFile>] [vars]", "Make a pool of CPUs"),
    row("cpupool-destroy", 1, false, "<CPU Pool>", "Dissolve a pool of CPUs"),
    row("cpupool-rename", 2, false, "<CPU Pool> <new name>", "Give a pool of CPUs another name"),
    row("cpupool-cpu-add", 2, false, "<CPU Pool> <CPU nr>", "Add a CPU to a pool"),
    row("cpupool-cpu-remove", 2, false, "<CPU Pool> <CPU nr>", "Take a CPU out of a pool"),
    row("cpupool-migrate", 2, false, "<Domain> <CPU Pool>", "Move a domain to another pool"),
    row("cpupool-numa-split", 0, false, "", "Make a pool of CPUs for each NUMA node"),
    row("setenforce", 1, false, "<1|0|Enforcing|Permissive>", "Switch Flask between enforcing and permissive"),
    row("remus", 2, false, "[options] <Domain> [<host>]", "Keep a copy of a domain up to date on another machine"),
    row("psr-hwinfo", 0, false, "[options]", "Show what can be monitored and allocated of caches and memory bandwidth"),
    row("qemu-monitor-command", 2, false, "<Domain> <Command>", "Give a command to a domain's device model"),
    row("suspend", 1, false, "<Domain>", "Suspend a domain in memory"),
    row("resume", 1, false, "<Domain>", "Let a suspended domain go on"),
];
