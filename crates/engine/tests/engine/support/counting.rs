//! An allocator that counts. A test makes it its global allocator, and must then be the
//! only test in its program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let before = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        HIGHEST.fetch_max(before + layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How many bytes are allocated now.
pub fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// The most bytes that were allocated at a time while it ran, beyond those before.
pub fn highest_while<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = allocated();
    HIGHEST.store(before, Ordering::Relaxed);
    let result = run();
    (result, HIGHEST.load(Ordering::Relaxed) - before)
}
