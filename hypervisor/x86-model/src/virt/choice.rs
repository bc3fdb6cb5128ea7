//! Which driver for hardware virtualization a boot uses, from what was built and what the CPU has.

/// A vendor's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// AMD-V, also in Hygon CPUs.
    Svm,
}

/// What the build has (`hypervisor/Kconfig`).
#[derive(Clone, Copy, Debug)]
pub struct Built {
    /// Domains on hardware virtualization at all (`CONFIG_HVM`).
    pub domains: bool,
    /// The driver for AMD-V (`CONFIG_AMD`).
    pub amd: bool,
    /// `CONFIG_INTEL`; there is no driver behind it yet.
    pub intel: bool,
}

/// What CPUID says the CPU has.
#[derive(Clone, Copy, Debug)]
pub struct Has {
    /// AMD-V.
    pub svm: bool,
    /// VT-x.
    pub vmx: bool,
}

/// The driver to try, which may still find a reason against the CPU. The error is a sentence for the administrator.
pub fn choose(built: Built, has: Has) -> Result<Extension, &'static str> {
    Err(match (built, has) {
        (Built { domains: false, .. }, _) => {
            "no virtualization in this build: CONFIG_HVM is off, and there are no other domains"
        }
        (Built { amd: true, .. }, Has { svm: true, .. }) => return Ok(Extension::Svm),
        (Built { amd: false, .. }, Has { svm: true, .. }) => {
            "no virtualization in this build for this CPU: it has AMD-V, and CONFIG_AMD is off"
        }
        (Built { intel: true, .. }, Has { vmx: true, .. }) => {
            "no virtualization for this CPU yet: it has Intel VT-x, and the driver for that is not written"
        }
        (Built { intel: false, .. }, Has { vmx: true, .. }) => {
            "no virtualization in this build for this CPU: it has Intel VT-x, and CONFIG_INTEL is off"
        }
        // Its driver says in detail what is missing.
        (Built { amd: true, .. }, _) => return Ok(Extension::Svm),
        (Built { amd: false, .. }, _) => {
            "the CPU has no hardware virtualization that the system could see, and CONFIG_AMD is off"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Built = Built {
        domains: true,
        amd: true,
        intel: true,
    };
    const NONE: Has = Has {
        svm: false,
        vmx: false,
    };
    const AMD_CPU: Has = Has { svm: true, ..NONE };
    const INTEL_CPU: Has = Has { vmx: true, ..NONE };

    /// The refusal, which must have `part` in it.
    fn refusal(built: Built, has: Has, part: &str) {
        let text = choose(built, has).expect_err(part);
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn every_build_on_every_cpu() {
        let no_amd = Built { amd: false, ..ALL };
        let no_intel = Built {
            intel: false,
            ..ALL
        };
        let no_domains = Built {
            domains: false,
            ..ALL
        };
        for built in [ALL, no_intel] {
            assert_eq!(choose(built, AMD_CPU), Ok(Extension::Svm));
            assert_eq!(choose(built, NONE), Ok(Extension::Svm));
        }
        refusal(ALL, INTEL_CPU, "Intel VT-x, and the driver");
        refusal(no_intel, INTEL_CPU, "CONFIG_INTEL is off");
        refusal(
            no_amd,
            AMD_CPU,
            "no virtualization in this build for this CPU: it has AMD-V, and CONFIG_AMD is off",
        );
        refusal(no_amd, INTEL_CPU, "the driver for that is not written");
        refusal(no_amd, NONE, "CONFIG_AMD is off");
        for has in [NONE, AMD_CPU, INTEL_CPU] {
            refusal(no_domains, has, "CONFIG_HVM is off");
        }
    }
}
