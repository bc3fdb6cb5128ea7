//! The log bundle of one VM run: `target/vm-logs/<name>/`.

use crate::paths;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// The directory of a run.
pub struct Bundle {
    /// Where everything of the run is kept.
    pub dir: PathBuf,
}

impl Bundle {
    /// A fresh directory for the run `name`.
    pub fn new(name: &str) -> Result<Self> {
        let dir = paths::logs().join(name.replace('/', "."));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Keeps a text file.
    pub fn keep(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.dir.join(name), text)
            .with_context(|| format!("cannot write {name} in {}", self.dir.display()))
    }

    /// Removes what is large and can be made again.
    pub fn drop_media(&self) {
        for name in ["boot.iso", "modules.bin", "disk.img", "efivars.fd"] {
            // Leaving a file behind costs disk space only.
            let _ = fs::remove_file(self.dir.join(name));
        }
    }
}
