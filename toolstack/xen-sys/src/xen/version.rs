//! What the hypervisor says about itself, and its security module.

use super::{Xen, is};
use crate::hypercalls::{Call, Slot};
use std::io;
use xen_abi::flask::{self, FlaskOp, SidContext};
use xen_abi::version::{CompileInfo, PlatformParameters, op};
use xen_abi::{Errno, hypercall::nr};
use zerocopy::IntoBytes;

/// Everything that `xen_version` tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// First number of the release.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// What follows it, such as `.5`.
    pub extra: String,
    /// Guests that can be built.
    pub capabilities: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Where the hypervisor's part of a PV guest's address space begins.
    pub virt_start: u64,
    /// Source revision.
    pub changeset: String,
    /// The hypervisor's command line.
    pub command_line: String,
    /// Compiler.
    pub compiler: String,
    /// Who built it.
    pub built_by: String,
    /// Where.
    pub built_domain: String,
    /// When.
    pub built_date: String,
    /// The linker's note, empty if there is none.
    pub build_id: Vec<u8>,
}

/// Most bytes of a build id; linkers make 16 to 32.
const BUILD_ID: usize = 1016;

impl Xen {
    /// Asks for all of it.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn version(&self) -> io::Result<Version> {
        let number = self.xen_version(op::VERSION, &mut [])?;
        let mut compile = CompileInfo::default();
        self.xen_version(op::COMPILE_INFO, compile.as_mut_bytes())?;
        let mut platform = PlatformParameters::default();
        self.xen_version(op::PLATFORM_PARAMETERS, platform.as_mut_bytes())?;
        Ok(Version {
            major: (number >> 16) as u32,
            minor: (number & 0xffff) as u32,
            extra: self.version_text::<16>(op::EXTRAVERSION)?,
            capabilities: self.version_text::<1024>(op::CAPABILITIES)?,
            page_size: self.xen_version(op::PAGESIZE, &mut [])?,
            virt_start: platform.virt_start,
            changeset: self.version_text::<64>(op::CHANGESET)?,
            command_line: self.version_text::<1024>(op::COMMANDLINE)?,
            compiler: text(&compile.compiler),
            built_by: text(&compile.compile_by),
            built_domain: text(&compile.compile_domain),
            built_date: text(&compile.compile_date),
            build_id: self.build_id()?,
        })
    }

    fn version_text<const N: usize>(&self, operation: u32) -> io::Result<String> {
        let mut bytes = [0; N];
        self.xen_version(operation, &mut bytes)?;
        Ok(text(&bytes))
    }

    /// Not every build has one, and not everyone may know it.
    fn build_id(&self) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 4 + BUILD_ID];
        bytes[..4].copy_from_slice(&(BUILD_ID as u32).to_ne_bytes());
        match self.xen_version(op::BUILD_ID, &mut bytes) {
            Ok(length) => Ok(bytes[4..].iter().take(length as usize).copied().collect()),
            Err(e)
                if [Errno::EPERM, Errno::ENODATA, Errno::ENOSYS]
                    .iter()
                    .any(|x| is(&e, *x)) =>
            {
                Ok(Vec::new())
            }
            Err(e) => Err(e),
        }
    }

    fn xen_version(&self, operation: u32, argument: &mut [u8]) -> io::Result<u64> {
        self.calls.call(&mut Call {
            number: nr::XEN_VERSION,
            operation: Some(operation),
            argument,
            rest: &[],
            slots: &mut [],
        })
    }

    /// Whether FLASK enforces its policy; `None` without FLASK.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn enforcing(&self) -> io::Result<Option<bool>> {
        match self.flask(flask::op::GETENFORCE, SidContext::default(), &mut []) {
            Ok(value) => Ok(Some(value != 0)),
            Err(e) if is(&e, Errno::ENOSYS) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The security label that a domain's `ssidref` stands for; `None` without FLASK, or if it is none.
    pub fn label(&self, ssidref: u32) -> Option<String> {
        let mut label = [0; 256];
        let own = SidContext {
            sid: ssidref,
            size: label.len() as u32,
            context: 0,
        };
        let slot = Slot {
            field: 8 + 8,
            bytes: &mut label,
        };
        self.flask(flask::op::SID_TO_CONTEXT, own, &mut [slot])
            .ok()?;
        Some(text(&label)).filter(|l| !l.is_empty())
    }

    fn flask(&self, cmd: u32, own: SidContext, slots: &mut [Slot<'_>]) -> io::Result<u64> {
        let mut argument = FlaskOp {
            cmd,
            interface_version: flask::interface::VERSION,
            ..FlaskOp::default()
        };
        super::put(&mut argument.u, &own);
        self.calls.call(&mut Call {
            number: nr::XSM_OP,
            operation: None,
            argument: argument.as_mut_bytes(),
            rest: &[],
            slots,
        })
    }
}

/// Up to the zero at the end.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
