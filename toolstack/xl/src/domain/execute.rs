//! Carries a plan out. What each step makes is noted before it is made; on an error the notes are undone backwards, so that a
//! create that failed leaves nothing behind.

use super::plan::{Later, Step};
use super::system::System;
use super::{json, nodes, teardown};
use crate::build::{Image, context, special};
use crate::cfg::domain::{DomainConfig, uuid_text};
use crate::cmd::failure::{Failure, Outcome, Result};
use crate::device::{self, Device, Node};
use std::io;
use xen_abi::DomId;
use xen_abi::Errno;
use xen_abi::grant_table::GrantEntryV1;
use xen_sys::xenstore::{Client, Transaction};
use zerocopy::IntoBytes;

/// What is to be built.
pub struct Job<'a> {
    /// With identity and hardware addresses chosen.
    pub config: &'a DomainConfig,
    /// The config as text, kept for restarts.
    pub source: &'a str,
    /// Shown before each step.
    pub progress: &'a mut dyn FnMut(&Step),
}

/// Something to be taken back.
enum Undo {
    Domain,
    Nodes,
    Device(Device),
    Files,
}

/// State between steps.
struct Run<'a, S: System> {
    sys: &'a mut S,
    config: &'a DomainConfig,
    image: Option<Image<'a>>,
    source: &'a str,
    uuid: [u8; 16],
    domid: DomId,
    store_port: u32,
    console_port: u32,
    undo: Vec<Undo>,
}

/// libxl's numbers for failures, which `xl create` exits with.
const ERROR_FAIL: u8 = 3;

/// Seconds for a kernel's back end to appear, and to be made ready. Xen's toolstack gives the first 10, too few where dom0 has to
/// share its processor.
const APPEAR: u64 = 40;
const READY: u64 = 40;

/// Makes a domain; returns its number. `image` gives guest memory and the rest of the plan when the first part is done.
///
/// # Errors
/// What went wrong in which step, after everything is undone. What could not be undone is named as well.
pub fn execute<'a>(
    sys: &mut impl System,
    plan: &[Step],
    job: Job<'a>,
    image: impl FnOnce() -> Result<(Image<'a>, Vec<Step>)>,
) -> Result<DomId> {
    let mut run = Run {
        sys,
        config: job.config,
        image: None,
        source: job.source,
        uuid: job.config.uuid.unwrap_or_default(),
        domid: DomId(0),
        store_port: 0,
        console_port: 0,
        undo: Vec::new(),
    };
    let result = run
        .steps(plan, job.progress)
        .and_then(|()| {
            let (image, steps) = image()?;
            run.image = Some(image);
            Ok(steps)
        })
        .and_then(|rest| run.steps(&rest, job.progress));
    if let Err(mut failure) = result {
        failure.code = ERROR_FAIL;
        for problem in run.take_back() {
            failure.message += &format!("; and the undo failed: {}", problem.message);
        }
        return Err(failure);
    }
    Ok(run.domid)
}

fn say(result: io::Result<()>) -> Outcome {
    result.map_err(|e| {
        Failure::new(match xen_sys::errno_of(&e) {
            Some(n) if n == Errno::ENOMEM as i32 => {
                "not enough free memory; 'xl info' says how much there is, 'xl list' who has it"
                    .into()
            }
            _ => e.to_string(),
        })
    })
}

impl<'a, S: System> Run<'a, S> {
    fn steps(&mut self, steps: &[Step], progress: &mut dyn FnMut(&Step)) -> Outcome {
        for step in steps {
            progress(step);
            self.step(step)
                .map_err(|failure| failure.context(format!("cannot {step}")))?;
        }
        Ok(())
    }

