//! Faults that occur while the engine runs.

use atomdir_disk::Errno;

/// One call fails, or all calls that need space fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call with this number fails and does nothing, except that a failed write has written
    /// half, and a failed sync has lost what it should have written.
    Fails { call: u64, errno: Errno },
    /// From the call with this number on, no space is left, until a file frees reserved space.
    Full { call: u64 },
    /// At the call with this number the system's clock is changed by this many
    /// seconds.
    Clock { call: u64, seconds: i64 },
}

/// What programs read of a file after its sync has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterFailedSync {
    /// The pages are still in memory, marked clean.
    #[default]
    Written,
    /// The pages were evicted, so the contents on the disk are read.
    Durable,
}

/// What faults have struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Struck {
    #[default]
    Nothing,
    Call,
    /// A sync has failed. Only then it matters what programs read [`AfterFailedSync`].
    Sync,
}

/// The kind of a call, as far as it matters to faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Look,
    Change,
    /// May need space.
    Grow,
    Sync,
}
