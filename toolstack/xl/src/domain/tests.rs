//! Golden plans, and execution on a system that fails wherever it can.

use super::execute::{Job, execute};
use super::plan::{self, HostFacts, Step, plan};
use super::system::System;
use super::{json, monitor, teardown};
use crate::build::{Image, Parts, build};
use crate::cfg::cpuid::Edit;
use crate::cfg::{self, DomainConfig};
use crate::cmd::failure::{Failure, Result};
use kernel_image::samples::Builder;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use xen_abi::DomId;
use xen_abi::hvm::save::{HwMtrr, SaveDescriptor, SaveHeader, code};
use xen_sys::fake::FakeStore;
use xen_sys::xen::NewDomain;
use xen_sys::xenstore::Client;
use zerocopy::IntoBytes;

const CONFIG: &str = "
type='pvh'
name='web'
kernel='/boot/k'
memory=32
vcpus=2
maxvcpus=3
cpus=['0','1-2']
cpu_weight=512
uuid='00112233-4455-6677-8899-aabbccddeeff'
disk=['/dev/vg/web,raw,xvda,rw','/srv/data.img,raw,xvdb,ro']
vif=['mac=00:16:3e:00:00:01,bridge=br0']
";

fn config() -> DomainConfig {
    cfg::parse("web.cfg", CONFIG, &[]).unwrap().config
}

fn image<'a>(kernel: &'a [u8], config: &'a DomainConfig) -> Image<'a> {
    let parts = Parts {
        kernel,
        ramdisk: Some(b"ramdisk"),
        cmdline: &config.cmdline,
        memory: config.memory << 10,
        vcpus: config.maxvcpus,
    };
    build(&parts).unwrap()
}

fn facts() -> HostFacts {
    HostFacts {
        nodes: vec![0; 4],
        grant_v2: true,
        pool: 0,
    }
}

/// A system of which nothing is real but the store, which is a fake in this process.
struct Fake {
    client: Client,
    store: FakeStore,
    domains: BTreeSet<u16>,
    running: BTreeSet<u16>,
    files: BTreeMap<String, String>,
    scripts: Vec<String>,
    weight: Option<(Option<u16>, Option<u16>)>,
    /// Operations until one fails; only one does.
    fuse: Option<usize>,
    operations: usize,
}

impl Fake {
    fn new(fuse: Option<usize>) -> Fake {
        let store = FakeStore::new(&[
            ("/local/domain/0/name", "Domain-0"),
            ("/local/pool/0/name", "Pool-0"),
        ]);
        Fake {
            client: Client::fake(&store),
            store,
            domains: BTreeSet::new(),
            running: BTreeSet::new(),
            files: BTreeMap::new(),
            scripts: Vec::new(),
            weight: None,
            fuse,
            operations: 0,
        }
    }

    fn tick(&mut self) -> io::Result<()> {
        self.operations += 1;
        let blown = self.fuse == Some(0);
        self.fuse = self.fuse.and_then(|n| n.checked_sub(1));
        match blown {
            true => Err(io::Error::other("injected")),
            false => Ok(()),
        }
    }

    fn of(&mut self, domid: DomId) -> io::Result<()> {
        assert!(
            self.domains.contains(&domid.0),
            "there is no domain {}",
            domid.0
        );
        self.tick()
    }
}

