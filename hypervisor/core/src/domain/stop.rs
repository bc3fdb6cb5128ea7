//! How domains end. The end of the control domain is the end of the machine, by the reason it gave (as on Xen).

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::machine::PowerAction;

use super::{Domain, ShutdownReason};
use crate::hypervisor::Hypervisor;

impl Hypervisor {
    /// The domain shut down or crashed: its vCPUs stop. For the control domain this ends the machine and does not return.
    pub fn domain_stopped(&self, domain: &Domain, reason: ShutdownReason) {
        if !domain.stop(reason) {
            return;
        }
        for v in domain.vcpus() {
            v.pause.fetch_add(1, Ordering::SeqCst);
            self.prod(v);
        }
        if domain.privileged {
            self.machine_ends(domain, reason);
        }
        hv_hw::guest_log!(Info, "{} stopped: {reason:?}", domain.id);
        self.raise_global_virq(xen_abi::virq::nr::DOM_EXC);
    }

    fn machine_ends(&self, domain: &Domain, reason: ShutdownReason) -> ! {
        let action = match reason {
            ShutdownReason::PowerOff => {
                hv_hw::info!("Hardware Dom{} halted: halting machine", domain.id.0);
                PowerAction::Halt
            }
            ShutdownReason::Crash => {
                hv_hw::error!(
                    "Hardware Dom{} crashed: {}",
                    domain.id.0,
                    self.reboot_note()
                );
                self.reboot_or_halt()
            }
            _ => {
                hv_hw::info!(
                    "Hardware Dom{} shutdown: {}",
                    domain.id.0,
                    self.reboot_note()
                );
                self.reboot_or_halt()
            }
        };
        self.hw.power(action)
    }

    fn reboot_note(&self) -> &'static str {
        if self.noreboot {
            "'noreboot' set - not rebooting."
        } else {
            "rebooting machine"
        }
    }

    fn reboot_or_halt(&self) -> PowerAction {
        if self.noreboot {
            PowerAction::Halt
        } else {
            PowerAction::Reboot
        }
    }
}
