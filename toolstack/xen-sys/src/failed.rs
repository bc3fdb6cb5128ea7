//! Errors of hypercalls that say which call it was: `XEN_DOMCTL_max_mem of domain 5: EINVAL, Invalid argument`.

use crate::hypercalls::{Call, Hypercalls};
use std::fmt;
use std::io;
use xen_abi::hypercall::nr;
use xen_abi::layout::Header;
use xen_abi::{domctl, errno, event_channel, flask, hvm, memory, sysctl, version};

/// A hypercall that failed, inside an [`io::Error`]; [`errno_of`] finds its number.
#[derive(Debug)]
pub struct Failed {
    call: String,
    error: io::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.call)?;
        let text = self.error.to_string();
        let Some(number) = self.error.raw_os_error() else {
            return f.write_str(&text);
        };
        // The number says less than its name.
        let text = text.split(" (os error").next().unwrap_or(&text);
        match name(&errno::HEADER, "", number.into()) {
            Some(name) => write!(f, "{}, {text}", name.trim_start_matches("XEN_")),
            None => write!(f, "error {number}, {text}"),
        }
    }
}

impl std::error::Error for Failed {}

/// The system's number of an error, also of one that names its hypercall.
pub fn errno_of(error: &io::Error) -> Option<i32> {
    let failed = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Failed>());
    failed.map_or(error.raw_os_error(), |f| f.error.raw_os_error())
}

/// What takes hypercalls and names those that fail.
pub(crate) struct Named(pub Box<dyn Hypercalls>);

impl Named {
    /// Makes one; returns its value.
    ///
    /// # Errors
    /// The hypervisor's, or the kernel's, as [`Failed`].
    pub fn call(&self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        self.0.call(call).map_err(|error| {
            let call = describe(call);
            io::Error::new(error.kind(), Failed { call, error })
        })
    }
}

/// The call's name in Xen's headers, and the domain that it is about where the envelope names one.
fn describe(call: &Call<'_, '_>) -> String {
    let word = |at: usize| {
        let bytes = call.argument.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let command = word(0).unwrap_or_default();
    let operation = call.operation.unwrap_or_default();
    let (header, number) = match call.number {
        nr::DOMCTL => (domctl::HEADER, command),
        nr::SYSCTL => (sysctl::HEADER, command),
        nr::XSM_OP => (flask::HEADER, command),
        nr::MEMORY_OP => (memory::HEADER, operation),
        nr::XEN_VERSION => (version::HEADER, operation),
        nr::EVENT_CHANNEL_OP => (event_channel::HEADER, operation),
        nr::HVM_OP => (hvm::op::HEADER, operation),
        number => return format!("hypercall {number}, operation {operation}"),
    };
    let text = name(&header, "op::", number.into());
    let text = text.map_or_else(
        || format!("hypercall {}, operation {number}", call.number),
        str::to_owned,
    );
    // An order to make a domain has no number of one yet.
    match word(8).filter(|_| call.number == nr::DOMCTL && command != domctl::op::CREATEDOMAIN) {
        Some(domain) => format!("{text} of domain {}", domain as u16),
        None => text,
    }
}

/// The C name of a value of the constants whose own name begins so.
fn name(header: &Header, prefix: &str, value: i128) -> Option<&'static str> {
    let mut all = header.constants.iter();
    let found = all.find(|c| c.name.starts_with(prefix) && c.value == value);
    found.map(|c| c.c_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;
    use crate::xen::Xen;
    use xen_abi::{DomId, Errno};

    #[test]
    fn an_error_names_its_call_and_keeps_its_number() {
        let (_, calls) = Machine::new(2, 64).share();
        let xen = Xen::new(calls);
        let error = xen.pause(DomId(9)).expect_err("no such domain");
        assert_eq!(errno_of(&error), Some(Errno::ESRCH as i32));
        assert_eq!(
            error.to_string(),
            "XEN_DOMCTL_pausedomain of domain 9: ESRCH, No such process"
        );
    }

    #[test]
    fn other_errors_are_left_alone() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(errno_of(&error), Some(2));
        assert_eq!(errno_of(&io::Error::other("x")), None);
    }
}
