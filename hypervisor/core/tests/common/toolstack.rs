//! The calls of a toolstack, made by vCPU 0 of the control domain.

use std::sync::Arc;

use hv_core::domain::Domain;
use xen_abi::DomId;
use xen_abi::domctl::{
    ArchDomainConfig, CreateDomain, Domctl, GetDomainInfo, MaxMem, MaxVcpus, cdf, emu, op, version,
};
use xen_abi::memory::MemoryReservation;
use xen_abi::sysctl::Sysctl;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::System;

/// Where the arguments stand; lists stand one page further.
pub const ARG: u64 = 0x3000;
/// Lists that arguments point to: two pages.
pub const LIST: u64 = 0x4000;
/// What toolstack 4.17 speaks.
pub const VERSION: u32 = version::XEN_4_17;

pub fn bytes<T: IntoBytes + Immutable>(value: &T) -> [u8; 128] {
    let mut u = [0; 128];
    let b = value.as_bytes();
    u[..b.len()].copy_from_slice(b);
    u
}

pub fn from<T: FromBytes>(u: &[u8; 128]) -> T {
    T::read_from_prefix(u).unwrap().0
}

/// What PVH domains are created with.
pub fn pvh(vcpus: u32) -> CreateDomain {
    CreateDomain {
        handle: [9; 16],
        flags: cdf::HVM | cdf::HAP,
        max_vcpus: vcpus,
        max_evtchn_port: 1023,
        max_grant_frames: -1,
        max_maptrack_frames: -1,
        grant_opts: 1,
        arch: ArchDomainConfig {
            emulation_flags: emu::LAPIC,
            misc_flags: 0,
        },
        ..Default::default()
    }
}

impl System {
    /// A domctl by any domain; the answer is what is in memory afterwards.
    pub fn domctl_by(
        &self,
        caller: &Arc<Domain>,
        interface: u32,
        cmd: u32,
        domain: u16,
        u: [u8; 128],
    ) -> (i64, Domctl) {
        let arg = Domctl {
            cmd,
            interface_version: interface,
            domain: DomId(domain),
            _pad: [0; 3],
            u,
        };
        let p2m = &caller.p2m;
        hv_core::guest::access::write_phys(p2m, x86_model::Gpa(ARG), arg.as_bytes()).unwrap();
        let ret = self.call_from(caller, 0, 36, [ARG, 0, 0, 0, 0]).0;
        (
            ret,
            Domctl::read_from_bytes(&self.peek::<144>(ARG)).unwrap(),
        )
    }

    /// A domctl of the control domain.
    pub fn domctl<T: IntoBytes + Immutable>(&self, cmd: u32, domain: u16, a: &T) -> (i64, Domctl) {
        self.domctl_by(&self.dom, VERSION, cmd, domain, bytes(a))
    }

    /// A domctl without contents.
    pub fn plain(&self, cmd: u32, domain: u16) -> i64 {
        self.domctl(cmd, domain, &0u64).0
    }

    /// A sysctl of the control domain; the answer is what is in memory afterwards.
    pub fn sysctl<T: IntoBytes + Immutable>(&self, cmd: u32, a: &T) -> (i64, Sysctl) {
        self.poke(
            ARG,
            Sysctl {
                cmd,
                interface_version: 0x15,
                u: bytes(a),
            }
            .as_bytes(),
        );
        let ret = self.call(0, 35, [ARG, 0, 0, 0, 0]);
        (
            ret,
            Sysctl::read_from_bytes(&self.peek::<136>(ARG)).unwrap(),
        )
    }

    /// Creates a domain; its identifier.
    pub fn create(&self, config: &CreateDomain) -> u16 {
        let (ret, answer) = self.domctl(op::CREATEDOMAIN, 0, config);
        assert_eq!(ret, 0);
        answer.domain.0
    }

    /// A domain with vCPUs and room for `pages` pages.
    pub fn create_ready(&self, vcpus: u32, pages: u64) -> Arc<Domain> {
        let id = self.create(&pvh(vcpus));
        assert_eq!(
            self.domctl(op::MAX_VCPUS, id, &MaxVcpus { max: vcpus }).0,
            0
        );
        let room = MaxMem {
            max_memkb: pages * 4,
        };
        assert_eq!(self.domctl(op::MAX_MEM, id, &room).0, 0);
        self.hv.domain(DomId(id)).unwrap()
    }

    /// `getdomaininfo`.
    pub fn info(&self, domain: u16) -> GetDomainInfo {
        let (ret, answer) = self.domctl(op::GETDOMAININFO, domain, &0u64);
        assert_eq!(ret, 0);
        from(&answer.u)
    }

    /// Populates extents of an order; how many were done.
    pub fn populate(&self, domain: u16, order: u32, firsts: &[u64]) -> i64 {
        self.reserve(6, domain, order, firsts)
    }

    /// A reservation call on extents of an order; how many were done.
    pub fn reserve(&self, sub: u64, domain: u16, order: u32, firsts: &[u64]) -> i64 {
        for (i, first) in (0..).zip(firsts) {
            self.poke(LIST + i * 8, &first.to_le_bytes());
        }
        let arg = MemoryReservation {
            extent_start: LIST,
            nr_extents: firsts.len() as u64,
            extent_order: order,
            domid: DomId(domain),
            ..Default::default()
        };
        self.poke(ARG, arg.as_bytes());
        self.call(0, 12, [sub, ARG, 0, 0, 0])
    }
}
