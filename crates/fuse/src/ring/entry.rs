use std::ffi::c_void;

use atomdir_disk::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::wire::DATA_LENGTH_MAX;
use crate::wire::ring::{self, HEAD_LENGTH_MAX, HEADERS_LENGTH};

/// The headers and, at the end, room to join a request's parts before its payload.
const FRONT_LENGTH: usize = 4096;
const LENGTH: usize = FRONT_LENGTH + DATA_LENGTH_MAX;
const _: () = assert!(HEADERS_LENGTH + HEAD_LENGTH_MAX <= FRONT_LENGTH);

/// Memory for one request at a time. While the kernel has it, nothing here touches it:
/// `headers`, `message` and the like may only be called between a request's arrival in
/// this entry and the entry's return to the kernel.
///
/// Drop does not unmap it, since the kernel may write to it as long as the thread lives
/// that registered it: see [`Entry::unmap`].
pub struct Entry {
    start: *mut c_void,
    /// The kernel reads the addresses of both parts from here when the entry is registered.
    vectors: Box<[libc::iovec; 2]>,
    commit: u64,
    /// Where the joined request lies, relative to the start.
    message: std::ops::Range<usize>,
}

// SAFETY: the memory is this entry's own and is not tied to a thread.
unsafe impl Send for Entry {}

impl Entry {
    pub fn map() -> Result<Entry, Errno> {
        let (access, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let start = unsafe { rustix::mm::mmap_anonymous(anywhere, LENGTH, access, flags)? };
        let at = |offset: usize| start.wrapping_byte_add(offset);
        let vector = |offset, length| libc::iovec {
            iov_base: at(offset),
            iov_len: length,
        };
        let entry = Entry {
            start,
            vectors: Box::new([
                vector(0, HEADERS_LENGTH),
                vector(FRONT_LENGTH, DATA_LENGTH_MAX),
            ]),
            commit: 0,
            message: 0..0,
        };
        // SAFETY: the mapping's own range; no child process needs it.
        unsafe { rustix::mm::madvise(start, LENGTH, Advice::LinuxDontFork)? };
        Ok(entry)
    }

    /// # Safety
    /// The thread that registered it must have ended.
    pub unsafe fn unmap(self) {
        // SAFETY: the mapping's own range, which nobody uses any more.
        let _ = unsafe { rustix::mm::munmap(self.start, LENGTH) };
    }

    pub fn vectors(&self) -> *const libc::iovec {
        self.vectors.as_ptr()
    }

    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Records the request that the kernel has put here.
    pub fn fetch(&mut self) {
        let bytes = self.bytes();
        let (front, _) = bytes.split_at_mut(FRONT_LENGTH);
        let Some((headers, rest)) = front.split_first_chunk_mut() else {
            return;
        };
        let Some(fetched) = ring::fetched(headers) else {
            // An empty message is too short to be a request, so decoding refuses it.
            self.message = 0..0;
            return;
        };
        let at = rest.len() - fetched.operation.len();
        rest[at..].copy_from_slice(fetched.operation);
        let head = at - fetched.header.len();
        rest[head..at].copy_from_slice(fetched.header);
        let start = FRONT_LENGTH - fetched.operation.len() - fetched.header.len();
        let end = FRONT_LENGTH + fetched.payload_length.min(DATA_LENGTH_MAX);
        (self.commit, self.message) = (fetched.commit, start..end);
    }

    pub fn message(&self) -> &[u8] {
        // SAFETY: within the mapping, which the kernel has handed over.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), LENGTH) };
        &bytes[self.message.clone()]
    }

    pub fn answer(&mut self, unique: u64, answer: Result<&[u8], Errno>) {
        let (error, body) = match answer {
            Ok(body) if body.len() > DATA_LENGTH_MAX => (-Errno::IO.raw_os_error(), &[][..]),
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), &[][..]),
        };
        let (front, payload) = self.bytes().split_at_mut(FRONT_LENGTH);
        payload[..body.len()].copy_from_slice(body);
        if let Some(headers) = front.first_chunk_mut() {
            ring::answer(headers, unique, error, body.len());
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping, which the kernel has handed over, and which is
        // borrowed as this entry is.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>(), LENGTH) }
    }
}
