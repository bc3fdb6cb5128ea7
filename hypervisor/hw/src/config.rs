//! The choices of this build (`hypervisor/Kconfig`): numbers and texts are constants here, the rest are cfgs `CONFIG_*`.

include!(concat!(env!("OUT_DIR"), "/config.rs"));

/// The whole configuration as a gzip file, the form in which the control domain gets it. The text in it is not compressed.
pub const FILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/config.gz"));

/// Bytes before and after the text in [`FILE`]: header and block header, checksum and length.
const AROUND: (usize, usize) = (15, 8);

/// The whole configuration, in the form of a `.config` file.
pub fn text() -> &'static str {
    let text = &FILE[AROUND.0..FILE.len() - AROUND.1];
    core::str::from_utf8(text).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_configuration() {
        assert!(text().starts_with("#\n# Written by"), "{}", text());
        assert!(text().contains(&std::format!("\nCONFIG_NR_CPUS={NR_CPUS}\n")));
        assert!(text().ends_with('\n'));
        assert_eq!(text().contains("\nCONFIG_HVM=y\n"), cfg!(CONFIG_HVM));
        assert_eq!(text().contains("\nCONFIG_DEBUG=y\n"), cfg!(CONFIG_DEBUG));
    }
}
