//! A config as libxl writes it: what `create -n` and `list -l` show, and what other tools of a Xen host read.

use crate::cfg::cpuid::Edit;
use crate::cfg::disk::{Backend, Disk};
use crate::cfg::domain::{DomainConfig, uuid_text};
use crate::cfg::vif::{Vif, mac_text};
use crate::cmd::failure::Result;
use crate::cmd::output;
use serde::Serialize;
use serde_json::{Value, json};

/// Members in libxl's order.
#[derive(Serialize)]
struct Config {
    c_info: Value,
    b_info: BuildInfo,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disks: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nics: Vec<Value>,
    on_poweroff: String,
    on_reboot: String,
    on_watchdog: String,
    on_crash: String,
    on_soft_reset: String,
}

#[derive(Serialize)]
struct BuildInfo {
    max_vcpus: u32,
    avail_vcpus: Vec<u32>,
    max_memkb: u64,
    target_memkb: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_memkb: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cpuid: Vec<Value>,
    #[serde(skip_serializing_if = "Value::is_null")]
    sched_params: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_grant_frames: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_maptrack_frames: Option<u32>,
    event_channels: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    kernel: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    cmdline: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ramdisk: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootloader: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bootloader_args: Vec<String>,
    #[serde(rename = "type.pvh")]
    kind: Value,
    arch_arm: Value,
    arch_x86: Value,
}

/// The text, indented, with a newline.
///
/// # Errors
/// None that a config can cause.
pub fn text(c: &DomainConfig) -> Result<String> {
    let mut c_info = json!({ "type": "pvh", "name": c.name });
    if let Some(uuid) = c.uuid {
        c_info["uuid"] = uuid_text(uuid).into();
    }
    if let Some(pool) = &c.pool {
        c_info["pool_name"] = pool.clone().into();
    }
    if !c.oos {
        c_info["oos"] = "False".into();
    }
    if c.driver_domain {
        c_info["driver_domain"] = "True".into();
    }
    let mut sched = json!({});
    if let Some(weight) = c.cpu_weight {
        sched["weight"] = weight.into();
    }
    if let Some(cap) = c.cap {
        sched["cap"] = cap.into();
    }
    let mut x86 = json!({});
    for (key, differs, value) in [
        ("msr_relaxed", c.msr_relaxed, "True"),
        ("assisted_xapic", !c.assisted_xapic, "False"),
        ("assisted_x2apic", !c.assisted_x2apic, "False"),
        ("hvm_pirq", c.pirqs, "True"),
    ] {
        if differs {
            x86[key] = value.into();
        }
    }
    let action = |a: crate::cfg::domain::Action| a.name().replace('-', "_");
    output::to_json(&Config {
        c_info,
        b_info: BuildInfo {
            max_vcpus: c.maxvcpus,
            avail_vcpus: (0..c.vcpus).collect(),
            max_memkb: c.maxmem,
            target_memkb: c.memory,
            shadow_memkb: c.shadow_memory,
            cpuid: c.cpuid.iter().map(cpuid).collect(),
            sched_params: match sched == json!({}) {
                true => Value::Null,
                false => sched,
            },
            max_grant_frames: c.limits.grant_frames,
            max_maptrack_frames: c.limits.maptrack_frames,
            event_channels: c.limits.event_channels,
            kernel: c.kernel.clone(),
            cmdline: c.cmdline.clone(),
            ramdisk: c.ramdisk.clone(),
            bootloader: c.bootloader.as_ref().map(|b| b.program.clone()),
            bootloader_args: c.bootloader.iter().flat_map(|b| b.args.clone()).collect(),
            kind: json!({}),
            arch_arm: json!({}),
            arch_x86: x86,
        },
        disks: c.disks.iter().map(disk).collect(),
        nics: c.vifs.iter().map(nic).collect(),
        on_poweroff: action(c.actions.poweroff),
        on_reboot: action(c.actions.reboot),
        on_watchdog: action(c.actions.watchdog),
        on_crash: action(c.actions.crash),
        on_soft_reset: action(c.actions.soft_reset),
    })
}

fn cpuid(edit: &Edit) -> Value {
    let (register, bits) = edit.bits();
    let mut out = json!({ "leaf": edit.leaf, register: bits });
    if let Some(subleaf) = edit.subleaf {
        out["subleaf"] = subleaf.into();
    }
    out
}

/// A disk in its list.
pub fn disk(d: &Disk) -> Value {
    let mut out = json!({
        "pdev_path": d.target,
        "vdev": d.vdev,
        "format": d.format.name(),
        "readwrite": u8::from(d.writable),
    });
    if d.cdrom {
        out["is_cdrom"] = 1.into();
        out["removable"] = 1.into();
    }
    if let Some(backend) = d.backend {
        out["backend"] = match backend {
            Backend::Phy => "phy",
            Backend::Qdisk => "qdisk",
            Backend::Tap => "tap",
            Backend::Standalone => "standalone",
        }
        .into();
    }
    put(&mut out, "backend_domname", d.backend_domain.as_ref());
    put(&mut out, "script", d.script.as_ref());
    out
}

/// An interface in its list.
pub fn nic(v: &Vif) -> Value {
    let mut out = json!({ "devid": v.devid.unwrap_or_default() });
    put(&mut out, "mac", v.mac.map(mac_text).as_ref());
    put(&mut out, "bridge", v.bridge.as_ref());
    put(&mut out, "ip", v.ip.as_ref());
    put(&mut out, "script", v.script.as_ref());
    put(&mut out, "ifname", v.vifname.as_ref());
    put(&mut out, "backend_domname", v.backend_domain.as_ref());
    if let Some(mtu) = v.mtu {
        out["mtu"] = mtu.into();
    }
    out
}

fn put(out: &mut Value, name: &str, value: Option<&String>) {
    if let Some(value) = value {
        out[name] = value.clone().into();
    }
}
