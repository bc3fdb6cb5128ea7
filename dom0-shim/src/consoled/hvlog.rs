//! The hypervisor's log, copied into a file. The hypervisor does not say when there is more, so it is asked now and then.

use super::host::Log;
use super::log::LogFile;
use super::options::Options;
use std::time::{Duration, Instant};
use xen_sys::xen::Xen;

/// How often it is asked.
const EVERY: Duration = Duration::from_secs(1);

/// What follows the log.
pub struct HypervisorLog {
    xen: Xen,
    file: LogFile,
    /// Where the hypervisor's log was read up to.
    index: u32,
    due: Instant,
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
        Ok(Some(HypervisorLog {
            xen: Xen::open().map_err(told)?,
            file: LogFile::open(path, options.hypervisor_style).map_err(told)?,
            index: 0,
            due: Instant::now(),
        }))
    }

    /// When [`HypervisorLog::tick`] is to be called.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Copies what is new, if it is time.
    ///
    /// # Errors
    /// The hypervisor does not tell its log.
    pub fn tick(&mut self, now: Instant) -> std::io::Result<()> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + EVERY;
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
