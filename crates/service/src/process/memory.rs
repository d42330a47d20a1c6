//! Makes the allocator return freed memory to the system.

/// Returns large buffers to the system at once. By default glibc does so only for
/// buffers longer than the largest ever freed. The memory of ended threads and
/// mounts then stays in its heaps, in pieces, and a service that often ends
/// mounts grows.
pub(crate) fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE_BYTES: libc::c_int = 128 << 10;
        // SAFETY: it changes a setting of the allocator, under the allocator's
        // lock. If it fails, the service only takes more memory.
        let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    }
}
