//! The fake machine's RAM: one host allocation, shared by all fake machines of a test process. Frame numbers start at
//! 1 in it, so that frame 0 is never handed out.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use x86_model::{Hpa, Mfn, PAGE_SIZE};

use crate::mem::frames as table;

/// Frames of fake RAM (256 MiB; untouched pages cost nothing), if nobody asks for more.
const USUAL: usize = 65536;

static FRAMES: OnceLock<usize> = OnceLock::new();

/// Frames of fake RAM.
pub fn frames() -> usize {
    *FRAMES.get_or_init(|| USUAL)
}

/// Makes a machine with that many frames of RAM; for a test process of its own, before anything else.
pub fn init_with(frames: usize) {
    assert_eq!(*FRAMES.get_or_init(|| frames), frames, "too late");
    init();
}

struct Arena(*mut u8);
// SAFETY: the pointer is to a leaked allocation; all access rules are those of physical memory.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

static ARENA: OnceLock<Arena> = OnceLock::new();

fn base() -> *mut u8 {
    ARENA
        .get_or_init(|| {
            let layout = std::alloc::Layout::from_size_align(
                frames() * PAGE_SIZE as usize,
                PAGE_SIZE as usize,
            )
            .expect("constant layout");
            // SAFETY: the layout has a non-zero size.
            let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
            assert!(!ptr.is_null(), "no memory for the fake machine");
            Arena(ptr)
        })
        .0
}

/// Host pointer to a fake machine address; panics outside the fake RAM.
pub fn pointer(hpa: Hpa) -> *mut u8 {
    let offset = hpa.0 as usize;
    assert!(
        offset < frames() * PAGE_SIZE as usize,
        "{hpa:?} is outside the fake machine's RAM"
    );
    base().wrapping_add(offset)
}

/// Fake machine address of a pointer that [`pointer`] gave.
pub fn address(ptr: *const u8) -> Hpa {
    Hpa((ptr as usize - base() as usize) as u64)
}

/// Sets up the frame table once per process.
pub fn init() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        base();
        let words: Vec<AtomicU64> = (0..frames()).map(|_| AtomicU64::new(0)).collect();
        let words = Vec::leak(words);
        // SAFETY: a leaked, zeroed slice used by nobody else; `OnceLock` makes this the only call.
        unsafe { table::init(words.as_mut_ptr(), words.len()) };
        table::add_free(Mfn(1), frames() - 1);
    });
}
