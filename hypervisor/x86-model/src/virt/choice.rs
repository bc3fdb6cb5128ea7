//! Which driver for hardware virtualization a boot uses, from what was built and what the CPU has.

/// A vendor's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// AMD-V, also in Hygon CPUs.
    Svm,
    /// Intel VT-x.
    Vmx,
}

/// What the build has (`hypervisor/Kconfig`).
#[derive(Clone, Copy, Debug)]
pub struct Built {
    /// Domains on hardware virtualization at all (`CONFIG_HVM`).
    pub domains: bool,
    /// The driver for AMD-V (`CONFIG_AMD`).
    pub amd: bool,
    /// The driver for VT-x (`CONFIG_INTEL`).
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
        (Built { intel: true, .. }, Has { vmx: true, .. }) => return Ok(Extension::Vmx),
        (Built { intel: false, .. }, Has { vmx: true, .. }) => {
            "no virtualization in this build for this CPU: it has Intel VT-x, and CONFIG_INTEL is off"
        }
        _ => {
            "the CPU has no hardware virtualization that the system could see (neither AMD-V nor Intel VT-x in CPUID)"
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
            refusal(built, NONE, "neither AMD-V nor Intel VT-x");
        }
        for built in [ALL, no_amd] {
            assert_eq!(choose(built, INTEL_CPU), Ok(Extension::Vmx));
        }
        refusal(no_intel, INTEL_CPU, "CONFIG_INTEL is off");
        refusal(
            no_amd,
            AMD_CPU,
            "no virtualization in this build for this CPU: it has AMD-V, and CONFIG_AMD is off",
        );
        refusal(no_amd, NONE, "neither AMD-V nor Intel VT-x");
        for has in [NONE, AMD_CPU, INTEL_CPU] {
            refusal(no_domains, has, "CONFIG_HVM is off");
        }
    }
}
