//! What dom0 is told about the screen, so that it need not stay black: `XENPF_get_dom0_console`.

use hv_hw::bootinfo::{Framebuffer, Screen};
use xen_abi::platform::{Dom0VgaConsoleInfo, VesaLfb, video_type};
use zerocopy::IntoBytes;

/// The description of the screen as the boot loader left it; `None` if there is none to speak of.
pub fn describe(screen: Screen, efi: bool) -> Option<[u8; size_of::<Dom0VgaConsoleInfo>()]> {
    let info = match screen {
        Screen::Framebuffer(fb) => framebuffer(fb, efi)?,
        Screen::Text(_, columns, rows) => text(columns.try_into().ok()?, rows.try_into().ok()?),
        // PC firmware leaves text mode 3; EFI has none.
        Screen::Unknown if !efi => text(80, 25),
        Screen::Unknown => return None,
    };
    let mut bytes = [0; size_of::<Dom0VgaConsoleInfo>()];
    bytes.copy_from_slice(info.as_bytes());
    Some(bytes)
}

/// The structure for text lies where the one for frame buffers does, with its own fields: font height, cursor column and
/// row, rows, columns (u16 each).
fn text(columns: u16, rows: u16) -> Dom0VgaConsoleInfo {
    Dom0VgaConsoleInfo {
        video_type: video_type::TEXT_MODE_3,
        u: VesaLfb {
            width: 16,
            height: 0,
            bytes_per_line: rows.saturating_sub(1),
            bits_per_pixel: rows,
            lfb_base: columns.into(),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn framebuffer(fb: Framebuffer, efi: bool) -> Option<Dom0VgaConsoleInfo> {
    let [red, green, blue] = fb.channels;
    // What no colour uses; 24-bit pixels have nothing of the kind.
    let used = red.1.checked_add(green.1)?.checked_add(blue.1)?;
    let spare = fb.bits.saturating_sub(used);
    let spare_at = fb.channels.iter().map(|c| c.0.saturating_add(c.1)).max()?;
    let bytes = u64::from(fb.pitch) * u64::from(fb.height);
    Some(Dom0VgaConsoleInfo {
        video_type: if efi {
            video_type::EFI_LFB
        } else {
            video_type::VESA_LFB
        },
        u: VesaLfb {
            width: fb.width.try_into().ok()?,
            height: fb.height.try_into().ok()?,
            bytes_per_line: fb.pitch.try_into().ok()?,
            bits_per_pixel: fb.bits.into(),
            lfb_base: fb.address as u32,
            lfb_size: u32::try_from(bytes.div_ceil(1 << 16)).ok()?,
            red_pos: red.0,
            red_size: red.1,
            green_pos: green.0,
            green_size: green.1,
            blue_pos: blue.0,
            blue_size: blue.1,
            rsvd_pos: if spare > 0 { spare_at } else { 0 },
            rsvd_size: spare,
            ext_lfb_base: (fb.address >> 32) as u32,
            ..Default::default()
        },
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FB: Framebuffer = Framebuffer {
        address: 0x12_e000_0000,
        pitch: 3200,
        width: 800,
        height: 600,
        bits: 32,
        channels: [(16, 8), (8, 8), (0, 8)],
    };

    fn at16(bytes: &[u8], at: usize) -> u16 {
        u16::from_le_bytes([bytes[at], bytes[at + 1]])
    }

    #[test]
    fn describes_a_frame_buffer() {
        let b = describe(Screen::Framebuffer(FB), true).unwrap();
        assert_eq!(b[0], video_type::EFI_LFB);
        assert_eq!([4, 6, 8, 10].map(|at| at16(&b, at)), [800, 600, 3200, 32]);
        assert_eq!(b[12..16], 0xe000_0000u32.to_le_bytes());
        // 1,920,000 bytes are 30 pieces of 64 KiB.
        assert_eq!(b[16..20], 30u32.to_le_bytes());
        assert_eq!(b[20..28], [16, 8, 8, 8, 0, 8, 24, 8]);
        assert_eq!(b[36..40], 0x12u32.to_le_bytes());
        assert_eq!(
            describe(Screen::Framebuffer(FB), false).unwrap()[0],
            video_type::VESA_LFB
        );
    }

    #[test]
    fn describes_text() {
        let b = describe(Screen::Unknown, false).unwrap();
        assert_eq!(b[0], video_type::TEXT_MODE_3);
        // Font height, cursor, rows, columns.
        assert_eq!(
            [4, 6, 8, 10, 12].map(|at| at16(&b, at)),
            [16, 0, 24, 25, 80]
        );
        assert_eq!(describe(Screen::Unknown, true), None);
    }

    #[test]
    fn refuses_what_does_not_fit_the_structure() {
        let wide = Framebuffer {
            width: 70_000,
            ..FB
        };
        assert_eq!(describe(Screen::Framebuffer(wide), false), None);
        let odd = Framebuffer {
            channels: [(0, 200), (0, 200), (0, 200)],
            ..FB
        };
        assert_eq!(describe(Screen::Framebuffer(odd), false), None);
    }
}
