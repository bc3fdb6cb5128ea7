//! A hypervisor made of numbers, for tests: it takes the calls that [`crate::xen`] makes, in one version of the interfaces,
//! and keeps what they change.

mod domctl;
mod files;
mod store;
mod sysctl;

pub use store::{FakeStore, Responder};

use crate::hypercalls::{Call, Hypercalls};
use crate::xen::{Affinity, PoolParameters, Version, Weight, error};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use xen_abi::domctl::{GetDomainInfo, GetVcpuInfo, scheduler};
use xen_abi::flask::{self, FlaskOp, SidContext};
use xen_abi::sysctl::{CpuTopo, MemInfo, PhysInfo};
use xen_abi::version::{CompileInfo, op};
use xen_abi::{DomId, Errno, hypercall::nr};
use zerocopy::{FromBytes, IntoBytes};

use crate::bits::BitSet;

/// The machine. Its fields are what the questions are answered with.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The one version of `domctl` that is taken.
    pub domctl: u32,
    /// The one version of `sysctl` that is taken.
    pub sysctl: u32,
    /// Processors and memory.
    pub physinfo: PhysInfo,
    /// By CPU number.
    pub topology: Vec<CpuTopo>,
    /// By node number.
    pub nodes: Vec<MemInfo>,
    /// Between nodes, row by row.
    pub distances: Vec<u32>,
    /// By number.
    pub domains: BTreeMap<u16, FakeDomain>,
    /// The log.
    pub console: Vec<u8>,
    /// What it says about itself.
    pub version: Version,
    /// Scheduler of the one pool.
    pub scheduler: u32,
    /// Its parameters.
    pub parameters: PoolParameters,
    /// Whether FLASK enforces; `None` without FLASK.
    pub enforcing: Option<bool>,
    /// Shared and freed pages; `None`: the counters do not exist.
    pub sharing: Option<(u32, u32)>,
    /// The hypervisor's file system: texts by path.
    pub files: BTreeMap<String, String>,
    /// Orders that were given and have no other effect here.
    pub log: Vec<String>,
}

/// A domain of the machine.
#[derive(Clone, Debug)]
pub struct FakeDomain {
    /// As the hypervisor tells it.
    pub info: GetDomainInfo,
    /// By number.
    pub vcpus: Vec<(GetVcpuInfo, Affinity)>,
    /// Its share.
    pub share: Weight,
    /// Frames with memory behind them.
    pub frames: Vec<u64>,
}

impl FakeDomain {
    /// A domain with this many vCPUs, all online and blocked on CPU 0, of this many pages.
    pub fn new(id: u16, vcpus: u32, pages: u64, cpus: u32) -> FakeDomain {
        let vcpu = |vcpu| {
            let info = GetVcpuInfo {
                vcpu,
                online: 1,
                blocked: 1,
                ..GetVcpuInfo::default()
            };
            let all = BitSet::full(cpus);
            (
                info,
                Affinity {
                    hard: all.clone(),
                    soft: all,
                },
            )
        };
        FakeDomain {
            info: GetDomainInfo {
                domain: DomId(id),
                tot_pages: pages,
                max_pages: pages,
                nr_online_vcpus: vcpus,
                max_vcpu_id: vcpus.wrapping_sub(1),
                flags: xen_abi::domctl::dominf::BLOCKED | xen_abi::domctl::dominf::HVM_GUEST,
                ..GetDomainInfo::default()
            },
            vcpus: (0..vcpus).map(vcpu).collect(),
            share: Weight {
                weight: 256,
                cap: 0,
            },
            frames: Vec::new(),
        }
    }
}

