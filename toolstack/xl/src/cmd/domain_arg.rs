//! The domain that a command is about.

use super::failure::{Failure, Result};
use xen_abi::DomId;
use xen_sys::xenstore::{Client, Transaction};

/// A domain by number or name. A number is taken as it is, whether there is such a domain or not, as Xen's `xl` does.
///
/// # Errors
/// If no domain has that name.
pub fn find(store: &mut Client, text: &str) -> Result<DomId> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(DomId).map_err(|_| invalid(text));
    }
    for id in store.list(Transaction::NONE, "/local/domain")? {
        if name_of(store, &id).is_some_and(|n| n == text)
            && let Ok(id) = id.parse()
        {
            return Ok(DomId(id));
        }
    }
    Err(invalid(text))
}

/// The name of a domain; `None` if it has none.
pub fn name(store: &mut Client, domid: DomId) -> Option<String> {
    name_of(store, &domid.0.to_string())
}

fn name_of(store: &mut Client, id: &str) -> Option<String> {
    let value = store.read(Transaction::NONE, &format!("/local/domain/{id}/name"));
    value
        .ok()
        .map(|v| String::from_utf8_lossy(&v).into_owned())
        .filter(|n| !n.is_empty())
}

fn invalid(text: &str) -> Failure {
    Failure::new(format!(
        "{text} is an invalid domain identifier (rc=-6); 'xl list' shows the domains"
    ))
}

/// Opens the store.
///
/// # Errors
/// If xenstored does not run.
pub fn store() -> Result<Client> {
    Client::open().map_err(|e| Failure::new(e.to_string()))
}
