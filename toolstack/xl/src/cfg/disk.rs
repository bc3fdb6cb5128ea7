//! Disks in words (Xen's `xl-disk-configuration(5)`).

/// How a disk's contents are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As they are.
    #[default]
    Raw,
    /// QEMU's.
    Qcow2,
    /// QEMU's first.
    Qcow,
    /// Microsoft's.
    Vhd,
    /// QEMU's other.
    Qed,
    /// An empty drive.
    Empty,
}

impl Format {
    const NAMES: &'static [(&'static str, Format)] = &[
        ("raw", Format::Raw),
        ("aio", Format::Raw),
        ("qcow2", Format::Qcow2),
        ("qcow", Format::Qcow),
        ("vhd", Format::Vhd),
        ("qed", Format::Qed),
        ("empty", Format::Empty),
    ];

    fn from_name(name: &str) -> Option<Format> {
        Self::NAMES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, f)| *f)
    }

    /// As written.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(n, f)| *f == self && *n != "aio");
        found.map_or("raw", |(n, _)| n)
    }
}

/// Who serves a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The kernel of the backend domain.
    Phy,
    /// QEMU.
    Qdisk,
    /// Gone since Xen 4.14.
    Tap,
    /// Another program.
    Standalone,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// File or device; empty for an empty drive.
    pub target: String,
    /// How it is stored.
    pub format: Format,
    /// Name in the guest.
    pub vdev: String,
    /// May be written.
    pub writable: bool,
    /// A CD drive.
    pub cdrom: bool,
    /// Chosen by the config.
    pub backend: Option<Backend>,
    /// Domain that serves it; `None`: this one.
    pub backend_domain: Option<String>,
    /// Hotplug script instead of the usual one.
    pub script: Option<String>,
    /// Discard requests are passed on.
    pub discard: Option<bool>,
    /// Bypass the page cache.
    pub direct_io_safe: bool,
    /// Whether the frontend may trust the backend.
    pub trusted: Option<bool>,
}

impl Disk {
    /// A writable raw disk without a name.
    pub fn empty() -> Disk {
        Disk {
            target: String::new(),
            format: Format::Raw,
            vdev: String::new(),
            writable: true,
            cdrom: false,
            backend: None,
            backend_domain: None,
            script: None,
            discard: None,
            direct_io_safe: false,
            trusted: None,
        }
    }

    /// The number by which frontends and the store know it.
    pub fn devid(&self) -> Option<u32> {
        device_number(&self.vdev)
    }
}

/// Prefixes that set a format or a backend.
const PREFIXES: &[(&str, Option<Format>, Option<&str>)] = &[
    ("phy", Some(Format::Raw), None),
    ("file", Some(Format::Raw), None),
    ("raw", Some(Format::Raw), None),
    ("aio", Some(Format::Raw), None),
    ("qcow2", Some(Format::Qcow2), None),
    ("qcow", Some(Format::Qcow), None),
    ("vhd", Some(Format::Vhd), None),
    ("tap", None, None),
    ("tap2", None, None),
    ("iscsi", None, Some("block-iscsi")),
    ("nbd", None, Some("block-nbd")),
    ("drbd", None, Some("block-drbd")),
];

/// Reads a disk.
///
/// # Errors
/// What is wrong.
pub fn parse(text: &str) -> Result<Disk, String> {
    let mut disk = Disk::empty();
    let mut rest = text.trim();
    // A prefix or `format=` takes the place of the format among the positions.
    let mut has_format = false;
    // `phy:` and the like before anything else.
    while let Some((word, after)) = rest.split_once(':') {
        let Some((_, format, script)) = PREFIXES.iter().find(|(p, ..)| *p == word) else {
            break;
        };
        disk.format = format.unwrap_or(disk.format);
        disk.script = script.map(str::to_owned).or(disk.script);
        has_format = true;
        rest = after;
    }
    let mut target = false;
    let mut position = 0;
    while !rest.is_empty() {
        // What begins with `target=` goes to the end, commas and all.
        if let Some(all) = rest.strip_prefix("target=") {
            disk.target = all.to_owned();
            target = true;
            break;
        }
        let (word, after) = rest.split_once(',').unwrap_or((rest, ""));
        let more = rest.len() > word.len();
        rest = after.trim_start();
        let word = word.trim();
        if let Some((key, value)) = word.split_once('=').filter(|(k, _)| is_key(k)) {
            key_value(&mut disk, key.trim(), value.trim())?;
            has_format |= key.trim() == "format";
        } else if !flag(&mut disk, word) {
            if position == 1 && has_format {
                position = 2;
            }
            match position {
                0 => {
                    disk.target = word.to_owned();
                    target = true;
                }
                1 if word.is_empty() => {}
                1 => disk.format = format(word)?,
                2 => set_vdev(&mut disk, word),
                3 if word.is_empty() => {}
                3 => disk.writable = access(word)?,
                _ => return Err(format!("'{word}' is not understood in disk '{text}'")),
            }
            position += 1;
        }
        if rest.is_empty() && more && position == 0 {
            break;
        }
    }
    check(disk, target, text)
}

