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
    row("vtpm-attach", 1, false, "<Domain> [uuid=<uuid>] [backend=<BackAdd>]", "Give a domain a TPM"),
    row("vtpm-list", 1, false, "<Domain(s)>", "Show the TPMs of domains"),
    row("vtpm-detach", 2, false, "<Domain> <DevId|uuid>", "Take a TPM from a domain"),
    row("vdispl-attach", 1, false, "<Domain> [backend=<BackAdd>] [be-alloc=<BackAlloc>] [connectors='<Connectors>']", "Give a domain a display"),
    row("vdispl-list", 1, false, "<Domain(s)>", "Show the displays of domains"),
    row("vdispl-detach", 2, false, "<Domain> <DevId>", "Take a display from a domain"),
    row("vkb-attach", 2, false, "<Domain> <vkb-spec-component(s)>...", "Give a domain a keyboard"),
    row("vkb-list", 1, false, "<Domain(s)>", "Show the keyboards of domains"),
    row("vkb-detach", 2, false, "<Domain> <DevId>", "Take a keyboard from a domain"),
    row("vsnd-attach", 2, false, "<Domain> <vsnd-spec-component(s)>...", "Give a domain a sound device"),
    row("vsnd-list", 1, false, "<Domain(s)>", "Show the sound devices of domains"),
    row("vsnd-detach", 2, false, "<Domain> <DevId>", "Take a sound device from a domain"),
    row("usbctrl-attach", 1, false, "<Domain> [type=<type>] [version=<version>] [ports=<number>]", "Give a domain a USB controller"),
    row("usbctrl-detach", 2, false, "<Domain> <DevId>", "Take a USB controller from a domain"),
    row("usbdev-attach", 2, false, "<Domain> hostbus=<busnum> hostaddr=<devnum> [controller=<devid> [port=<port>]]", "Give a domain a USB device"),
    row("usbdev-detach", 3, false, "<Domain> <controller-devid> <port>", "Take a USB device from a domain"),
    row("usb-list", 1, false, "<Domain>", "Show the USB controllers and devices of a domain"),
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
    row("psr-cmt-attach", 1, false, "<Domain>", "Begin to monitor a domain's use of caches and memory bandwidth"),
    row("psr-cmt-detach", 1, false, "<Domain>", "Stop monitoring it"),
    row("psr-cmt-show", 1, false, "<PSR-CMT-Type> [<Domain>]", "Show what was monitored"),
    row("psr-cat-set", 2, false, "[options] <Domain> <CBM>", "Set a domain's share of a cache"),
    row("psr-cat-show", 0, false, "[options] [<Domain>]", "Show domains' shares of a cache"),
    row("psr-mba-set", 2, false, "[options] <Domain> <THRTL>", "Set a domain's share of the memory bandwidth"),
    row("psr-mba-show", 0, false, "[<Domain>]", "Show domains' shares of the memory bandwidth"),
    row("qemu-monitor-command", 2, false, "<Domain> <Command>", "Give a command to a domain's device model"),
    row("suspend", 1, false, "<Domain>", "Suspend a domain in memory"),
    row("resume", 1, false, "<Domain>", "Let a suspended domain go on"),
];
