//! `xen-init-dom0`: what the store must say of domain 0 and the CPU pools before guests are made.

use std::path::Path;
use xen_sys::xen::Xen;
use xen_sys::xenstore::{Client, Result, Transaction};

/// Domain numbers that Xen's toolstack does not use again at once.
const HISTORY: &str = "/run/xen/domid-history";

/// Writes the nodes; `pools` are the numbers of the CPU pools. Whether it had been done already.
///
/// # Errors
/// The store does not answer.
pub fn prepare(store: &mut Client, pools: &[u32]) -> Result<bool> {
    let before = store
        .read(Transaction::NONE, "/local/domain/0/domid")
        .is_ok();
    store.transaction(|store, tx| {
        for (path, value) in [
            ("/local/domain/0/domid", "0"),
            ("/local/domain/0/name", "Domain-0"),
        ] {
            store.write(tx, path, value.as_bytes())?;
        }
        for pool in pools {
            let path = format!("/local/pool/{pool}/name");
            // A name that the administrator gave stays.
            if store.read(tx, &path).is_err() {
                store.write(tx, &path, format!("Pool-{pool}").as_bytes())?;
            }
        }
        Ok(())
    })?;
    Ok(before)
}

/// All of it, on this machine.
///
/// # Errors
/// One line that says what does not work.
pub fn run() -> std::result::Result<(), String> {
    let xen = Xen::open().map_err(|e| format!("/dev/xen/privcmd: {e}"))?;
    let pools = xen
        .pools()
        .map_err(|e| format!("the hypervisor does not tell its CPU pools: {e}"))?;
    let pools: Vec<u32> = pools.iter().map(|p| p.id).collect();
    let mut store = Client::open().map_err(|e| e.to_string())?;
    let before = prepare(&mut store, &pools).map_err(|e| e.to_string())?;
    if !before && Path::new(HISTORY).exists() {
        std::fs::write(HISTORY, "").map_err(|e| format!("{HISTORY}: {e}"))?;
    }
    println!(
        "{}",
        if before {
            "domain 0 was prepared already"
        } else {
            "domain 0 is prepared"
        }
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use xen_sys::fake::FakeStore;

    #[test]
    fn nodes() {
        let store = FakeStore::new(&[("/local/pool/1/name", "fast")]);
        let mut client = Client::fake(&store);
        assert!(!prepare(&mut client, &[0, 1]).unwrap());
        assert!(prepare(&mut client, &[0, 1]).unwrap());
        let get = |path| store.get(path).unwrap();
        assert_eq!(get("/local/domain/0/domid"), "0");
        assert_eq!(get("/local/domain/0/name"), "Domain-0");
        assert_eq!(
            (get("/local/pool/0/name"), get("/local/pool/1/name")),
            ("Pool-0".into(), "fast".into())
        );
    }
}