impl System for Fake {
    fn create(&mut self, _: &NewDomain) -> io::Result<DomId> {
        self.tick()?;
        self.domains.insert(7);
        Ok(DomId(7))
    }
    fn destroy(&mut self, domid: DomId) -> io::Result<()> {
        self.of(domid)?;
        self.domains.remove(&domid.0);
        self.running.remove(&domid.0);
        Ok(())
    }
    fn pause(&mut self, domid: DomId) -> io::Result<()> {
        self.of(domid)
    }
    fn unpause(&mut self, domid: DomId) -> io::Result<()> {
        self.of(domid)?;
        self.running.insert(domid.0);
        Ok(())
    }
    fn vcpus(&mut self, domid: DomId, _: u32) -> io::Result<()> {
        self.of(domid)
    }
    fn pin(
        &mut self,
        domid: DomId,
        _: u32,
        _: Option<&[u32]>,
        _: Option<&[u32]>,
    ) -> io::Result<()> {
        self.of(domid)
    }
    fn max_memory(&mut self, domid: DomId, _: u64) -> io::Result<()> {
        self.of(domid)
    }
    fn port(&mut self, domid: DomId) -> io::Result<u32> {
        self.of(domid)?;
        Ok(self.operations as u32)
    }
    fn param(&mut self, domid: DomId, _: u32, _: u64) -> io::Result<()> {
        self.of(domid)
    }
    fn tsc(&mut self, domid: DomId, _: u32) -> io::Result<()> {
        self.of(domid)
    }
    fn time_offset(&mut self, domid: DomId, _: i64) -> io::Result<()> {
        self.of(domid)
    }
    fn paging(&mut self, domid: DomId, _: u64) -> io::Result<()> {
        self.of(domid)
    }
    fn cpuid(&mut self, domid: DomId, _: &[Edit]) -> Result<()> {
        Ok(self.of(domid)?)
    }
    fn claim(&mut self, domid: DomId, _: u64) -> io::Result<()> {
        self.of(domid)
    }
    fn populate(&mut self, domid: DomId, _: Range<u64>) -> io::Result<()> {
        self.of(domid)
    }
    fn map(&mut self, domid: DomId, _: &[(u64, u64, u32)]) -> io::Result<()> {
        self.of(domid)
    }
    fn write(&mut self, domid: DomId, _: u64, _: &[u8]) -> io::Result<()> {
        self.of(domid)
    }
    fn context(&mut self, domid: DomId) -> io::Result<Vec<u8>> {
        self.of(domid)?;
        let (header, mtrr) = (SaveHeader::default(), HwMtrr::default());
        let mut out = Vec::new();
        for (typecode, body) in [
            (code::HEADER, header.as_bytes()),
            (code::MTRR, mtrr.as_bytes()),
            (code::END, &[]),
        ] {
            let length = body.len() as u32;
            out.extend_from_slice(
                SaveDescriptor {
                    typecode,
                    instance: 0,
                    length,
                }
                .as_bytes(),
            );
            out.extend_from_slice(body);
        }
        Ok(out)
    }
    fn set_context(&mut self, domid: DomId, _: &[u8]) -> io::Result<()> {
        self.of(domid)
    }
    fn grants(&mut self, domid: DomId, entries: &[u8]) -> io::Result<()> {
        assert_eq!(
            entries,
            [
                1, 0, 0, 0, 0xff, 0xef, 0x0f, 0, 1, 0, 0, 0, 0xfc, 0xef, 0x0f, 0
            ]
        );
        self.of(domid)
    }
    fn weight(&mut self, domid: DomId, weight: Option<u16>, cap: Option<u16>) -> io::Result<()> {
        self.of(domid)?;
        self.weight = Some((weight, cap));
        Ok(())
    }
    fn store(&mut self) -> Result<&mut Client> {
        self.tick()?;
        Ok(&mut self.client)
    }
    fn wait(&mut self, path: &str, wanted: &dyn Fn(Option<&str>) -> bool, _: u64) -> Result<bool> {
        self.tick()?;
        // The kernel's back end and devd do their part at once.
        let answer = match path.rsplit('/').next() {
            Some("state") if self.store.get(path).as_deref() == Some("5") => "6",
            Some("state") => "2",
            Some("hotplug-status") => "connected",
            Some("tty") => "/dev/pts/4",
            _ => "7:0",
        };
        self.store.set(path, answer);
        assert!(wanted(Some(answer)), "{path}");
        Ok(true)
    }
    fn script(&mut self, script: &str, action: &str, backend: &str) -> Result<bool> {
        self.tick()?;
        self.scripts.push(format!("{script} {action} {backend}"));
        Ok(true)
    }
    fn block_device(&mut self, path: &str) -> io::Result<Option<(u32, u32)>> {
        self.tick()?;
        Ok(path.starts_with("/dev/").then_some((253, 16)))
    }
    fn save(&mut self, path: &str, text: &str) -> io::Result<()> {
        self.tick()?;
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }
    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.tick()?;
        self.files.remove(path);
        Ok(())
    }
    fn now(&mut self) -> f64 {
        1000.25
    }
}

