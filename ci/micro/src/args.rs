//! The command line of the runner.

use std::path::PathBuf;

/// Text of `--help`.
pub(crate) const HELP: &str = "\
micro: run the micro-guests and compare Xenolith with Xen

  micro [options] [GUEST..]

  --hv PATH        Xenolith image (default: target/image/xenolith, if it is there)
  --no-hv          do not run on Xenolith
  --peer xen       run on Debian's Xen 4.17 too (fetched into the cache on first use)
  --record         store what the peer shows as the reference
  --smp N          processors of the machine (default 2)
  --cpu MODEL      QEMU CPU model (default EPYC)
  --parallel       let QEMU use all CPUs of the host for every guest (for fpu, it uses one)
  --timeout S      seconds for one guest (default 90)
  --args TEXT      command line of the guest
  --hv-args TEXT   further options for the hypervisor
  --count PLUGIN   run with this build of ci/bench/exitcount.c and print what `bench` cost
  --verbose        print all facts and, after a crash, the whole console
";

/// What was asked for.
pub(crate) struct Args {
    pub(crate) hv: Option<PathBuf>,
    pub(crate) no_hv: bool,
    pub(crate) peer: bool,
    pub(crate) record: bool,
    pub(crate) smp: u32,
    pub(crate) cpu: String,
    pub(crate) parallel: bool,
    pub(crate) timeout: u64,
    pub(crate) guest_args: String,
    pub(crate) hv_args: String,
    pub(crate) count: Option<PathBuf>,
    pub(crate) verbose: bool,
    pub(crate) guests: Vec<String>,
}

impl Args {
    /// `None` means that help was asked for.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self {
            hv: None,
            no_hv: false,
            peer: false,
            record: false,
            smp: 2,
            cpu: "EPYC".into(),
            parallel: false,
            timeout: 90,
            guest_args: String::new(),
            hv_args: String::new(),
            count: None,
            verbose: false,
            guests: Vec::new(),
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--hv" => args.hv = Some(value()?.into()),
                "--no-hv" => args.no_hv = true,
                "--peer" => match value()?.as_str() {
                    "xen" => args.peer = true,
                    other => return Err(format!("unknown peer {other}: there is xen")),
                },
                "--record" => args.record = true,
                "--smp" => args.smp = value()?.parse().map_err(|e| format!("--smp: {e}"))?,
                "--cpu" => args.cpu = value()?,
                "--parallel" => args.parallel = true,
                "--timeout" => {
                    args.timeout = value()?.parse().map_err(|e| format!("--timeout: {e}"))?
                }
                "--args" => args.guest_args = value()?,
                "--hv-args" => args.hv_args = value()?,
                "--count" => args.count = Some(value()?.into()),
                "--verbose" => args.verbose = true,
                "--help" | "-h" => return Ok(None),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}; see --help"));
                }
                guest => args.guests.push(guest.into()),
            }
        }
        if args.record && !args.peer {
            return Err("--record needs --peer xen".into());
        }
        Ok(Some(args))
    }

    /// Whether machine and command lines are those with which the reference was recorded.
    pub(crate) fn as_recorded(&self) -> bool {
        let lines = self.guest_args.is_empty() && self.hv_args.is_empty();
        lines && !self.peer && self.smp == 2 && self.cpu == "EPYC"
    }

    /// The image to test: the one named, or the one built, if any.
    pub(crate) fn image(&self) -> Option<PathBuf> {
        if self.no_hv {
            return None;
        }
        self.hv.clone().or_else(|| {
            Some(crate::target_dir().join("image/xenolith")).filter(|path| path.exists())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Args>, String> {
        Args::parse(line.split_ascii_whitespace().map(String::from))
    }

    #[test]
    fn options_and_guests_mix() {
        let args = parse("cpuid --smp 4 --peer xen msr").unwrap().unwrap();
        assert_eq!(args.guests, ["cpuid", "msr"]);
        assert_eq!(args.smp, 4);
        assert!(args.peer);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("--smp").is_err_and(|e| e.contains("--smp")));
        assert!(parse("--peer kvm").is_err_and(|e| e.contains("kvm")));
        assert!(parse("--record").is_err_and(|e| e.contains("--peer")));
        assert!(parse("--frob").is_err_and(|e| e.contains("--frob")));
        assert!(parse("--help").unwrap().is_none());
    }
}
