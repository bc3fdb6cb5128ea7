//! How domains end. The end of the control domain is the end of the machine, by the reason it gave (as on Xen).

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::machine::PowerAction;

use super::{Domain, ShutdownReason};
use crate::evtchn::{self, Sent};
use crate::hypervisor::Hypervisor;

impl Hypervisor {
    /// The domain shut down or crashed: its vCPUs stop. For the control domain this ends the machine and does not return.
    pub fn domain_stopped(&self, domain: &Domain, reason: ShutdownReason) {
        if !domain.stop(reason) {
            return;
        }
        // The domain may have announced another reason before.
        let reason = domain.shutdown_reason().unwrap_or(reason);
        for v in domain.vcpus() {
            v.pause.fetch_add(1, Ordering::SeqCst);
            self.prod(v);
        }
        if domain.privileged {
            self.machine_ends(domain, reason);
        }
        hv_hw::guest_log!(Info, "{} stopped: {reason:?}", domain.id);
        let port = domain.suspend_port.load(Ordering::Relaxed);
        if reason == ShutdownReason::Suspend && port != 0 {
            self.tell_suspended(domain, port);
        } else {
            self.raise_global_virq(xen_abi::virq::nr::DOM_EXC);
        }
    }

    /// The toolstack waits on a port of its own for a domain to suspend itself.
    fn tell_suspended(&self, domain: &Domain, port: u32) {
        match evtchn::send(domain, port, |id| self.domain(id)) {
            Ok(Sent::Peer(peer, notify)) => self.notified(&peer, notify),
            Ok(Sent::Local(notify)) => self.notified(domain, notify),
            Err(_) => self.raise_global_virq(xen_abi::virq::nr::DOM_EXC),
        }
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
