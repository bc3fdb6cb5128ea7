//! Who may do what to whom: one table for all hypercalls.
//!
//! There is one control domain. Other domains act on themselves; what names another domain, or the machine, is refused with
//! the numbers that Xen gives.

use xen_abi::Errno;

use crate::domain::Domain;

/// What an operation asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing.
    Anyone,
    /// To be the domain that it acts on, or to control it.
    Target,
    /// To be the control domain.
    Control,
}

/// EPERM if `caller` may not do what `rule` guards to `target` (`None`: the machine, or no domain at all).
pub fn check(rule: Rule, caller: &Domain, target: Option<&Domain>) -> Result<(), Errno> {
    let allowed = match rule {
        Rule::Anyone => true,
        Rule::Target => caller.privileged || target.is_some_and(|t| t.id == caller.id),
        Rule::Control => caller.privileged,
    };
    if allowed { Ok(()) } else { Err(Errno::EPERM) }
}
