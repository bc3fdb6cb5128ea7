//! A machine and a store for tests of whole commands: [`run`] takes a command line and gives what it printed.

use super::output;
use std::cell::RefCell;
use std::rc::Rc;
use xen_abi::domctl::dominf;
use xen_sys::bits::BitSet;
use xen_sys::fake::{FakeDomain, FakeStore, Machine};
use xen_sys::hypercalls::{Call, Hypercalls};

/// What commands of this thread see.
pub struct Fixture {
    /// The hypervisor's numbers.
    pub machine: Rc<RefCell<Machine>>,
    /// The store.
    pub store: FakeStore,
}

/// One use of it.
pub struct Current {
    /// To be asked.
    pub machine: Box<dyn Hypercalls>,
    /// To be asked.
    pub store: FakeStore,
}

type Calls = Rc<Box<dyn Hypercalls>>;

struct Shared(Calls);

impl Hypercalls for Shared {
    fn call(&self, call: &mut Call<'_, '_>) -> std::io::Result<u64> {
        self.0.call(call)
    }
}

thread_local! {
    static CURRENT: RefCell<Option<(Calls, FakeStore)>> = const { RefCell::new(None) };
}

/// The fixture of this thread.
pub fn current() -> Option<Current> {
    CURRENT.with_borrow(|c| {
        c.as_ref().map(|(machine, store)| Current {
            machine: Box::new(Shared(machine.clone())),
            store: store.clone(),
        })
    })
}

impl Fixture {
    /// Installs a machine and a store for this thread.
    pub fn install(machine: Machine, store: FakeStore) -> Fixture {
        let (machine, calls) = machine.share();
        CURRENT.set(Some((Rc::new(calls), store.clone())));
        Fixture { machine, store }
    }

    /// Four CPUs and 4 GiB; dom0 with four vCPUs, `web` running, `old` shut down after a crash.
    pub fn new() -> Fixture {
        let mut machine = Machine::new(4, 4096);
        machine.physinfo.hw_cap = [1, 0x2020_2020, 3, 4, 5, 6, 7, 0xffff_ffff];
        machine.physinfo.capabilities = 0x10b;
        machine.physinfo.outstanding_pages = 256;
        let mut dom0 = FakeDomain::new(0, 4, 262_144, 4);
        dom0.info.flags |= dominf::RUNNING;
        dom0.info.flags &= !dominf::BLOCKED;
        dom0.info.cpu_time = 12_345_000_000;
        dom0.vcpus[1].0.running = 1;
        dom0.vcpus[1].0.blocked = 0;
        dom0.vcpus[1].0.cpu = 3;
        dom0.vcpus[1].0.cpu_time = 1_250_000_000;
        dom0.vcpus[2].0.online = 0;
        dom0.info.nr_online_vcpus = 3;
        let mut web = FakeDomain::new(3, 2, 65_536, 4);
        web.info.handle = [0x11; 16];
        web.info.outstanding_pages = 256;
        web.info.shr_pages = 512;
        web.info.ssidref = 7;
        web.vcpus[0].1.hard = BitSet::from_iter([1, 2]);
        let mut old = FakeDomain::new(12, 1, 32_768, 4);
        old.info.flags = dominf::HVM_GUEST | dominf::SHUTDOWN | 3 << 16;
        old.info.handle = std::array::from_fn(|n| n as u8);
        for domain in [dom0, web, old] {
            machine.domains.insert(domain.info.domain.0, domain);
        }
        let store = FakeStore::new(&[
            ("/local/domain/0/name", "Domain-0"),
            ("/local/domain/0/domid", "0"),
            ("/local/domain/3/name", "web"),
            (
                "/local/domain/3/vm",
                "/vm/11111111-1111-1111-1111-111111111111",
            ),
            ("/local/domain/12/name", "old"),
            ("/local/pool/0/name", "Pool-0"),
            ("/libxl/3/type", "pvh"),
            ("/libxl/12/type", "pvh"),
        ]);
        Fixture::install(machine, store)
    }
}

/// Runs a command line; its exit code, and what it printed or, if it failed, said.
pub fn run(line: &str) -> (u8, String) {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    output::captured();
    let (_, result) = super::run(&args);
    let printed = output::captured();
    match result {
        Ok(()) => (0, printed),
        Err(failure) => (failure.code, printed + &failure.message),
    }
}

/// The output of a command that works.
#[track_caller]
pub fn printed(line: &str) -> String {
    let (code, text) = run(line);
    assert_eq!(code, 0, "xl {line}: {text}");
    text
}

/// The output of a command as JSON.
#[track_caller]
pub fn json(line: &str) -> serde_json::Value {
    let text = printed(&format!("{line} --json"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("xl {line} --json: {e}\n{text}"))
}
