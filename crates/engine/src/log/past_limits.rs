//! Limits how much of the past is kept: by age, by space, and by the free space of the file system.

use atomdir_disk::Timestamp;
pub use atomdir_types::HistoryStatus;

use crate::base::past_sizes::PastSizes;
use crate::ids::Sequence;
use crate::options::HistoryLimits;

/// The file is read when the store is opened and when commits are undone or forgotten, so it
/// must not get longer than this, whatever the limits say.
const FILE_BYTES_MAX: u64 = 128 << 20;
/// Forgetting rewrites the file. So a checkpoint forgets a part of the history at a time.
const PART: u64 = 8;

/// So many seconds before this moment.
pub(crate) fn before(now: Timestamp, seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp {
        seconds: now.seconds.saturating_sub(seconds),
        ..now
    }
}

/// The part of the history that a checkpoint forgets.
pub(crate) struct Excess {
    older_than: Timestamp,
    bytes_max: u64,
    file_bytes_max: u64,
}

impl Excess {
    /// All commits. Only the needs of open transactions then keep any.
    pub fn all() -> Excess {
        Excess {
            older_than: Timestamp::default(),
            bytes_max: 0,
            file_bytes_max: 0,
        }
    }

    /// Everything that is beyond the limits. `free_bytes` is the free space of the file system.
    pub fn of(limits: &HistoryLimits, now: Timestamp, free_bytes: u64, bytes: u64) -> Excess {
        let older_than = before(now, limits.age_seconds_max);
        let bytes_max = match free_bytes < limits.free_bytes_min {
            true => limits.bytes_max.min(bytes / 2),
            false => limits.bytes_max,
        };
        Excess {
            older_than,
            bytes_max,
            file_bytes_max: FILE_BYTES_MAX,
        }
    }

    /// Whether it is time to forget something.
    pub fn is_due(&self, limits: &HistoryLimits, figures: &HistoryStatus, file_bytes: u64) -> bool {
        let slack = i64::try_from(limits.age_seconds_max / PART).unwrap_or(i64::MAX);
        let older_than = Timestamp {
            seconds: self.older_than.seconds.saturating_sub(slack),
            ..self.older_than
        };
        let is_old = |time: Timestamp| time < older_than;
        figures.oldest.is_some_and(|(_, time)| is_old(time)) || self.is_large(figures, file_bytes)
    }

    pub fn older_than(&self) -> Timestamp {
        self.older_than
    }

    /// Whether the commits take more space than they may.
    pub fn is_larger(&self, figures: &HistoryStatus) -> bool {
        figures.bytes > self.bytes_max
    }

    fn is_large(&self, figures: &HistoryStatus, file_bytes: u64) -> bool {
        figures.bytes > self.bytes_max || file_bytes > self.file_bytes_max
    }

    /// Leaves some room, so that the next checkpoint need not forget again.
    pub fn with_room(self) -> Excess {
        Excess {
            bytes_max: self.bytes_max - self.bytes_max / PART,
            file_bytes_max: self.file_bytes_max - self.file_bytes_max / PART,
            ..self
        }
    }

    /// Whether the oldest commit must go.
    pub fn includes(&self, figures: &HistoryStatus, file_bytes: u64) -> bool {
        let is_old = figures.oldest.is_some_and(|(_, time)| self.is_old(time));
        is_old || self.is_large(figures, file_bytes)
    }

    /// The most bytes of all commits, and of the file.
    pub fn bytes_max(&self) -> (u64, u64) {
        (self.bytes_max, self.file_bytes_max)
    }

    pub fn is_old(&self, time: Timestamp) -> bool {
        time < self.older_than
    }

    /// The space beyond the limits that the commits after this one take.
    pub fn held_after(&self, after: Sequence, sizes: &PastSizes) -> u64 {
        sizes.beyond(after, self.older_than, self.bytes_max)
    }
}
