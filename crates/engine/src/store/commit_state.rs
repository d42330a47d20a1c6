//! The state that the commit lock guards.

use std::collections::{BTreeSet, HashSet};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{Disk, Errno, Identity, Timestamp};
use atomdir_format::record::CommitRecord;

use crate::apply::ApplyError;
use crate::base::core::Core;
use crate::base::snapshot::PAGE;
use crate::error::CommitError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::journal::Journal;
use crate::options::HistoryLimits;
use crate::store::queue::Queue;
use crate::write_set::WriteSet;

pub(crate) type Guard<'a, D> = MutexGuard<'a, CommitState<D>>;

pub(crate) struct CommitState<D: Disk> {
    pub journal: Journal<D>,
    pub reserve: D::Handle,
    /// So many bytes are set aside in it.
    pub reserved: AtomicU64,
    /// Holds the store's lock as long as the store is open.
    pub lock: D::Handle,
    /// Commits that are not yet in the base.
    pub queue: Queue<D>,
    /// Ended transactions whose staging directories the log may still need.
    pub stages: BTreeSet<TransactionId>,
    /// Files that the log mentions, and that recovery would have to find.
    pub applied: HashSet<Identity>,
    /// How much of what commits replace is kept; `None`: only what survivors need.
    pub history: Option<HistoryLimits>,
    /// When the last commit was appended.
    pub last_commit: Option<Timestamp>,
    /// The newest undo since the store was opened.
    pub newest_undo: Sequence,
}

/// The reserve always holds at least so much, for apply itself.
const RESERVE_MIN: u64 = 1 << 20;

impl<D: Disk> CommitState<D> {
    pub fn note_undo(&mut self, record: &CommitRecord) {
        let before = record.before.as_ref();
        if before.is_some_and(|before| !before.takes_back.is_empty()) {
            self.newest_undo = Sequence(record.sequence);
        }
    }

    /// Sets space aside, so that a logged commit cannot fail for lack of space
    /// when it is applied.
    pub fn fill_reserve(&self, core: &Core<D>, set: &WriteSet) -> Result<(), CommitError> {
        let waiting = self.queue.commits.iter().map(|pending| pending.pages);
        let pages: u64 = waiting.chain([set.pages_in_place()]).sum();
        let needed = RESERVE_MIN + pages * PAGE;
        if needed <= self.reserved.load(Ordering::Relaxed) {
            return Ok(());
        }
        match core.disk.allocate(&self.reserve, 0, needed) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {
                self.reserved.store(needed, Ordering::Relaxed);
                Ok(())
            }
            Err(errno) => Err(CommitError::io(
                "reserve space in",
                b".atomdir/reserve",
                errno,
            )),
        }
    }

    /// Notes how much space the history takes.
    pub fn note_size(&self, core: &Core<D>) {
        let status = self.journal.history_status();
        let bytes = status.map_or(0, |status| status.bytes);
        let pins = self.journal.annotations.pins();
        let mut sizes = lock(&core.past_sizes);
        // What is pinned does not count towards the limit.
        let pinned: u64 = pins.iter().map(|one| sizes.of(*one)).sum();
        sizes.all_bytes = bytes.saturating_sub(pinned);
    }

    /// How many commits the history keeps.
    pub fn commits_kept(&self) -> u64 {
        let status = self.journal.history_status();
        status.map_or(0, |status| status.commits)
    }

    /// Whether the file system has so little space left that the history should give some up.
    pub fn is_short_of_space(&self, core: &Core<D>) -> bool {
        let Some(limits) = self.history.filter(|_| self.commits_kept() > 0) else {
            return false;
        };
        let status = core.disk.status(&core.root);
        status.is_ok_and(|status| status.bytes_available() < limits.free_bytes_min)
    }

    /// Applies again, with the reserved space, a commit that had run out of
    /// space.
    pub fn with_reserve(
        &self,
        core: &Core<D>,
        mut apply: impl FnMut() -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        apply().or_else(|error| match error.errno {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let _ = self.empty_reserve(core);
                apply()
            }
            _ => Err(error),
        })
    }

    /// Gives the reserved space back to the file system.
    pub fn empty_reserve(&self, core: &Core<D>) -> Result<(), Errno> {
        self.reserved.store(0, Ordering::Relaxed);
        // The file system frees blocks reserved beyond the length only when the
        // length changes.
        core.disk.set_length(&self.reserve, 1)?;
        core.disk.set_length(&self.reserve, 0)
    }
}