impl Machine {
    /// One node with this many CPUs and this many MiB, a quarter of them free, and no domain.
    pub fn new(cpus: u32, mib: u64) -> Machine {
        let pages = mib << 8;
        Machine {
            domctl: 0x15,
            sysctl: 0x15,
            physinfo: PhysInfo {
                threads_per_core: 1,
                cores_per_socket: cpus,
                nr_cpus: cpus,
                max_cpu_id: cpus.saturating_sub(1),
                nr_nodes: 1,
                cpu_khz: 2_400_000,
                total_pages: pages,
                free_pages: pages / 4,
                ..PhysInfo::default()
            },
            topology: (0..cpus)
                .map(|core| CpuTopo {
                    core,
                    ..CpuTopo::default()
                })
                .collect(),
            nodes: vec![MemInfo {
                memsize: mib << 20,
                memfree: mib << 18,
            }],
            distances: vec![10],
            domains: BTreeMap::new(),
            console: Vec::new(),
            version: Version {
                major: 4,
                minor: 17,
                page_size: 4096,
                ..Version::default()
            },
            scheduler: scheduler::CREDIT2,
            parameters: PoolParameters::Credit2 { ratelimit_us: 1000 },
            enforcing: None,
            sharing: None,
            files: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// As something that takes calls; the machine is seen and changed through the other handle.
    pub fn share(self) -> (Rc<RefCell<Machine>>, Box<dyn Hypercalls>) {
        let machine = Rc::new(RefCell::new(self));
        (machine.clone(), Box::new(Fake(machine)))
    }

    fn cpus(&self) -> u32 {
        self.physinfo.max_cpu_id + 1
    }

    fn xen_version(&self, operation: u32, argument: &mut [u8]) -> io::Result<u64> {
        let v = &self.version;
        let mut compile = CompileInfo::default();
        set_text(&mut compile.compiler, &v.compiler);
        set_text(&mut compile.compile_by, &v.built_by);
        set_text(&mut compile.compile_domain, &v.built_domain);
        set_text(&mut compile.compile_date, &v.built_date);
        match operation {
            op::VERSION => return Ok(u64::from(v.major << 16 | v.minor)),
            op::PAGESIZE if argument.is_empty() => return Ok(v.page_size),
            op::EXTRAVERSION => set_text(argument, &v.extra),
            op::CAPABILITIES => set_text(argument, &v.capabilities),
            op::CHANGESET => set_text(argument, &v.changeset),
            op::COMMANDLINE => set_text(argument, &v.command_line),
            op::COMPILE_INFO => argument.copy_from_slice(compile.as_bytes()),
            op::PLATFORM_PARAMETERS => argument.copy_from_slice(v.virt_start.as_bytes()),
            op::BUILD_ID if v.build_id.is_empty() => return Err(error(Errno::ENODATA)),
            op::BUILD_ID => {
                argument[4..4 + v.build_id.len()].copy_from_slice(&v.build_id);
                return Ok(v.build_id.len() as u64);
            }
            _ => return Err(error(Errno::ENOSYS)),
        }
        Ok(0)
    }

    fn flask(&self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let enforcing = self.enforcing.ok_or_else(|| error(Errno::ENOSYS))?;
        let argument: FlaskOp = read(call.argument)?;
        match argument.cmd {
            flask::op::GETENFORCE => Ok(enforcing.into()),
            flask::op::SID_TO_CONTEXT => {
                let own: SidContext = read(&argument.u)?;
                let label = format!("system_u:system_r:label_{}", own.sid);
                set_text(slot(call, 16)?, &label);
                Ok(0)
            }
            _ => Err(error(Errno::ENOSYS)),
        }
    }
}

/// The machine as something that takes calls.
struct Fake(Rc<RefCell<Machine>>);

impl Hypercalls for Fake {
    fn call(&self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let mut machine = self.0.borrow_mut();
        match call.number {
            nr::DOMCTL => machine.domctl(call),
            nr::SYSCTL => machine.sysctl(call),
            nr::XSM_OP => machine.flask(call),
            nr::HYPFS_OP => machine.hypfs(call),
            nr::XEN_VERSION => {
                let operation = call.operation.ok_or_else(|| error(Errno::EINVAL))?;
                machine.xen_version(operation, call.argument)
            }
            nr::MEMORY_OP if call.operation == Some(xen_abi::memory::op::SET_POD_TARGET) => {
                let own: xen_abi::memory::PodTarget = read(call.argument)?;
                let (pages, domid) = (own.target_pages, own.domid);
                machine.log.push(format!("pod target {pages} of {domid}"));
                Ok(0)
            }
            nr::MEMORY_OP if call.operation == Some(xen_abi::memory::op::MAXIMUM_GPFN) => {
                let own: xen_abi::memory::MemoryDomain = read(call.argument)?;
                let domain = machine.domains.get(&own.domid.0);
                let last = domain.and_then(|d| d.frames.last().copied());
                last.ok_or_else(|| error(Errno::ESRCH))
            }
            nr::MEMORY_OP => {
                let (freed, shared) = machine.sharing.ok_or_else(|| error(Errno::ENOSYS))?;
                let freed_asked =
                    call.operation == Some(xen_abi::memory::op::GET_SHARING_FREED_PAGES);
                Ok(if freed_asked { freed } else { shared }.into())
            }
            _ => Err(error(Errno::ENOSYS)),
        }
    }
}

/// A structure at the start of these bytes.
fn read<T: FromBytes>(bytes: &[u8]) -> io::Result<T> {
    let (value, _) = T::read_from_prefix(bytes).map_err(|_| error(Errno::EFAULT))?;
    Ok(value)
}

/// The memory that a field of the argument points to.
fn slot<'a>(call: &'a mut Call<'_, '_>, field: usize) -> io::Result<&'a mut [u8]> {
    let found = call.slots.iter_mut().find(|s| s.field == field);
    found
        .map(|s| &mut *s.bytes)
        .ok_or_else(|| error(Errno::EFAULT))
}

fn set_text(to: &mut [u8], text: &str) {
    to.fill(0);
    let length = text.len().min(to.len().saturating_sub(1));
    to[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// Copies a set into a caller's bitmap.
fn set_bits(to: &mut [u8], set: &BitSet) {
    to.fill(0);
    for n in set.iter() {
        if let Some(byte) = to.get_mut(n as usize / 8) {
            *byte |= 1 << (n % 8);
        }
    }
}
