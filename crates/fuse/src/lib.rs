//! The kernel's FUSE protocol and sessions over it.
//!
//! It is written for file systems that never change behind the kernel's back, so the
//! kernel may cache names, attributes and contents for ever. Opening, closing and
//! flushing cost no round trip, and neither does a second read.
//!
//! - [`wire`]: decodes requests and encodes replies, without I/O
//! - [`Filesystem`]: what a file system answers
//! - [`Session`]: mounts one and serves it from several threads
//! - [`Notifier`]: invalidates the kernel's caches after changes that it did not make itself

mod barrier;
mod device;
mod dispatch;
mod error;
mod filesystem;
mod forgetting;
mod listings;
mod mount;
mod notifier;
mod ring;
mod session;
mod shared;
mod transport;
mod waiting;
pub mod wire;
mod worker;

pub use error::{MountError, UnmountError};
pub use filesystem::{
    Entry, Filesystem, ListEntry, NewNode, NodeAttributes, Opened, Request, Result, Seek,
    SetAttributes, SetTime, Validity,
};
pub use mount::{MountFlags, MountOptions};
pub use notifier::Notifier;
pub use session::Session;
pub use wire::ROOT_NODE;
