//! `list -l`: configurations of running domains, in the form of Xen's `xl`.

use super::failure::{Outcome, Result};
use super::host::Host;
use super::{list, memory, output};
use crate::domain::{kept, live, teardown};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use xen_sys::xen::Domain;

/// Where the toolstack keeps the configuration of a running domain.
pub fn userdata(domain: &Domain) -> PathBuf {
    teardown::userdata(domain.id(), &domain.uuid(), "libxl-json").into()
}

/// Prints the list.
///
/// # Errors
/// If it cannot be written.
pub fn print(host: &mut Host, domains: &[Domain]) -> Outcome {
    let entries = domains.iter().map(|d| {
        let config = config(host, d);
        json!({ "domid": d.id().0, "config": config })
    });
    let list = Value::Array(entries.collect());
    // Xen's ends with an empty line.
    output::print(&(to_text(&list)? + "\n"))
}

fn to_text(value: &Value) -> Result<String> {
    output::to_json(value)
}

/// What was configured, with what has changed since.
fn config(host: &mut Host, domain: &Domain) -> Value {
    let kept = std::fs::read_to_string(userdata(domain)).ok();
    let mut config = kept
        .and_then(|text| kept::parse(&text).ok())
        .unwrap_or_default();
    let domid = domain.id().0;
    let kind = list::kind(host, domain);
    let name = host.name(domain.id());
    let c_info = member(&mut config, "c_info");
    c_info.entry("type").or_insert_with(|| kind.into());
    c_info.insert("name".into(), name.into());
    c_info.insert("uuid".into(), domain.uuid().into());
    let path = format!("/local/domain/{domid}");
    let online: Vec<u32> = (0..domain.vcpus())
        .filter(|v| {
            let node = host.read(&format!("{path}/cpu/{v}/availability"));
            node.is_none_or(|a| a == "online")
        })
        .collect();
    let target = host.number(&format!("{path}/memory/target"));
    let most = memory::most(host, domain.id());
    let b_info = member(&mut config, "b_info");
    b_info.insert("max_vcpus".into(), domain.vcpus().into());
    b_info.insert("avail_vcpus".into(), online.into());
    let target = target.unwrap_or(domain.memory_kib());
    b_info.insert("target_memkb".into(), target.into());
    b_info.insert("max_memkb".into(), most.unwrap_or(target).into());
    if domid != 0 {
        live::merge_devices(&mut host.store, domain.id(), &mut config);
    }
    Value::Object(config)
}

/// An object in an object, made if it is not there.
fn member<'a>(config: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let entry = config.entry(name).or_insert_with(|| Map::new().into());
    if !entry.is_object() {
        *entry = Map::new().into();
    }
    entry.as_object_mut().expect("just made one")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, printed};

    #[test]
    fn the_list_has_what_is_known_of_a_domain_now() {
        let f = Fixture::new();
        f.store.set("/local/domain/3/cpu/1/availability", "offline");
        f.store.set("/local/domain/3/memory/target", "131072");
        let text = printed("list -l web");
        assert!(
            text.starts_with("[\n    {\n") && text.ends_with("]\n\n"),
            "{text}"
        );
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let config = &list[0]["config"];
        assert_eq!(
            (&list[0]["domid"], &config["c_info"]["name"]),
            (&3.into(), &"web".into())
        );
        assert_eq!(config["c_info"]["type"], "pvh");
        assert_eq!(config["b_info"]["avail_vcpus"], serde_json::json!([0]));
        assert_eq!(config["b_info"]["target_memkb"], 131_072);
        assert_eq!(printed("list -l").matches("\"domid\"").count(), 3);
    }
}