fn run(sys: &mut Fake) -> std::result::Result<DomId, Failure> {
    let (config, kernel) = (config(), Builder::small().build());
    let job = Job {
        config: &config,
        source: CONFIG,
        progress: &mut |_| {},
    };
    execute(sys, &plan::domain(&config, &facts()), job, || {
        let image = image(&kernel, &config);
        let steps = plan::image(&config, &image, false);
        Ok((image, steps))
    })
}

#[test]
fn a_golden_plan() {
    let (config, kernel) = (config(), Builder::small().build());
    let image = image(&kernel, &config);
    let steps = plan(&config, &facts(), &image, false);
    let text: Vec<String> = steps.iter().map(Step::to_string).collect();
    let expected = "\
create a PVH domain for 3 vCPUs, event channels up to 1023, grant tables up to version 2, in pool 0
write its part of xenstore
make 3 vCPUs
run vCPU 0 only on CPUs [0]
run vCPU 1 only on CPUs [1, 2]
limit its memory to 33792 KiB
make the event channels of xenstore and console
set parameter 10 (TIMER_MODE) to 0x1
choose TSC mode 0
give 3200 KiB for its tables
claim 8202 pages
populate 8192 pages from 0x0 on
populate 2 pages from 0xfc000000 on
populate 8 pages from 0xfeff8000 on
give back what is left of the claim
wait until the kernel is unpacked
tell the memory map
write ACPI root pointer at 0xfffc0, 36 bytes
write kernel at 0x1000000, 4 bytes
write RAM disk at 0x1003000, 7 bytes
write start information at 0x1004000, 209 bytes
write ACPI tables at 0xfc001000, 612 bytes
write identity page directory at 0xfeffe000, 4096 bytes
set parameter 1 (STORE_PFN) to 0xfeffc
set parameter 6 (BUFIOREQ_PFN) to 0xfeffb
set parameter 5 (IOREQ_PFN) to 0xfeffd
set parameter 17 (CONSOLE_PFN) to 0xfefff
set parameter 27 (PAGING_RING_PFN) to 0xfeff8
set parameter 28 (MONITOR_RING_PFN) to 0xfeff9
set parameter 29 (SHARING_RING_PFN) to 0xfeffa
set parameter 12 (IDENT_PT) to 0xfeffe000
set parameter 18 (CONSOLE_EVTCHN) to the port of the console
set parameter 2 (STORE_EVTCHN) to the port of xenstore
set the state in which its vCPUs start
grant the pages of console and xenstore
set its share of CPU time: weight Some(512), cap None
complete its part of xenstore and introduce it
add disk xvda
add disk xvdb
add the console
add network interface 0
keep the config
wait for its terminal
let it run";
    assert_eq!(text.join("\n"), expected);
}

#[test]
fn what_the_processor_may_not_do_is_said_when_the_domain_is_made() {
    use xen_abi::domctl::misc::{NO_ASSISTED_X2APIC, NO_ASSISTED_XAPIC};
    let kernel = Builder::small().build();
    for (xapic, x2apic, expected) in [
        (true, true, 0),
        (false, true, NO_ASSISTED_XAPIC),
        (true, false, NO_ASSISTED_X2APIC),
    ] {
        let mut config = config();
        (config.assisted_xapic, config.assisted_x2apic) = (xapic, x2apic);
        let image = image(&kernel, &config);
        let steps = plan(&config, &facts(), &image, false);
        let Some(Step::Create(new)) = steps.first() else {
            panic!("{:?}", steps.first());
        };
        assert_eq!(new.misc, expected);
    }
}

