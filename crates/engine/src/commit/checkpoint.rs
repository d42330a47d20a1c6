//! Checkpoint: makes the base durable, then drops the log and the staged objects that it refers to.

use crate::sync;

use atomdir_disk::{Disk, Errno};

use crate::base::handles::HandleKey;
use crate::control;
use crate::error::StoreError;
use crate::lock;
use crate::log::history::HISTORY_BYTES_MAX;
use crate::log::journal::lacks_space;
use crate::log::past::PastFile;
use crate::log::past_limits::{self, HistoryStatus};
use crate::names::{self, InLimbo};
use crate::options::{HistoryLimits, milliseconds_between};
use crate::store::Store;
use crate::store::commit_state::CommitState;

/// A lazy commit waits no longer than this to become durable.
const LAZY_MS_MAX: i128 = 100;
/// A log of this length is checkpointed at the next occasion.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// So is a log of this many commits: each takes some memory, and perhaps a directory.
const LOG_COMMITS_MAX: u64 = 16 << 10;
/// Any log is checkpointed once no commit has come for this long.
const QUIET_MS: i128 = 3_000;

/// Nothing is kept but what must be.
const NO_LIMITS: HistoryLimits = HistoryLimits {
    age_seconds_max: 0,
    bytes_max: 0,
    free_bytes_min: 0,
};

/// Whether the space that the file system has left is to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceWatch {
    /// No history is kept. The next commit may change that.
    Needless,
    /// Call again in a second or so.
    Needed,
    /// There is too little space, and nothing can be given up now. Call again in a minute or so.
    InVain,
}

impl<D: Disk> Store<D> {
    /// From now on the commit of a transaction that has changed nothing returns before its staging directory is
    /// removed: [`maintain`](Self::maintain) does that.
    pub fn tend_stages(&self) {
        self.0.core.stages.tend();
    }

