//! Network interfaces in words (Xen's `xl-network-configuration(5)`).

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vif {
    /// Address; `None`: one is made up.
    pub mac: Option<[u8; 6]>,
    /// Bridge in the backend domain.
    pub bridge: Option<String>,
    /// Device through which routed interfaces go.
    pub gatewaydev: Option<String>,
    /// Hotplug script.
    pub script: Option<String>,
    /// Address for the script's use.
    pub ip: Option<String>,
    /// Domain that serves it; `None`: this one.
    pub backend_domain: Option<String>,
    /// Name in the backend domain.
    pub vifname: Option<String>,
    /// Bytes per interval in microseconds.
    pub rate: Option<(u64, u32)>,
    /// Bytes of the largest packet.
    pub mtu: Option<u32>,
    /// Number, if it shall not be the next one.
    pub devid: Option<u32>,
    /// Whether the frontend may trust the backend.
    pub trusted: Option<bool>,
}

/// Reads a network interface; an empty text is one with all defaults.
///
/// # Errors
/// What is wrong.
pub fn parse(text: &str) -> Result<Vif, String> {
    let mut vif = Vif::default();
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        match word {
            "trusted" => vif.trusted = Some(true),
            "untrusted" => vif.trusted = Some(false),
            _ => {
                let (key, value) = word.split_once('=').ok_or_else(|| {
                    format!("'{word}' is no setting of a network interface: key=value")
                })?;
                key_value(&mut vif, key.trim(), value.trim())?;
            }
        }
    }
    Ok(vif)
}

fn key_value(vif: &mut Vif, key: &str, value: &str) -> Result<(), String> {
    let text = || Some(value.to_owned()).filter(|v| !v.is_empty());
    match key {
        "mac" => vif.mac = Some(parse_mac(value)?),
        "bridge" => vif.bridge = text(),
        "gatewaydev" | "netdev" => vif.gatewaydev = text(),
        "script" => vif.script = text(),
        "ip" => vif.ip = text(),
        "backend" => vif.backend_domain = text(),
        "vifname" => vif.vifname = text(),
        "rate" => vif.rate = Some(parse_rate(value)?),
        "mtu" => {
            let mtu = value.parse().ok().filter(|n| (68..=65535).contains(n));
            vif.mtu = Some(mtu.ok_or_else(|| format!("mtu={value}: a number from 68 to 65535"))?);
        }
        "devid" => {
            let devid = value.parse().ok().filter(|n| *n < 1 << 16);
            vif.devid = Some(devid.ok_or_else(|| format!("devid={value}: a number"))?);
        }
        "type" if matches!(value, "vif" | "paravirtualised") => {}
        "type" => {
            return Err(format!(
                "type={value}: PVH guests have no emulated network cards"
            ));
        }
        // For emulated cards, or without effect on Xen as well.
        "model" | "accel" => {}
        _ if key.starts_with("colo") => return Err(format!("'{key}' is not supported")),
        _ => return Err(format!("unknown setting '{key}' of a network interface")),
    }
    Ok(())
}

/// Reads `00:16:3e:00:00:01`.
///
/// # Errors
/// What is wrong.
pub fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bad = || format!("'{text}' is no hardware address such as 00:16:3e:01:23:45");
    let parts: Vec<&str> = text.split(':').collect();
    let mut mac = [0; 6];
    if parts.len() != mac.len() {
        return Err(bad());
    }
    for (byte, part) in mac.iter_mut().zip(parts) {
        *byte = Some(part)
            .filter(|p| (1..=2).contains(&p.len()))
            .and_then(|p| u8::from_str_radix(p, 16).ok())
            .ok_or_else(bad)?;
    }
    if mac[0] & 1 != 0 {
        return Err(format!("{text} is the address of a group, not of a card"));
    }
    Ok(mac)
}

/// As written in the store.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// Reads `10Mb/s`, `1MB/s@20ms`.
fn parse_rate(text: &str) -> Result<(u64, u32), String> {
    let bad = || format!("rate={text}: write for example 10Mb/s or 1MB/s@20ms");
    let (rate, interval) = text.split_once('@').unwrap_or((text, "50ms"));
    let rate = rate.strip_suffix("/s").ok_or_else(bad)?;
    let digits = rate.len() - rate.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = rate[..digits].parse().map_err(|_| bad())?;
    let (unit, bits) = match rate[digits..].strip_suffix('b') {
        Some(unit) => (unit, 8),
        None => (rate[digits..].strip_suffix('B').ok_or_else(bad)?, 1),
    };
    let factor: u64 = match unit {
        "" => 1,
        "K" | "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return Err(bad()),
    };
    let per_second = number.checked_mul(factor).ok_or_else(bad)? / bits;
    let digits = interval.len()
        - interval
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    let number: u64 = interval[..digits].parse().map_err(|_| bad())?;
    let unit = match &interval[digits..] {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => return Err(bad()),
    };
    let micros = number
        .checked_mul(unit)
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(bad)?;
    let bytes = u128::from(per_second) * u128::from(micros) / 1_000_000;
    let bytes = u64::try_from(bytes)
        .ok()
        .filter(|n| (1..=u64::from(u32::MAX)).contains(n));
    Ok((
        bytes.ok_or_else(|| format!("rate={text} is too low or too high for its interval"))?,
        micros,
    ))
}
