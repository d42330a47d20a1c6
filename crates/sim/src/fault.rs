//! What goes wrong while the engine runs.

use atomdir_disk::Errno;

/// One call fails, or all calls that need space do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call of this number fails, having done nothing; but a write has
    /// written half, and a sync has lost what it was to keep.
    Fails { call: u64, errno: Errno },
    /// From the call of this number on, no space is left, until a file gives
    /// back what was reserved for it.
    Full { call: u64 },
    /// At the call of this number the system's clock is set by so many seconds.
    Clock { call: u64, seconds: i64 },
}

/// What programs read of a file after its sync has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterFailedSync {
    /// The pages are still in memory, marked clean.
    #[default]
    Written,
    /// The pages were evicted: it is the disk that is read.
    Durable,
}

/// What a call is, as far as faults go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Look,
    Change,
    /// May need space.
    Grow,
    Sync,
}