    /// To be called every 50 ms or so while there is something to maintain.
    pub fn maintain(&self) -> Result<(), StoreError> {
        self.0.core.drop_left_stages();
        self.remember_if_due()?;
        let (is_due, is_lazy_due) = {
            let state = lock(&self.0.commit);
            let Some(last) = state.last_commit else {
                return Ok(());
            };
            let now = self.0.core.options.clock.now();
            let is_old = |time, age_ms_max| {
                // If the clock was set back, everything counts as old.
                !(0..age_ms_max).contains(&milliseconds_between(time, now))
            };
            let oldest = state.queue.commits.front();
            let commits = state.journal.newest.0 - state.journal.header.last_sequence;
            let is_long = state.journal.log.length() > LOG_BYTES_MAX || commits > LOG_COMMITS_MAX;
            (
                is_long || is_old(last, QUIET_MS),
                oldest.is_some_and(|oldest| is_old(oldest.record.time, LAZY_MS_MAX)),
            )
        };
        if is_due {
            self.checkpoint()
        } else if is_lazy_due {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Whether there is anything to maintain.
    pub fn needs_maintenance(&self) -> bool {
        lock(&self.0.commit).last_commit.is_some()
            || self.retries_set_aside()
            || self.0.core.stages.has_left()
    }

    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let mut state = self.lock_without_pending()?;
        self.checkpoint_locked(&mut state)
    }

    /// From now on the history is kept within these limits. Later checkpoints forget the rest.
    pub fn set_history(&self, limits: Option<HistoryLimits>) -> Result<(), StoreError> {
        let mut state = self.lock_without_pending()?;
        if limits.is_some() && state.history.is_none() {
            self.keep_past(&mut state)?;
        }
        state.history = limits;
        lock(&self.0.core.past_sizes).limits = limits;
        Ok(())
    }

    /// Makes a checkpoint. Later commits can then record what they replace.
    pub(crate) fn keep_past(&self, state: &mut CommitState<D>) -> Result<(), StoreError> {
        self.checkpoint_locked(state)?;
        if state.journal.past.is_none() {
            let last = state.journal.header.last_sequence;
            state.journal.past = Some(PastFile::create(&self.0.core, last)?);
            // The file's name gets durable with the header.
            state.journal.write_header(&self.0.core)?;
        }
        Ok(())
    }

    /// Forgets the oldest commits that are beyond these limits. Frees the space of the objects that
    /// only they keep, as soon as no open snapshot may show these. Forgotten commits cannot be
    /// undone.
    pub fn prune(&self, limits: &HistoryLimits) -> Result<HistoryStatus, StoreError> {
        let mut state = self.lock_without_pending()?;
        self.checkpoint_locked(&mut state)?;
        let held = self.held_past();
        let configured = state.history.map_or(0, |limits| limits.age_seconds_max);
        let asked_from = past_limits::before(self.0.core.options.clock.now(), configured);
        let asked_from = Some(asked_from);
        let journal = &mut state.journal;
        journal.limit_past(&self.0.core, limits, held, asked_from)?;
        self.checkpoint_locked(&mut state)?;
        Ok(state.journal.history_status().unwrap_or_default())
    }

    /// Forgets a part of the history if the file system is short of space. Returns whether it did.
    /// The caller can then try again.
    pub(crate) fn free_space(&self) -> bool {
        let freed = || -> Result<bool, StoreError> {
            let mut state = self.lock_without_pending()?;
            if !state.is_short_of_space(&self.0.core) {
                return Ok(false);
            }
            let before = state.commits_kept();
            self.checkpoint_locked(&mut state)?;
            Ok(state.commits_kept() < before)
        };
        freed().unwrap_or_else(|error| {
            tracing::warn!(%error, "the history cannot be shortened to free space");
            false
        })
    }

    /// Gives up a part of the history if the file system is short of space, which any program may
    /// need. To be called from the open of the store on, and after each commit.
    pub fn watch_space(&self) -> SpaceWatch {
        let (keeps_history, is_short) = match sync::try_lock(&self.0.commit) {
            Some(state) => (
                state.commits_kept() > 0,
                state.is_short_of_space(&self.0.core),
            ),
            // A commit is under way.
            None => return SpaceWatch::Needed,
        };
        match keeps_history {
            false => SpaceWatch::Needless,
            true if !is_short || self.free_space() => SpaceWatch::Needed,
            true => SpaceWatch::InVain,
        }
    }

    /// Closes the store in order and gives back its lock, which processes that were forked from this
    /// one may have inherited. Open transactions must have been aborted.
    pub fn close(&self) -> Result<(), StoreError> {
        self.0.core.drop_left_stages();
        let mut state = self.lock_without_pending()?;
        // These ids were not used, and none will be until it is reserved again.
        state.journal.header.transaction_high_water = lock(&self.0.open).ids.give_back();
        let is_written = state.journal.log.length() > 0;
        self.checkpoint_locked(&mut state)?;
        let core = &*self.0.core;
        if !is_written {
            state.journal.write_header(core)?;
        }
        let own_log = state.journal.log_id.map(|_| state.journal.log.file());
        let unlocked = own_log.map_or(Ok(()), |log| core.disk.unlock(&log));
        let unlocked = unlocked.and(core.disk.unlock(&state.lock));
        unlocked.map_err(|errno| StoreError::Control {
            step: "unlock the store",
            errno,
        })
    }

    pub(crate) fn checkpoint_locked(&self, state: &mut CommitState<D>) -> Result<(), StoreError> {
        self.refuse_if_poisoned()?;
        let core = &*self.0.core;
        // Every commit is in the base, so nothing needs the reserve any more. On a full disk the
        // past needs the space, or it could never be shortened.
        let emptied = state.empty_reserve(core);
        emptied.map_err(failed("release reserved space"))?;
        let drops_past = self.drops_past(state);
        if state.journal.log.length() > 0 || drops_past {
            let flush = || {
                let flushed = core.flush_base();
                flushed.map_err(|errno| self.poison_unflushed("the base", errno))
            };
            let flush_log = |log: &D::Handle| {
                let flushed = core.disk.sync_data(log);
                flushed.map_err(|errno| self.poison_unflushed("the log", errno))
            };
            let flushes = (flush, flush_log);
            state.journal.retire_log(core, drops_past, flushes)?;
            state.applied.clear();
        }
        state.last_commit = None;
        core.stages.forget_spare();
        for id in std::mem::take(&mut state.stages) {
            // A transaction that has landed a part goes on with the rest, or another one has taken
            // it over.
            if self.transaction(id).is_some() || core.stages.is_taken(id) {
                continue;
            }
            core.handles.remove(HandleKey::Stage(id));
            let name = names::transaction(id);
            let removed = control::remove_tree(&core.disk, &core.control.stage, &name);
            removed.map_err(failed("remove staged files"))?;
        }
        self.shorten_histories(state)?;
        // No transaction may begin meanwhile, because removing links shows in change
        // times.
        let _not_beginning = sync::write(&core.applying);
        if self.oldest_snapshot().is_none() && state.journal.needs_purge() {
            let purged = state.journal.purge_limbo(core);
            purged.map_err(failed("empty limbo"))?;
            core.handles.forget_base();
        } else if !self.is_past_in_use() {
            let linked = lock(&self.0.linked_in_limbo).clone();
            let is_linked = |one: &InLimbo| linked.contains(&names::in_limbo(*one));
            let removed = state.journal.forgotten.remove_unseen(core, is_linked);
            removed.map_err(failed("remove forgotten files"))?;
        }
        Ok(())
    }

    /// Whether only transactions have needed the past that have survived, and now none does.
    fn drops_past(&self, state: &CommitState<D>) -> bool {
        let journal = &state.journal;
        let is_kept = state.history.is_some() || journal.annotations.has_pins();
        let is_filled = |past: &PastFile<D>| past.file_bytes() > 0 || journal.log.length() > 0;
        !is_kept && journal.past.as_ref().is_some_and(is_filled) && self.held_past().is_none()
    }

    /// Forgets the commits that are beyond the limits. This needs space for the records that stay,
    /// so it comes after every step that frees space. If there is still no space, the next
    /// checkpoint tries again.
    fn shorten_histories(&self, state: &mut CommitState<D>) -> Result<(), StoreError> {
        let core = &*self.0.core;
        let summaries = state.journal.shorten_history(core, HISTORY_BYTES_MAX);
        let held = self.held_past();
        let past = match (state.history, &mut state.journal.past) {
            (Some(limits), _) => state.journal.limit_past(core, &limits, held, None),
            (None, Some(_)) if state.journal.annotations.has_pins() => {
                state.journal.limit_past(core, &NO_LIMITS, held, None)
            }
            (None, _) => Ok(()),
        };
        for error in [summaries, past].into_iter().filter_map(Result::err) {
            if !lacks_space(&error) {
                return Err(error);
            }
            tracing::warn!(%error, "the history stays longer than it should");
        }
        Ok(())
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
