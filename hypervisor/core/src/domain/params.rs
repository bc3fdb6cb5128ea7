//! HVM parameters (`params.h`): who may set or read which, and their values.

use core::sync::atomic::{AtomicBool, Ordering};

use hv_hw::sync::{SpinLock, rank};
use xen_abi::Errno;
use xen_abi::hvm::params::index as param;

/// Number of parameters.
pub const COUNT: usize = 39;
/// `HVM_PARAM_CALLBACK_IRQ`.
pub const CALLBACK_IRQ: u32 = 0;
/// `HVM_PARAM_STORE_PFN`.
pub const STORE_PFN: u32 = 1;
/// `HVM_PARAM_STORE_EVTCHN`.
pub const STORE_EVTCHN: u32 = 2;
/// `HVM_PARAM_ACPI_IOPORTS_LOCATION`.
pub const ACPI_IOPORTS_LOCATION: u32 = 19;
/// `HVM_PARAM_TIMER_MODE`.
pub const TIMER_MODE: u32 = 10;
/// `HVM_PARAM_VIRIDIAN`.
pub const VIRIDIAN: u32 = 9;
/// `HVM_PARAM_ACPI_S_STATE`.
pub const ACPI_S_STATE: u32 = 14;
/// `HVM_PARAM_NR_IOREQ_SERVER_PAGES`.
pub const NR_IOREQ_SERVER_PAGES: u32 = 33;
/// `HVM_PARAM_ALTP2M`.
pub const ALTP2M: u32 = 35;
/// `HVM_PARAM_MCA_CAP`.
pub const MCA_CAP: u32 = 38;
/// `HVM_PARAM_X87_FIP_WIDTH`.
pub const X87_FIP_WIDTH: u32 = 36;
/// `HVM_PARAM_TRIPLE_FAULT_REASON`.
pub const TRIPLE_FAULT_REASON: u32 = 31;

/// Parameters that a domain may set for itself.
const SELF_SET: &[u32] = &[0, 2, 15, 18, 19, 34, 36, 37];
/// Parameters that a domain may read of itself.
const SELF_GET: &[u32] = &[0, 1, 2, 15, 17, 18, 19, 34, 35, 36, 37];
/// Parameters that keep the first value that is not 0.
const ONCE: &[u32] = &[5, 6, 9, 32, 33, 35, 38];
/// Parameters that no longer exist.
const GONE: &[u32] = &[4, 13, 20, 21, 22, 23, 24, 25, 26, 30];

/// The values of one domain.
pub struct HvmParams {
    values: SpinLock<[u64; COUNT], { rank::DEVICE }>,
    /// The domain has asked for its console.
    console_wanted: AtomicBool,
}

impl Default for HvmParams {
    fn default() -> Self {
        let mut values = [0; COUNT];
        values[TRIPLE_FAULT_REASON as usize] = 1;
        HvmParams {
            values: SpinLock::new(values),
            console_wanted: AtomicBool::new(false),
        }
    }
}

fn check(index: u32, allowed_to_self: &[u32], for_self: bool) -> Result<(), Errno> {
    if index as usize >= COUNT || GONE.contains(&index) {
        return Err(Errno::EINVAL);
    }
    if for_self && !allowed_to_self.contains(&index) {
        return Err(Errno::EPERM);
    }
    Ok(())
}

impl HvmParams {
    /// Reads a parameter; `for_self` if the domain asks about itself.
    pub fn get(&self, index: u32, for_self: bool) -> Result<u64, Errno> {
        check(index, SELF_GET, for_self)?;
        Ok(self.values.lock()[index as usize])
    }

    /// Whether this is the first time that somebody asks for the console that a toolstack makes for its guests.
    pub fn wants_console(&self, index: u32) -> bool {
        matches!(index, param::CONSOLE_PFN | param::CONSOLE_EVTCHN)
            && !self.console_wanted.swap(true, Ordering::Relaxed)
    }

    /// Checks that a parameter may be set to `value`. EEXIST: it has another one, and keeps it.
    pub fn check_set(&self, index: u32, value: u64, for_self: bool) -> Result<(), Errno> {
        check(index, SELF_SET, for_self)?;
        let now = self.values.lock()[index as usize];
        if ONCE.contains(&index) && now != 0 && now != value {
            return Err(Errno::EEXIST);
        }
        Ok(())
    }

    /// Sets a parameter that [`HvmParams::check_set`] allowed.
    pub fn set(&self, index: u32, value: u64) {
        if let Some(slot) = self.values.lock().get_mut(index as usize) {
            *slot = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_asked_for_once() {
        let params = HvmParams::default();
        assert!(!params.wants_console(STORE_PFN));
        assert!(params.wants_console(param::CONSOLE_EVTCHN));
        assert!(!params.wants_console(param::CONSOLE_PFN));
    }
}
