//! Layers: disks over other disks. A layer implements [`atomdir_disk::Disk`] by calls of the disk below
//! it, so the engine runs on it unchanged. `docs/layers.md` says how to write one.
//!
//! Modules
//! - `pass_through`: changes nothing; counts calls, and can delay them or let them fail

mod pass_through;

pub use pass_through::{Call, PassThrough};
