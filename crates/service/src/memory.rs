//! What the allocator does with memory that was given back.

/// Large buffers go back to the system at once. By itself glibc raises the length
/// from which it does so to that of the largest buffer ever freed; what threads
/// and mounts that have ended took then stays in its heaps, in pieces, and a
/// service whose mounts are ended again and again grows by it.
pub(crate) fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE_BYTES: libc::c_int = 128 << 10;
        // SAFETY: it changes a setting of the allocator's own, under its lock. If
        // it refuses, the service takes more memory.
        let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    }
}
