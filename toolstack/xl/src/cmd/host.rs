//! What commands look at: the hypervisor and the store.

use super::failure::{Failure, Outcome, Result};
use super::{Context, domain_arg, output};
use serde::{Deserialize, Serialize};
use xen_abi::DomId;
use xen_sys::xen::{Domain, Xen};
use xen_sys::xenstore::{Client, Transaction};

/// Both.
pub struct Host {
    /// The hypervisor.
    pub xen: Xen,
    /// The store.
    pub store: Client,
}

impl Host {
    /// Opens both.
    ///
    /// # Errors
    /// If this is not a control domain, or xenstored does not run.
    pub fn open() -> Result<Host> {
        Ok(Host {
            xen: xen()?,
            store: store()?,
        })
    }

    /// The domain that a word names.
    ///
    /// # Errors
    /// As [`domain_arg::find`].
    pub fn find(&mut self, word: &str) -> Result<DomId> {
        domain_arg::find(&mut self.store, word)
    }

    /// The domain that a word names, if the hypervisor has it.
    ///
    /// # Errors
    /// If there is none.
    pub fn domain(&mut self, word: &str) -> Result<Domain> {
        let domid = self.find(word)?;
        let found = self.xen.domain(domid)?;
        found.ok_or_else(|| {
            Failure::new(format!(
                "Domain '{word}' does not exist; 'xl list' shows the domains"
            ))
        })
    }

    /// The domains that these words name; all domains if there is no word.
    ///
    /// # Errors
    /// If one does not exist.
    pub fn domains(&mut self, words: &[String]) -> Result<Vec<Domain>> {
        if words.is_empty() {
            return Ok(self.xen.domains()?);
        }
        words.iter().map(|w| self.domain(w)).collect()
    }

    /// A domain's name; as Xen's tools print it if it has none.
    pub fn name(&mut self, domid: DomId) -> String {
        domain_arg::name(&mut self.store, domid).unwrap_or_else(|| "(null)".into())
    }

    /// The name of a pool of CPUs.
    pub fn pool_name(&mut self, pool: u32) -> String {
        let name = self.read(&format!("/local/pool/{pool}/name"));
        name.unwrap_or_else(|| format!("Pool-{pool}"))
    }

    /// A node's value as text, if it is there.
    pub fn read(&mut self, path: &str) -> Option<String> {
        let value = self.store.read(Transaction::NONE, path).ok()?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    /// A node's value as a number, if it is there and one.
    pub fn number(&mut self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }
}

/// What a command that only looks has to tell.
pub struct Report {
    /// As Xen's `xl` prints it.
    pub text: String,
    /// The same as JSON.
    pub json: String,
}

impl Report {
    /// Both forms.
    ///
    /// # Errors
    /// If the value has no JSON form.
    pub fn new(text: String, value: &impl Serialize) -> Result<Report> {
        Ok(Report {
            text,
            json: output::to_json(value)?,
        })
    }

    /// Prints the form that was asked for.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn print(&self, context: &Context) -> Outcome {
        output::print(if context.json { &self.json } else { &self.text })
    }
}

/// A list with the version of its form. A field's meaning never changes within a version; fields may be added.
#[derive(Serialize, Deserialize)]
pub struct Versioned<T> {
    /// The version.
    pub version: u32,
    /// The list, under the name of what it lists.
    #[serde(flatten)]
    pub body: T,
}

impl<T> Versioned<T> {
    /// Version 1, the only one so far.
    pub fn new(body: T) -> Versioned<T> {
        Versioned { version: 1, body }
    }
}

/// Opens the hypervisor only, for commands that work without xenstored.
///
/// # Errors
/// If this is not a control domain.
pub fn xen() -> Result<Xen> {
    #[cfg(test)]
    if let Some(fixture) = super::fixture::current() {
        return Ok(Xen::new(fixture.machine));
    }
    Xen::open().map_err(|e| {
        Failure::new(format!(
            "cannot reach the hypervisor (/dev/xen/privcmd: {e}); run this as root in the control domain"
        ))
    })
}

/// Opens the store only.
///
/// # Errors
/// If xenstored does not run.
pub fn store() -> Result<Client> {
    #[cfg(test)]
    if let Some(fixture) = super::fixture::current() {
        return Ok(Client::fake(&fixture.store));
    }
    domain_arg::store()
}
