//! Crashes of the machine under real file systems.
//!
//! A [`BlockFile`] is a disk in memory, served as one file of a FUSE file
//! system, that records every write and every flush in their order. A loop
//! device over it carries a real file system ([`FileSystem`], [`Mounted`]), on
//! which the tests run real transactions. What a power cut may leave is then
//! built from the recording ([`Recording::crash_image`]): all that was written
//! before the last flush, and any part of what was written after it.
//!
//! The kernel's loop driver passes each write on before it reports it as done, and each flush as an
//! fsync of its file. The file is opened for direct I/O, so nothing is kept back. If a write is in
//! flight when a flush is requested, a disk need not flush it. Here it counts as flushed if it
//! arrives before the flush.
//!
//! Modules
//! - `block_file`, `image`: the disk in memory, as a file; its bytes
//! - `recording`: the writes and flushes, and the disks that a power cut may leave
//! - `file_system`: the real file systems: making, mounting and checking them

mod block_file;
mod file_system;
mod image;
mod recording;

pub use block_file::BlockFile;
pub use file_system::{FileSystem, Mounted, mount_shared};
pub use image::Image;
pub use recording::{AtomicUnits, CommitEvent, Event, Recording, Span};
