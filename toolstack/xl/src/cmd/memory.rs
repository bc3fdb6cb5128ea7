//! `mem-set`, `mem-max`.

use super::host::Host;
use super::{Args, Command, Context, Failure, Outcome};
use crate::domain::nodes::most_memory;
use xen_abi::DomId;
use xen_abi::domctl::dominf;
use xen_sys::xen::Domain;
use xen_sys::xenstore::Transaction;

const USAGE: &str = "<Domain> <MemMB['b'[bytes]|'k'[KB]|'m'[MB]|'g'[GB]|'t'[TB]]>";

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "mem-max",
        options: &[],
        usage: USAGE,
        help: "Limit the memory that a domain can have",
        min: 2,
        dry_run: false,
        run: max,
    },
    Command {
        name: "mem-set",
        options: &[],
        usage: USAGE,
        help: "Ask a domain to use that much memory",
        min: 2,
        dry_run: false,
        run: set,
    },
];

/// What Xen's toolstack adds to a domain's limit, in KiB.
const SLACK: u64 = 1024;
/// Less is never asked of dom0, in KiB.
const LEAST_DOM0: u64 = 128 << 10;

/// A size with a suffix, MiB without, in KiB.
///
/// # Errors
/// If it is none.
pub fn parse_size(text: &str) -> Result<u64, Failure> {
    let wrong = || {
        Failure::new(format!(
            "invalid memory size: {text}; MiB, or a number with b, k, m, g or t behind it"
        ))
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| wrong())?;
    let shift = match text[end..].to_ascii_lowercase().as_str() {
        "b" => return Ok(number >> 10),
        "k" => 0,
        "" | "m" => 10,
        "g" => 20,
        "t" => 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// What the store says of a domain's memory.
struct Memory {
    /// What it shall use, in KiB.
    target: u64,
    /// What it may have, in KiB.
    most: u64,
    /// Of these, for a screen.
    video: u64,
}

fn node(domid: DomId, name: &str) -> String {
    format!("/local/domain/{}/memory/{name}", domid.0)
}

/// The most memory that a domain may have, in KiB, if the store knows.
pub fn most(host: &mut Host, domid: DomId) -> Option<u64> {
    let own = host.number(&most_memory(domid));
    own.max(host.number(&node(domid, "static-max")))
}

/// Reads it; dom0's is not there before the first change.
fn memory(host: &mut Host, domain: &Domain) -> Result<Memory, Failure> {
    let domid = domain.id();
    let (used, limit) = (domain.memory_kib(), domain.0.max_pages.saturating_mul(4));
    let machine = host.xen.physinfo()?.total_pages.saturating_mul(4);
    let target = host.number(&node(domid, "target"));
    let most = most(host, domid);
    let video = host.number(&node(domid, "videoram")).unwrap_or(0);
    if target.is_none() && domid != DomId::DOM0 {
        return Err(Failure::new(format!(
            "domain {} has no {} in xenstore; it cannot be told how much memory to use",
            domid.0,
            node(domid, "target")
        )));
    }
    Ok(Memory {
        target: target.unwrap_or(used),
        most: most.unwrap_or(limit.min(machine)),
        video,
    })
}

fn set(_: &Context, args: &Args) -> Outcome {
    let wanted = parse_size(&args.words[1])?;
    let host = &mut Host::open()?;
    let domain = host.domain(&args.words[0])?;
    let domid = domain.id();
    let now = memory(host, &domain)?;
    if domid == DomId::DOM0 && wanted < LEAST_DOM0 {
        return Err(Failure::new(format!(
            "new target {wanted} KiB for dom0 is below the minimum threshold of {LEAST_DOM0} KiB"
        )));
    }
    if wanted > now.most {
        return Err(Failure::new(format!(
            "memory_dynamic_max must be less than or equal to memory_static_max: {} MiB is the most \
             that domain {} can use; 'xl mem-max' and maxmem= in its config change that",
            now.most >> 10,
            domid.0
        )));
    }
    if now.video > wanted {
        return Err(Failure::new(format!(
            "the domain's screen alone takes {} MiB",
            now.video >> 10
        )));
    }
    // The hypervisor's limit follows, so that the domain cannot take back what it gives up.
    let limit = domain.0.max_pages.saturating_mul(4);
    if limit < u64::MAX >> 12 {
        let limit = limit.saturating_sub(now.target + now.video) + wanted;
        host.xen.set_max_memory(domid, limit).map_err(|e| {
            Failure::new(format!(
                "cannot limit domain {} to {limit} KiB: {e}",
                domid.0
            ))
        })?;
    }
    if domain.is(dominf::HVM_GUEST) {
        let pages = (wanted - now.video) / 4;
        host.xen.set_pod_target(domid, pages).map_err(|e| {
            Failure::new(format!(
                "cannot set the populate-on-demand target of domain {}: {e}",
                domid.0
            ))
        })?;
    }
    let vm = host.read(&format!("/local/domain/{}/vm", domid.0));
    host.store.transaction(|store, tx| {
        let target = (wanted - now.video).to_string();
        store.write(tx, &node(domid, "target"), target.as_bytes())?;
        if let Some(vm) = &vm {
            let mib = (wanted >> 10).to_string();
            store.write(tx, &format!("{vm}/memory"), mib.as_bytes())?;
        }
        if domid == DomId::DOM0 {
            let most = now.most.to_string();
            store.write(tx, &node(domid, "static-max"), most.as_bytes())?;
        }
        Ok(())
    })?;
    Ok(())
}

fn max(_: &Context, args: &Args) -> Outcome {
    let wanted = parse_size(&args.words[1])?;
    let host = &mut Host::open()?;
    let domain = host.domain(&args.words[0])?;
    let domid = domain.id();
    let now = memory(host, &domain)?;
    if wanted < now.target {
        return Err(Failure::new(format!(
            "memory_static_max must be greater than or equal to memory_dynamic_max: domain {} is to \
             use {} MiB now; lower that first with 'xl mem-set'",
            domid.0,
            now.target >> 10
        )));
    }
    let limit = wanted.saturating_add(SLACK);
    host.xen.set_max_memory(domid, limit).map_err(|e| {
        Failure::new(format!(
            "cannot set domid {} static max memory to: {}: {e}",
            domid.0, args.words[1]
        ))
    })?;
    let value = wanted.to_string();
    host.store.write(
        Transaction::NONE,
        &node(domid, "static-max"),
        value.as_bytes(),
    )?;
    if host.number(&most_memory(domid)).is_some() {
        let path = most_memory(domid);
        host.store
            .write(Transaction::NONE, &path, value.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, printed, run};
    use super::parse_size;

    #[test]
    fn sizes() {
        for (text, kib) in [
            ("256", 262_144),
            ("256m", 262_144),
            ("1G", 1 << 20),
            ("1t", 1 << 30),
            ("4096k", 4096),
            ("8192B", 8),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text).unwrap(), kib, "{text}");
        }
        for text in ["", "m", "1x", "1mb", "-1", "1.5g", "99999999999999999t"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    fn fixture() -> Fixture {
        let f = Fixture::new();
        for (name, value) in [
            ("target", "262144"),
            ("static-max", "524288"),
            ("videoram", "0"),
        ] {
            f.store
                .set(&format!("/local/domain/3/memory/{name}"), value);
        }
        f.machine
            .borrow_mut()
            .domains
            .get_mut(&3)
            .unwrap()
            .info
            .max_pages = (262_144 + 1024) / 4;
        f
    }

    #[test]
    fn a_new_target_is_written_and_the_limit_follows() {
        let f = fixture();
        printed("mem-set web 384");
        assert_eq!(
            f.store.get("/local/domain/3/memory/target").unwrap(),
            "393216"
        );
        let vm = "/vm/11111111-1111-1111-1111-111111111111/memory";
        assert_eq!(f.store.get(vm).unwrap(), "384");
        assert_eq!(
            f.machine.borrow().domains[&3].info.max_pages,
            (393_216 + 1024) / 4
        );
        printed("mem-set web 128");
        assert_eq!(
            f.machine.borrow().domains[&3].info.max_pages,
            (131_072 + 1024) / 4
        );
        assert_eq!(
            f.machine.borrow().log,
            ["pod target 98304 of d3", "pod target 32768 of d3"]
        );
    }

    #[test]
    fn dom0_has_a_target_from_the_first_change_on() {
        let f = Fixture::new();
        printed("mem-set 0 512");
        assert_eq!(
            f.store.get("/local/domain/0/memory/target").unwrap(),
            "524288"
        );
        assert_eq!(
            f.store.get("/local/domain/0/memory/static-max").unwrap(),
            "1048576"
        );
        assert!(run("mem-set 0 64").1.contains("minimum threshold"));
    }

    #[test]
    fn the_limit_is_set() {
        let f = fixture();
        printed("mem-max web 1g");
        assert_eq!(
            f.store.get("/local/domain/3/memory/static-max").unwrap(),
            "1048576"
        );
        assert_eq!(
            f.machine.borrow().domains[&3].info.max_pages,
            (1_048_576 + 1024) / 4
        );
        printed("mem-set web 1024");
    }

    #[test]
    fn errors() {
        let _f = fixture();
        for (line, part) in [
            ("mem-set web 513", "512 MiB is the most"),
            ("mem-set web 1x", "invalid memory size: 1x"),
            ("mem-max web 255", "use 256 MiB now"),
            (
                "mem-set old 64",
                "no /local/domain/12/memory/target in xenstore",
            ),
            ("mem-set nobody 64", "invalid domain identifier"),
        ] {
            let (code, text) = run(line);
            assert!(code == 1 && text.contains(part), "{line}: {text}");
        }
    }
}