#[test]
fn a_domain_has_pirqs_if_its_config_says_so() {
    use xen_abi::domctl::emu::{LAPIC, USE_PIRQ};
    let kernel = Builder::small().build();
    for (pirqs, expected) in [(false, LAPIC), (true, LAPIC | USE_PIRQ)] {
        let config = DomainConfig { pirqs, ..config() };
        let image = image(&kernel, &config);
        let steps = plan(&config, &facts(), &image, false);
        let Some(Step::Create(new)) = steps.first() else {
            panic!("{:?}", steps.first());
        };
        assert_eq!(new.emulation, expected);
    }
}

#[test]
fn a_domain_is_made_as_libxl_makes_it() {
    let mut sys = Fake::new(None);
    assert_eq!(run(&mut sys).unwrap(), DomId(7));
    assert!(sys.running.contains(&7));
    assert_eq!(sys.weight, Some((Some(512), None)));
    let get = |path: &str| sys.store.get(path).unwrap_or_else(|| panic!("{path}"));
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    for (path, value) in [
        ("/local/domain/7/name", "web"),
        (
            "/local/domain/7/vm",
            "/vm/00112233-4455-6677-8899-aabbccddeeff",
        ),
        ("/local/domain/7/domid", "7"),
        ("/local/domain/7/memory/target", "32768"),
        ("/local/domain/7/cpu/1/availability", "online"),
        ("/local/domain/7/cpu/2/availability", "offline"),
        ("/local/domain/7/store/ring-ref", "1044476"),
        ("/local/domain/7/console/ring-ref", "1044479"),
        ("/local/domain/7/console/tty", "/dev/pts/4"),
        (
            "/local/domain/7/control/platform-feature-xs_reset_watches",
            "1",
        ),
        (
            "/local/domain/7/device/vbd/51712/backend",
            "/local/domain/0/backend/vbd/7/51712",
        ),
        (
            "/local/domain/0/backend/vbd/7/51712/physical-device",
            "fd:10",
        ),
        ("/local/domain/0/backend/vbd/7/51712/mode", "w"),
        (
            "/local/domain/0/backend/vbd/7/51728/params",
            "/srv/data.img",
        ),
        ("/local/domain/0/backend/vif/7/0/bridge", "br0"),
        ("/local/domain/7/device/vif/0/mac", "00:16:3e:00:00:01"),
        ("/libxl/7/type", "pvh"),
        (
            "/libxl/7/device/vbd/51728/backend",
            "/local/domain/0/backend/vbd/7/51728",
        ),
    ] {
        assert_eq!(get(path), value, "{path}");
    }
    for (path, perms) in [
        ("/local/domain/7", "n0,r7"),
        ("/local/domain/7/control/shutdown", "n7"),
        ("/local/domain/7/device/vbd/51712", "n7,r0"),
        ("/local/domain/0/backend/vbd/7/51712", "n0,r7"),
        ("/libxl/7", "n0"),
        ("/local/domain/7/console/port", "n0,r7"),
    ] {
        assert_eq!(sys.store.perms(path).as_deref(), Some(perms), "{path}");
    }
    // A block device is connected without help.
    assert_eq!(
        sys.scripts,
        [
            "/etc/xen/scripts/block add backend/vbd/7/51728",
            "/etc/xen/scripts/vif-bridge online backend/vif/7/0"
        ]
    );
    assert_eq!(sys.files[&teardown::userdata(DomId(7), uuid, "xl")], CONFIG);
    let kept: serde_json::Value =
        serde_json::from_str(&sys.files[&teardown::userdata(DomId(7), uuid, "libxl-json")])
            .unwrap();
    assert_eq!(kept["c_info"]["name"], "web");
    assert_eq!(kept["disks"][1]["readwrite"], 0);
    assert_eq!(kept["on_reboot"], "restart");

    teardown::destroy(&mut sys, DomId(7), uuid).unwrap();
    nothing_left(&sys, "destroy");
}