fn check(mut disk: Disk, target: bool, text: &str) -> Result<Disk, String> {
    if disk.vdev.is_empty() {
        return Err(format!(
            "disk '{text}' has no name in the guest: write target,format,vdev,access, for example \
             /dev/vg/guest,raw,xvda,rw"
        ));
    }
    if disk.devid().is_none() {
        return Err(format!(
            "'{}' is no disk name: xvda, sda1, hdc or d0p1 are",
            disk.vdev
        ));
    }
    if disk.cdrom {
        disk.writable = false;
        if disk.target.is_empty() {
            disk.format = Format::Empty;
        }
    }
    if disk.format == Format::Empty && !disk.cdrom {
        return Err(format!(
            "only a CD drive can be empty: add devtype=cdrom to '{text}'"
        ));
    }
    if disk.format != Format::Empty && (!target || disk.target.is_empty()) {
        return Err(format!(
            "disk '{text}' has no target: name a file or device"
        ));
    }
    Ok(disk)
}

const KEYS: &[&str] = &[
    "format",
    "vdev",
    "access",
    "devtype",
    "backendtype",
    "backend",
    "script",
];

fn is_key(word: &str) -> bool {
    let word = word.trim();
    KEYS.contains(&word)
        || word.starts_with("colo")
        || word == "active-disk"
        || word == "hidden-disk"
        || word == "specification"
}

fn key_value(disk: &mut Disk, key: &str, value: &str) -> Result<(), String> {
    match key {
        "format" => disk.format = format(value)?,
        "vdev" => set_vdev(disk, value),
        "access" => disk.writable = access(value)?,
        "devtype" => {
            disk.cdrom = match value {
                "cdrom" => true,
                "disk" => false,
                _ => return Err(format!("devtype={value}: disk or cdrom")),
            }
        }
        "backendtype" => {
            disk.backend = Some(match value {
                "phy" => Backend::Phy,
                "qdisk" => Backend::Qdisk,
                "tap" => Backend::Tap,
                "standalone" => Backend::Standalone,
                _ => return Err(format!("backendtype={value}: phy, qdisk or standalone")),
            });
        }
        "backend" => disk.backend_domain = Some(value.to_owned()),
        "script" => disk.script = Some(value.to_owned()),
        "specification" if value == "xen" => {}
        _ => return Err(format!("'{key}' is not supported")),
    }
    Ok(())
}

fn flag(disk: &mut Disk, word: &str) -> bool {
    match word {
        "cdrom" => disk.cdrom = true,
        "discard" => disk.discard = Some(true),
        "no-discard" => disk.discard = Some(false),
        "direct-io-safe" => disk.direct_io_safe = true,
        "trusted" => disk.trusted = Some(true),
        "untrusted" => disk.trusted = Some(false),
        _ => return false,
    }
    true
}

fn format(word: &str) -> Result<Format, String> {
    Format::from_name(word)
        .ok_or_else(|| format!("unknown disk format '{word}': raw, qcow2, qcow, vhd, qed or empty"))
}

fn access(word: &str) -> Result<bool, String> {
    match word {
        "rw" | "w" => Ok(true),
        "ro" | "r" => Ok(false),
        _ => Err(format!("unknown access '{word}': rw or ro")),
    }
}

fn set_vdev(disk: &mut Disk, word: &str) {
    // The old way to say that it is a CD.
    match word.split_once(':') {
        Some((vdev, "cdrom")) => {
            disk.vdev = vdev.to_owned();
            disk.cdrom = true;
        }
        Some((vdev, "disk")) => disk.vdev = vdev.to_owned(),
        _ => disk.vdev = word.to_owned(),
    }
}

/// Number of a disk of this name (Xen's `vbd-interface(7)`).
pub fn device_number(name: &str) -> Option<u32> {
    let plain = |name: &str| -> Option<u32> {
        let digits = name.strip_prefix("0x").map(|h| u32::from_str_radix(h, 16));
        digits.unwrap_or_else(|| name.parse()).ok()
    };
    if name.bytes().next()?.is_ascii_digit() {
        return plain(name);
    }
    if let Some((disk, partition)) = name
        .strip_prefix('d')
        .filter(|rest| rest.bytes().next().is_some_and(|b| b.is_ascii_digit()))
        .map(|rest| rest.split_once('p').unwrap_or((rest, "0")))
    {
        return xen_number(disk.parse().ok()?, partition.parse().ok()?);
    }
    let (kind, rest) = ["xvd", "sd", "hd"]
        .iter()
        .find_map(|p| name.strip_prefix(p).map(|rest| (*p, rest)))?;
    let letters: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
    let digits = &rest[letters.len()..];
    if letters.is_empty() || letters.len() > 4 || digits.starts_with('0') {
        return None;
    }
    let partition: u32 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    let disk = letters
        .bytes()
        .fold(0u32, |n, b| n * 26 + u32::from(b - b'a') + 1)
        - 1;
    match kind {
        "xvd" => xen_number(disk, partition),
        "sd" if disk < 16 && partition < 16 => Some(8 << 8 | disk << 4 | partition),
        "hd" if disk < 4 && partition < 64 => {
            let major = if disk < 2 { 3 } else { 22 };
            Some(major << 8 | (disk & 1) << 6 | partition)
        }
        _ => None,
    }
}

fn xen_number(disk: u32, partition: u32) -> Option<u32> {
    match (disk, partition) {
        (0..16, 0..16) => Some(202 << 8 | disk << 4 | partition),
        (0..0x10_0000, 0..256) => Some(1 << 28 | disk << 8 | partition),
        _ => None,
    }
}
