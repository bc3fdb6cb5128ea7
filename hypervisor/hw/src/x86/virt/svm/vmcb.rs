//! Owned control block and permission maps of a vCPU.

use core::ptr::NonNull;

use spin::Once;
use x86_model::virt::svm::vmcb::{V_INTR_MASKING, Vmcb};
use x86_model::virt::svm::{EFER_SVME, intercept, msrpm};
use x86_model::{Hpa, PAGE_SIZE};

use super::Capabilities;
use crate::machine::VcpuSetup;
use crate::x86::virt::pages::Pages;

/// Bytes of an I/O map: one bit a port, and a third page because a wide access to the last ports looks past the end.
const IOPM_PAGES: usize = 3;
const PAT_AT_RESET: u64 = 0x0007_0406_0007_0406;

/// The maps that all vCPUs share: all ports trapped, and the MSR policy.
struct SharedMaps {
    ports: Pages,
    msrs: Pages,
}

static SHARED: Once<SharedMaps> = Once::new();

fn shared() -> Option<&'static SharedMaps> {
    SHARED
        .try_call_once(|| {
            let ports = Pages::new(IOPM_PAGES, 0xff).ok_or(())?;
            let mut msrs = Pages::new(msrpm::SIZE / PAGE_SIZE as usize, 0xff).ok_or(())?;
            let map = msrs.bytes_mut().as_mut_array().ok_or(())?;
            for msr in msrpm::DIRECT {
                msrpm::allow(map, msr);
            }
            Ok::<_, ()>(SharedMaps { ports, msrs })
        })
        .ok()
}

/// A control block and the vCPU's own port map, if it has one.
pub struct OwnedVmcb {
    page: Pages,
    pointer: NonNull<Vmcb>,
    _ports: Option<Pages>,
}

impl OwnedVmcb {
    /// A block in the state after reset, with all fixed fields set.
    pub fn new(setup: &VcpuSetup, capabilities: &Capabilities) -> Option<Self> {
        let shared = shared()?;
        let page = Pages::new(1, 0)?;
        let ports = match setup.io_bitmap {
            Some(bitmap) => {
                let mut map = Pages::new(IOPM_PAGES, 0xff)?;
                map.bytes_mut()[..bitmap.len()].copy_from_slice(bitmap);
                Some(map)
            }
            None => None,
        };
        let port_map = ports.as_ref().unwrap_or(&shared.ports).hpa();
        let mut this = OwnedVmcb {
            pointer: page.pointer().cast(),
            page,
            _ports: ports,
        };
        let c = &mut this.get_mut().control;
        let [one, two, three] = capabilities.intercepts;
        (c.intercept_1, c.intercept_2, c.intercept_3) = (one, two, three);
        c.intercept_cr = intercept::CR;
        c.intercept_exceptions = intercept::EXCEPTIONS;
        c.iopm_base = port_map.0;
        c.msrpm_base = shared.msrs.hpa().0;
        c.int_ctl = V_INTR_MASKING;
        c.nested_ctl = 1;
        c.nested_cr3 = setup.stage2_root.hpa().0;
        let s = &mut this.get_mut().save;
        s.efer = EFER_SVME;
        s.g_pat = PAT_AT_RESET;
        s.cr0 = 0x10;
        s.dr6 = 0xffff_0ff0;
        s.dr7 = 0x400;
        s.rflags = 2;
        Some(this)
    }

    /// Physical address, for VMRUN.
    #[inline]
    pub fn hpa(&self) -> Hpa {
        self.page.hpa()
    }

    /// The block.
    #[inline]
    pub fn get(&self) -> &Vmcb {
        // SAFETY: the page is ours, aligned, and every bit pattern is a valid `Vmcb`. The CPU only writes it inside
        // `entry::enter`, which takes the vCPU by `&mut`.
        unsafe { self.pointer.as_ref() }
    }

    /// The block.
    #[inline]
    pub fn get_mut(&mut self) -> &mut Vmcb {
        // SAFETY: as in `get`, and `&mut self` makes it the only reference.
        unsafe { self.pointer.as_mut() }
    }
}
