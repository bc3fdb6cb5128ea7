//! What the toolstack is told of a domain.

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use xen_abi::domctl::{ArchDomainConfig, GetDomainInfo, cdf, dominf};

use super::{Domain, Life};
use crate::hypervisor::Hypervisor;
use crate::vcpu::runstate::State;
use crate::vcpu::{NO_CPU, Sleep};

/// What `max_vcpu_id` says of a domain without vCPUs.
const NO_VCPU: u32 = u32::MAX;
/// What `shared_info_frame` says while the page is mapped nowhere.
const NO_FRAME: u64 = u64::MAX;

impl Hypervisor {
    /// The answer of `getdomaininfo`.
    pub fn domain_info(&self, d: &Domain) -> GetDomainInfo {
        let handle = *d.handle.lock();
        let mut info = GetDomainInfo {
            domain: d.id,
            flags: dominf::HVM_GUEST,
            tot_pages: d.p2m.pages() as u64,
            outstanding_pages: d.p2m.claimed() as u64,
            max_pages: d.max_pages(),
            max_vcpu_id: NO_VCPU,
            ssidref: d.config.ssidref,
            handle,
            gpaddr_bits: d.p2m.phys_bits(),
            shared_info_frame: d
                .shared_gfn(d.shared_info.mfn())
                .map_or(NO_FRAME, |gfn| gfn.0),
            arch_config: ArchDomainConfig {
                emulation_flags: d.config.emulation,
                misc_flags: d.config.misc,
            },
            ..Default::default()
        };
        let (mut blocked, mut running) = (dominf::BLOCKED, 0);
        let now = self.hw.now_ns();
        for v in d.vcpus() {
            info.cpu_time += v.runstate.time_in(State::Running, now);
            info.max_vcpu_id = v.key.vcpu;
            if v.up.load(Ordering::SeqCst) {
                info.nr_online_vcpus += 1;
                if v.sleep.load(Ordering::SeqCst) == Sleep::Awake as u8 {
                    blocked = 0;
                }
                if v.running_on.load(Ordering::SeqCst) != NO_CPU {
                    running = dominf::RUNNING;
                }
            }
        }
        if info.nr_online_vcpus != 0 {
            info.flags |= blocked | running;
        }
        let mut flag = |on: bool, bit: u32| {
            if on {
                info.flags |= bit;
            }
        };
        flag(d.life() == Life::Dead, dominf::DYING);
        flag(d.shutdown_reason().is_some(), dominf::SHUTDOWN);
        flag(d.is_paused(), dominf::PAUSED);
        flag(d.config.flags & cdf::XS_DOMAIN != 0, dominf::XS_DOMAIN);
        flag(d.config.flags & cdf::HAP != 0, dominf::HAP);
        // As on Xen the field is all ones while there is no reason.
        info.flags |= d.shutdown_code() << dominf::SHUTDOWN_SHIFT;
        info
    }
}
