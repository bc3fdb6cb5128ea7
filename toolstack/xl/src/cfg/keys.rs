//! Names of settings (Xen's `xl.cfg(5)`), for warnings about others.

/// Those that this toolstack acts on.
const KNOWN: &[&str] = &[
    "acpi",
    "altp2m",
    "apic",
    "assisted_x2apic",
    "assisted_xapic",
    "bootloader",
    "bootloader_args",
    "builder",
    "cap",
    "channel",
    "claim_mode",
    "cmdline",
    "cpu_weight",
    "cpuid",
    "cpus",
    "cpus_soft",
    "device_model_args",
    "disk",
    "driver_domain",
    "dtdev",
    "extra",
    "extratime",
    "firmware",
    "hap",
    "hvm_pirq",
    "init_seclabel",
    "iomem",
    "ioports",
    "irqs",
    "kernel",
    "latency",
    "localtime",
    "max_event_channels",
    "max_grant_frames",
    "max_grant_version",
    "max_maptrack_frames",
    "maxmem",
    "maxvcpus",
    "memory",
    "msr_relaxed",
    "name",
    "nestedhvm",
    "nomigrate",
    "on_crash",
    "on_poweroff",
    "on_reboot",
    "on_soft_reset",
    "on_watchdog",
    "oos",
    "p9",
    "passthrough",
    "pci",
    "period",
    "pool",
    "pvcalls",
    "pvshim",
    "ramdisk",
    "root",
    "rtc_timeoffset",
    "seclabel",
    "shadow_memory",
    "slice",
    "timer_mode",
    "tsc_mode",
    "type",
    "usbctrl",
    "usbdev",
    "uuid",
    "vcpus",
    "vdispl",
    "vfb",
    "vif",
    "vif2",
    "videoram",
    "virtio",
    "vkb",
    "vmtrace_buf_kb",
    "vnuma",
    "vpmu",
    "vsnd",
    "vtpm",
    "xend_suspend_evtchn_compat",
];

/// Those that Xen's `xl` knows for other kinds of guests, and why they do nothing here.
const OTHER: &[(&str, &str)] = &[
    ("acpi_firmware", HVM),
    ("acpi_laptop_slate", HVM),
    ("acpi_s3", HVM),
    ("acpi_s4", HVM),
    ("bios", HVM),
    ("bios_path_override", HVM),
    ("boot", HVM),
    ("device_model", HVM),
    ("device_model_override", HVM),
    ("device_model_stubdomain_override", HVM),
    ("device_model_user", HVM),
    ("device_model_version", HVM),
    ("device_tree", ARM),
    ("dm_restrict", HVM),
    ("e820_host", PV),
    ("gfx_passthru", HVM),
    ("gic_version", ARM),
    ("hdtype", HVM),
    ("hpet", HVM),
    ("keymap", HVM),
    ("llc_colors", "cache colouring is not built"),
    ("mca_caps", HVM),
    ("mmio_hole", HVM),
    ("ms_vm_genid", HVM),
    ("nographic", HVM),
    ("nr_spis", ARM),
    ("nx", HVM),
    ("opengl", HVM),
    ("pae", HVM),
    ("pci_msitranslate", PCI),
    ("pci_permissive", PCI),
    ("pci_power_mgmt", PCI),
    ("pci_seize", PCI),
    ("pvh", "use type=\"pvh\""),
    ("pvshim_cmdline", PV),
    ("pvshim_extra", PV),
    ("pvshim_path", PV),
    ("rdm", PCI),
    ("sched", "the scheduler is the pool's"),
    ("sdl", HVM),
    ("serial", HVM),
    ("smbios", HVM),
    ("smbios_firmware", HVM),
    ("soundhw", HVM),
    ("spice", HVM),
    ("stdvga", HVM),
    ("sve", ARM),
    ("system_firmware", HVM),
    ("tee", ARM),
    ("usb", HVM),
    ("usbdevice", HVM),
    ("usbversion", HVM),
    ("vendor_device", HVM),
    ("vga", HVM),
    ("viridian", HVM),
    ("vnc", HVM),
    ("vncconsole", HVM),
    ("vncdisplay", HVM),
    ("vnclisten", HVM),
    ("vncpasswd", HVM),
    ("vncunused", HVM),
    ("vpt_align", HVM),
    ("vuart", ARM),
    ("xen_platform_pci", HVM),
];
const HVM: &str = "only HVM guests have it";
const PV: &str = "only PV guests have it";
const ARM: &str = "only guests on Arm have it";
const PCI: &str = "PVH guests get no PCI devices";

/// Whether it is acted on.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Why a known name does nothing.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    OTHER.iter().find(|(n, _)| *n == name).map(|(_, why)| *why)
}

/// The name that is most like this one, if any is.
pub(super) fn similar(name: &str) -> Option<&'static str> {
    let near = KNOWN.iter().map(|k| (distance(k, name), *k)).min()?;
    (near.0 <= 2 && near.0 < name.chars().count()).then_some(near.1)
}

/// How many characters must be put in, left out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
