//! A mapped file.

use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, MsyncFlags, ProtFlags};

/// A mapping, unmapped when dropped. Other processes and descriptors may change the bytes at
/// any time, so they are only copied out and in.
pub struct Map {
    start: *mut u8,
    length: usize,
}

impl Map {
    pub fn new(file: impl AsFd, length: usize, flags: MapFlags) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks an unused place.
        let start = unsafe { mm::mmap(null_mut(), length, protection, flags, file, 0) }?;
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: in bounds by the assertion, and `bytes` is new memory.
        unsafe {
            self.start
                .add(offset)
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), length)
        };
        bytes
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: in bounds by the assertion; nothing in this process holds a
        // reference into the map but atomics, which overlap no write.
        unsafe {
            self.start
                .add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    /// The word at the map's start, shared with other processes.
    pub fn counter(&self) -> &AtomicU32 {
        assert!(self.length >= size_of::<AtomicU32>());
        // SAFETY: in bounds, aligned as maps start on pages, alive as long as
        // the map, and every bit pattern is a u32.
        unsafe { AtomicU32::from_ptr(self.start.cast()) }
    }

    /// Writes the pages back before it returns.
    pub fn sync(&self, offset: usize, length: usize) -> Result<(), Errno> {
        assert!(offset + length <= self.length);
        // SAFETY: in bounds by the assertion.
        unsafe { mm::msync(self.start.add(offset).cast(), length, MsyncFlags::SYNC) }
    }

    /// Keeps the map until the process ends.
    pub fn keep_until_exit(self) {
        std::mem::forget(self);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the map is ours whole and nothing refers into it any more.
        // Unmapping what is mapped cannot fail.
        let _ = unsafe { mm::munmap(self.start.cast(), self.length) };
    }
}
