//! The hypervisor's log, copied into a file. The hypervisor says by an interrupt when there is more.

use super::host::Log;
use super::log::LogFile;
use super::options::Options;
use std::os::fd::{AsFd, BorrowedFd};
use xen_abi::virq::nr;
use xen_sys::evtchn::EventChannels;
use xen_sys::xen::Xen;

/// What follows the log.
pub struct HypervisorLog {
    xen: Xen,
    file: LogFile,
    /// Where the hypervisor's log was read up to.
    index: u32,
    /// Where the interrupt arrives.
    channels: EventChannels,
}

impl HypervisorLog {
    /// Begins with what the hypervisor still has. Nothing if no such log is wanted.
    ///
    /// # Errors
    /// One line that says what does not work.
    pub fn open(options: &Options) -> Result<Option<HypervisorLog>, String> {
        if !options.hypervisor_log {
            return Ok(None);
        }
        let path = options.log_dir.join("hypervisor.log");
        let told = |e: std::io::Error| format!("no log of the hypervisor: {e}");
        let channels = EventChannels::open().map_err(told)?;
        channels.bind_virq(nr::CON_RING).map_err(|e| {
            format!("no log of the hypervisor: its interrupt is somebody else's: {e}")
        })?;
        let mut log = HypervisorLog {
            xen: Xen::open().map_err(told)?,
            file: LogFile::open(path, options.hypervisor_style).map_err(told)?,
            index: 0,
            channels,
        };
        log.copy().map_err(told)?;
        Ok(Some(log))
    }

    /// Becomes readable when [`HypervisorLog::turn`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channels.as_fd()
    }

    /// Copies what is new, if the hypervisor said that there is something.
    ///
    /// # Errors
    /// The hypervisor does not tell its log.
    pub fn turn(&mut self) -> std::io::Result<()> {
        // The interrupt can come again before the log is read: lines that follow are not missed.
        let (ports, lost) = self.channels.fired()?;
        if ports.is_empty() && !lost {
            return Ok(());
        }
        self.copy()
    }

    fn copy(&mut self) -> std::io::Result<()> {
        let (bytes, index) = self.xen.console_from(self.index, false)?;
        self.index = index;
        if !bytes.is_empty() {
            self.file.write(&bytes);
        }
        Ok(())
    }

    /// Begins the file anew if it was moved away.
    pub fn reopen(&mut self) {
        self.file.reopen();
    }
}