    fn image(&self) -> Result<&Image<'a>> {
        self.image
            .as_ref()
            .ok_or_else(|| Failure::new("there is no image yet"))
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let domid = self.domid;
        match step {
            Step::Create(new) => {
                self.domid = self.sys.create(new).map_err(|e| say(Err(e)).unwrap_err())?;
                self.undo.push(Undo::Domain);
                Ok(())
            }
            Step::Skeleton => {
                self.undo.push(Undo::Nodes);
                let started = self.sys.now();
                let nodes = nodes::skeleton(self.config, self.uuid, domid, started);
                write_nodes(self.sys.store()?, &nodes)
            }
            Step::Vcpus(count) => say(self.sys.vcpus(domid, *count)),
            Step::Pin { vcpu, hard, soft } => {
                say(self.sys.pin(domid, *vcpu, hard.as_deref(), soft.as_deref()))
            }
            Step::MaxMemory(kib) => say(self.sys.max_memory(domid, *kib)),
            Step::Ports => {
                self.store_port = self.sys.port(domid)?;
                self.console_port = self.sys.port(domid)?;
                Ok(())
            }
            Step::Param(_, index, value) => {
                let value = match value {
                    Later::Is(value) => *value,
                    Later::StorePort => self.store_port.into(),
                    Later::ConsolePort => self.console_port.into(),
                };
                say(self.sys.param(domid, *index, value))
            }
            Step::Tsc(mode) => say(self.sys.tsc(domid, *mode)),
            Step::TimeOffset(seconds) => say(self.sys.time_offset(domid, *seconds)),
            Step::Paging(bytes) => say(self.sys.paging(domid, *bytes)),
            Step::Cpuid(edits) => self.sys.cpuid(domid, edits),
            Step::Claim(pages) => say(self.sys.claim(domid, *pages)),
            Step::Populate(frames) => say(self.sys.populate(domid, frames.clone())),
            // What follows comes with the image.
            Step::Unpacked => Ok(()),
            Step::Map => {
                let map: Vec<(u64, u64, u32)> = self
                    .image()?
                    .map
                    .iter()
                    .map(|e| (e.start, e.len, e.kind))
                    .collect();
                say(self.sys.map(domid, &map))
            }
            Step::Write(number, _) => {
                let image = self.image.as_ref();
                let Some(chunk) = image.and_then(|i| i.chunks.get(*number)) else {
                    return Err(Failure::new("there is no such part of an image"));
                };
                say(self.sys.write(domid, chunk.at, &chunk.bytes))
            }
            Step::Start => self.start(),
            Step::Grants => say(self.sys.grants(domid, grants().as_bytes())),
            Step::Weight(weight, cap) => say(self.sys.weight(domid, *weight, *cap)),
            Step::Introduce => {
                let nodes = nodes::built(self.config, domid, self.store_port);
                let port = self.store_port;
                let store = self.sys.store()?;
                write_nodes(store, &nodes)?;
                Ok(store.introduce(domid, special::XENSTORE, port)?)
            }
            Step::Console => {
                let nodes = device::console::nodes(domid, self.console_port);
                write_nodes(self.sys.store()?, &nodes)
            }
            Step::Disk(number, _) => self.disk(*number),
            Step::Vif(number) => self.vif(*number),
            Step::Keep => self.keep(),
            Step::Terminal => self.terminal(),
            Step::Unpause => say(self.sys.unpause(domid)),
        }
    }

    /// Memory types of all vCPUs, then the registers of the first, which brings it up.
    fn start(&mut self) -> Outcome {
        let state = self.sys.context(self.domid)?;
        let (header, mtrr) = context::template(&state).map_err(Failure::new)?;
        for vcpu in 0..self.config.maxvcpus {
            let records = context::memory_types(&header, &mtrr, vcpu);
            self.sys.set_context(self.domid, &records)?;
        }
        let image = self.image()?;
        let records = context::first_vcpu(&header, image.entry, image.start_info);
        say(self.sys.set_context(self.domid, &records))
    }

    /// The domain that serves a device.
    fn server(&mut self, name: Option<&String>) -> Result<DomId> {
        match name {
            None => Ok(DomId::DOM0),
            Some(name) => crate::cmd::domain_arg::find(self.sys.store()?, name),
        }
    }

    fn disk(&mut self, number: usize) -> Outcome {
        let disk = &self.config.disks[number];
        if let Some(why) = device::disk::refused(disk) {
            return Err(Failure::new(why));
        }
        let backend = self.server(disk.backend_domain.as_ref())?;
        let device = device::disk::device(disk, self.domid, backend);
        let number = match backend == DomId::DOM0 && !disk.target.is_empty() {
            true => self
                .sys
                .block_device(&disk.target)
                .map_err(|e| Failure::new(format!("{}: {e}", disk.target)))?,
            false => None,
        };
        self.undo.push(Undo::Device(device.clone()));
        let nodes = device::disk::nodes(disk, &device, number);
        write_nodes(self.sys.store()?, &nodes)?;
        let script = disk.script.as_deref().unwrap_or("/etc/xen/scripts/block");
        // A block device needs nobody's help.
        let done = format!("{}/physical-device", device.back());
        self.appear(&device)?;
        if number.is_none() {
            self.sys.script(script, "add", &device.back_relative())?;
            self.ready(&device, &done)?;
        }
        Ok(())
    }

    fn vif(&mut self, number: usize) -> Outcome {
        let vif = &self.config.vifs[number];
        let backend = self.server(vif.backend_domain.as_ref())?;
        let device = device::vif::device(vif, self.domid, backend);
        self.undo.push(Undo::Device(device.clone()));
        let nodes = device::vif::nodes(vif, &device);
        let script = nodes.iter().find(|n| n.path.ends_with("/script"));
        let script = script.and_then(|n| n.value.clone()).unwrap_or_default();
        write_nodes(self.sys.store()?, &nodes)?;
        self.appear(&device)?;
        self.sys
            .script(&script, "online", &device.back_relative())?;
        let done = format!("{}/hotplug-status", device.back());
        self.ready(&device, &done)
    }

    /// Waits for the kernel's back end.
    fn appear(&mut self, device: &Device) -> Outcome {
        let path = format!("{}/state", device.back());
        // Initialising turns into InitWait.
        let there = |state: Option<&str>| !matches!(state, None | Some("" | "0" | "1"));
        if self.sys.wait(&path, &there, APPEAR)? {
            return Ok(());
        }
        let module = if device.kind == "vif" {
            "xen-netback"
        } else {
            "xen-blkback"
        };
        Err(Failure::new(format!(
            "no back end has taken it in {APPEAR} s; is the module {module} loaded in domain {}?",
            device.backend.0
        )))
    }

    /// Waits until a script or the daemon for devices has done its part.
    fn ready(&mut self, device: &Device, node: &str) -> Outcome {
        let error = format!("{}/hotplug-error", device.back());
        let set = |value: Option<&str>| value.is_some_and(|v| !v.is_empty());
        let came = self.sys.wait(node, &set, READY)?;
        let store = self.sys.store()?;
        let text = |store: &mut Client, path: &str| {
            let value = store.read(Transaction::NONE, path).unwrap_or_default();
            String::from_utf8_lossy(&value).into_owned()
        };
        let said = text(store, &error);
        if !said.is_empty() || text(store, node) == "error" {
            return Err(Failure::new(format!("its hotplug script says: {said}")));
        }
        match came {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "nobody has connected it in {READY} s: neither the script that its 'script' node names nor \
                 the daemon devd(8) is at work"
            ))),
        }
    }

    /// Scripts look for the terminal right after a create; a domain without one can live nevertheless.
    fn terminal(&mut self) -> Outcome {
        let path = format!("{}/tty", device::console::front(self.domid));
        let there = |tty: Option<&str>| tty.is_some_and(|t| !t.is_empty());
        if !self.sys.wait(&path, &there, APPEAR)? {
            eprintln!(
                "xl: warning: domain {} has no terminal after {APPEAR} s: is xenconsoled running?",
                self.domid.0
            );
        }
        Ok(())
    }

    fn keep(&mut self) -> Outcome {
        self.undo.push(Undo::Files);
        let uuid = uuid_text(self.uuid);
        let kept = [
            ("libxl-json", json::text(self.config)?),
            ("xl", self.source.to_owned()),
        ];
        for (kind, text) in kept {
            let path = teardown::userdata(self.domid, &uuid, kind);
            let result = self.sys.save(&path, &text);
            result.map_err(|e| Failure::new(format!("{path}: {e}")))?;
        }
        Ok(())
    }

    /// Undoes everything; returns what could not be undone.
    fn take_back(&mut self) -> Vec<Failure> {
        let uuid = uuid_text(self.uuid);
        let mut problems = Vec::new();
        while let Some(undo) = self.undo.pop() {
            let result = match undo {
                Undo::Device(device) => teardown::device(self.sys, &device, true),
                Undo::Nodes => teardown::nodes(self.sys, self.domid, &uuid),
                Undo::Files => {
                    teardown::files(self.sys, self.domid, &uuid);
                    Ok(())
                }
                Undo::Domain => say(self.sys.destroy(self.domid)),
            };
            problems.extend(result.err());
        }
        problems
    }
}

/// Writes nodes in one transaction.
///
/// # Errors
/// The store's.
pub fn write_nodes(store: &mut Client, nodes: &[Node]) -> Outcome {
    store.transaction(|store, tx| {
        for node in nodes {
            match &node.value {
                Some(value) => store.write(tx, &node.path, value.as_bytes())?,
                None => store.mkdir(tx, &node.path)?,
            }
            if let Some(perms) = &node.perms {
                store.set_perms(tx, &node.path, perms)?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// The reserved entries of the grant table: console, then store, both for dom0.
fn grants() -> [GrantEntryV1; 2] {
    const PERMIT_ACCESS: u16 = 1;
    let entry = |frame: u64| GrantEntryV1 {
        flags: PERMIT_ACCESS,
        domid: DomId::DOM0,
        frame: frame as u32,
    };
    [entry(special::CONSOLE), entry(special::XENSTORE)]
}