#[track_caller]
fn nothing_left(sys: &Fake, when: &str) {
    let clean = Fake::new(None);
    assert!(
        sys.domains.is_empty() && sys.running.is_empty(),
        "{when}: a domain is left"
    );
    assert_eq!(sys.files, clean.files, "{when}: a file is left");
    let left: Vec<String> = sys
        .store
        .paths()
        .into_iter()
        .filter(|p| p.contains("/7") || p.contains("/vm/"))
        .collect();
    assert_eq!(left, [] as [String; 0], "{when}: nodes are left");
}

/// The point of the undo stack: whichever operation fails, nothing stays behind and the failure is told.
#[test]
fn a_failure_anywhere_leaves_nothing_behind() {
    let mut whole = Fake::new(None);
    run(&mut whole).unwrap();
    assert!(whole.operations > 50, "{}", whole.operations);
    for at in 0..whole.operations {
        let mut sys = Fake::new(Some(at));
        let failure = run(&mut sys).expect_err("the fuse has blown");
        assert_eq!(failure.code, 3);
        assert!(
            failure.message.starts_with("cannot ") && failure.message.ends_with("injected"),
            "{failure}"
        );
        nothing_left(&sys, &format!("operation {at}, {failure}"));
    }
}

/// The same with requests of the store, which fail in the middle of a transaction too.
#[test]
fn a_failing_store_leaves_nothing_behind() {
    let mut failed = 0;
    for at in 0.. {
        let mut sys = Fake::new(None);
        sys.store.fail_after(at);
        match run(&mut sys) {
            Ok(_) => break,
            Err(failure) => {
                failed += 1;
                nothing_left(&sys, &format!("request {at}, {failure}"));
            }
        }
    }
    assert!(failed > 100, "{failed}");
}

#[test]
fn reasons_and_actions() {
    let config = cfg::parse("x", &format!("{CONFIG}on_crash='preserve'\n"), &[])
        .unwrap()
        .config;
    let names: Vec<&str> = (0..=5)
        .map(|r| monitor::action(&config.actions, r).name())
        .collect();
    assert_eq!(
        names,
        [
            "destroy",
            "restart",
            "preserve",
            "preserve",
            "destroy",
            "soft-reset"
        ]
    );
}

#[test]
fn a_golden_config_in_libxl_s_form() {
    let text = json::text(&config()).unwrap();
    assert!(text.starts_with("{\n    \"c_info\": {\n"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "c_info": { "type": "pvh", "name": "web", "uuid": "00112233-4455-6677-8899-aabbccddeeff" },
        "b_info": {
            "max_vcpus": 3, "avail_vcpus": [0, 1], "max_memkb": 32768, "target_memkb": 32768,
            "sched_params": { "weight": 512 }, "event_channels": 1023, "kernel": "/boot/k",
            "type.pvh": {}, "arch_arm": {}, "arch_x86": {},
        },
        "disks": [
            { "pdev_path": "/dev/vg/web", "vdev": "xvda", "format": "raw", "readwrite": 1 },
            { "pdev_path": "/srv/data.img", "vdev": "xvdb", "format": "raw", "readwrite": 0 },
        ],
        "nics": [{ "devid": 0, "mac": "00:16:3e:00:00:01", "bridge": "br0" }],
        "on_poweroff": "destroy", "on_reboot": "restart", "on_watchdog": "destroy", "on_crash": "destroy",
        "on_soft_reset": "soft_reset",
    });
    assert_eq!(value, expected);
}
