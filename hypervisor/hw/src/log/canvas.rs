//! The two kinds of screen: VGA text memory and a linear frame buffer.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use super::screen::Canvas;
use crate::bootinfo::Framebuffer;

/// White on black.
const ATTRIBUTE: u16 = 0x0f00;
const WEIGHT: FontWeight = FontWeight::Regular;
const HEIGHT: RasterHeight = RasterHeight::Size16;

/// Video memory, as the mapping of it: a place that only the screen's owner writes.
pub struct Video {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pointer is to device memory (or, in tests, to a buffer that outlives it), used only through this value.
unsafe impl Send for Video {}

impl Video {
    /// # Safety
    /// `start .. start + len` must stay mapped and writable as long as this lives, and be used by nothing else.
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Video { start, len }
    }

    fn put<T>(&mut self, offset: usize, value: T) {
        if offset
            .checked_add(size_of::<T>())
            .is_some_and(|end| end <= self.len)
        {
            // SAFETY: in bounds (checked above) of what `new`'s caller vouched for; alignment is not assumed.
            unsafe {
                let at = self.start.add(offset).cast::<T>();
                if at.is_aligned() {
                    at.write_volatile(value);
                } else {
                    at.write_unaligned(value);
                }
            }
        }
    }
}

/// Text mode.
pub struct TextCanvas {
    /// Two bytes a cell.
    pub video: Video,
    /// Columns.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
}

impl Canvas for TextCanvas {
    fn size(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }
    fn draw(&mut self, column: usize, row: usize, character: u8) {
        let offset = (row * self.columns + column) * 2;
        self.video.put(offset, ATTRIBUTE | u16::from(character));
    }
}

/// A linear frame buffer.
pub struct PixelCanvas {
    video: Video,
    info: Framebuffer,
    /// Pixel values of the font's 16 grey levels.
    greys: [u32; 16],
}

impl PixelCanvas {
    /// Bytes of video memory that the frame buffer takes; `None` if its description makes no sense.
    pub fn bytes(info: &Framebuffer) -> Option<u64> {
        let sane = matches!(info.bits, 15 | 16 | 24 | 32)
            && info.width > 0
            && info.width <= 1 << 14
            && info.height > 0
            && info.height <= 1 << 14
            && info.pitch <= 1 << 18
            && info.pitch >= info.width * u32::from(info.bits.div_ceil(8))
            && info
                .channels
                .iter()
                .all(|&(at, bits)| bits > 0 && bits <= 16 && at < 32 && at + bits <= 32);
        sane.then(|| u64::from(info.pitch) * u64::from(info.height))
    }

    /// Draws on `video`, which [`PixelCanvas::bytes`] has the size of.
    pub fn new(video: Video, info: Framebuffer) -> Self {
        let greys = core::array::from_fn(|level| {
            info.channels.iter().fold(0, |pixel, &(at, bits)| {
                let top = (1u32 << bits) - 1;
                pixel | (top * level as u32 / 15) << at
            })
        });
        PixelCanvas { video, info, greys }
    }
}

impl Canvas for PixelCanvas {
    fn size(&self) -> (usize, usize) {
        (
            self.info.width as usize / get_raster_width(WEIGHT, HEIGHT),
            self.info.height as usize / HEIGHT as usize,
        )
    }

    fn draw(&mut self, column: usize, row: usize, character: u8) {
        let Some(glyph) = get_raster(char::from(character), WEIGHT, HEIGHT) else {
            return;
        };
        let step = usize::from(self.info.bits.div_ceil(8));
        for (y, line) in glyph.rows().enumerate() {
            let start = (row * HEIGHT as usize + y) * self.info.pitch as usize
                + column * glyph.width() * step;
            for (x, &grey) in line.iter().enumerate() {
                let pixel = self.greys[usize::from(grey >> 4)];
                let at = start + x * step;
                match step {
                    4 => self.video.put(at, pixel),
                    3 => {
                        self.video.put(at, pixel as u16);
                        self.video.put(at + 2, (pixel >> 16) as u8);
                    }
                    _ => self.video.put(at, pixel as u16),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::screen::Screen;

    fn info(bits: u8) -> Framebuffer {
        Framebuffer {
            address: 0,
            pitch: 64 * u32::from(bits.div_ceil(8)),
            width: 64,
            height: 32,
            bits,
            channels: if bits > 16 {
                [(16, 8), (8, 8), (0, 8)]
            } else {
                [(11, 5), (5, 6), (0, 5)]
            },
        }
    }

    #[test]
    fn draws_in_every_depth_without_leaving_the_buffer() {
        for bits in [16, 24, 32] {
            let info = info(bits);
            let len = PixelCanvas::bytes(&info).unwrap() as usize;
            let mut buffer = vec![0u8; len + 64];
            buffer[len..].fill(0x5a);
            // SAFETY: the buffer outlives the canvas and is not used while that exists.
            let mut canvas =
                PixelCanvas::new(unsafe { Video::new(buffer.as_mut_ptr(), len) }, info);
            let mut screen = Box::new(Screen::new());
            screen.write(b"#\n  M", &mut canvas);
            let row = |y: usize| &buffer[y * info.pitch as usize..][..info.pitch as usize];
            assert!(
                (0..16).any(|y| row(y).iter().any(|&b| b > 0x80)),
                "{bits}: no glyph"
            );
            assert!(
                row(0).iter().all(|&b| b == 0),
                "{bits}: top line is empty in this font"
            );
            assert!(
                buffer[len..].iter().all(|&b| b == 0x5a),
                "{bits}: wrote past the end"
            );
        }
    }

    #[test]
    fn refuses_impossible_descriptions() {
        assert!(PixelCanvas::bytes(&info(32)).is_some());
        for change in [
            |i: &mut Framebuffer| i.bits = 8,
            |i: &mut Framebuffer| i.pitch = 3,
            |i: &mut Framebuffer| i.width = u32::MAX,
            |i: &mut Framebuffer| i.height = 0,
            |i: &mut Framebuffer| i.channels[1] = (30, 8),
            |i: &mut Framebuffer| i.channels[2] = (0, 0),
        ] {
            let mut bad = info(32);
            change(&mut bad);
            assert_eq!(PixelCanvas::bytes(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn text_cells_have_attributes() {
        let mut buffer = [0u16; 8];
        let start = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer outlives the canvas and is not used while that exists.
        let video = unsafe { Video::new(start, 16) };
        let mut canvas = TextCanvas {
            video,
            columns: 4,
            rows: 2,
        };
        let mut screen = Box::new(Screen::new());
        screen.write(b"a\nb", &mut canvas);
        assert_eq!(
            buffer,
            [0xf61, 0xf20, 0xf20, 0xf20, 0xf62, 0xf20, 0xf20, 0xf20]
        );
    }
}
