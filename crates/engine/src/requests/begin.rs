//! The begin of a transaction.

use crate::sync;
use std::sync::Arc;

use atomdir_disk::Disk;

use crate::error::BeginError;
use crate::lock;
use crate::options::{BeginOptions, Conflicts};
use crate::store::Store;
use crate::store::commit_state::Guard;
use crate::transaction::Transaction;

/// How often a begin waits for commits on the way, where calls through a guard have come after them.
const TRIES_MAX: usize = 64;

/// Which commits a snapshot shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    InBase,
    /// Also those on their way there, if all of them are published early: nobody waits for these.
    Published,
    /// Also those on their way there.
    All,
}

impl<D: Disk> Store<D> {
    /// Begins a transaction. Its snapshot shows every commit that has returned. If one of these is
    /// not in the base yet, a read of something that it changes waits until it is there, and so
    /// does a commit that changes the same. Under a guard this is [`Store::begin_in_base`]: see
    /// `commit::guarded`.
    pub fn begin(&self, options: BeginOptions) -> Result<Arc<Transaction<D>>, BeginError> {
        self.begin_at_once(Shows::All, options)
    }

    /// Like [`Store::begin`], but waits until every commit that has returned is in the base: no
    /// read in the transaction waits for one.
    pub fn begin_in_base(&self, options: BeginOptions) -> Result<Arc<Transaction<D>>, BeginError> {
        self.refuse_if_poisoned()?;
        self.look_for_space();
        self.apply_pending()?;
        self.begin_showing(Shows::InBase, options)
    }

    /// Like [`Store::begin`], but no read in the transaction waits for a commit. So this waits until
    /// every commit that has returned is in the base or is a published one: a lazy or deferred commit
    /// that only makes, replaces and removes files. Under a guard none is.
    pub fn begin_published(
        &self,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, BeginError> {
        match self.0.core.on_the_way.look(|looking| looking.has_late()) {
            true => self.begin_in_base(options),
            false => self.begin_at_once(Shows::Published, options),
        }
    }

    fn begin_at_once(
        &self,
        shows: Shows,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, BeginError> {
        if self.0.gate.is_guarded() {
            return self.begin_in_base(options);
        }
        self.refuse_if_poisoned()?;
        self.look_for_space();
        // While a commit is stalled, there is no whole state that a snapshot could show.
        self.retry_stalled()?;
        self.begin_showing(shows, options)
    }

    /// If another commits just now, space is looked for after that.
    fn look_for_space(&self) {
        let is_short = |state: Guard<'_, D>| state.is_short_of_space(&self.0.core);
        if sync::try_lock(&self.0.commit).is_some_and(is_short) {
            self.free_space();
        }
    }

    fn begin_showing(
        &self,
        shows: Shows,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, BeginError> {
        let id = self.take_id()?;
        let (core, contention) = (self.0.core.clone(), self.0.contention.clone());
        let mut tries_left = TRIES_MAX;
        let (paused, not_applying, now, mut open, shows_way) = loop {
            // Before all other locks.
            let paused = self.0.gate.pause();
            let not_applying = sync::read(&self.0.core.applying);
            let now = self.stamp()?;
            let open = lock(&self.0.open);
            let (is_early, is_late) = core
                .on_the_way
                .look(|looking| (looking.has_early(), looking.has_late()));
            let shows_way = match shows {
                Shows::InBase => tries_left == 0,
                Shows::Published => tries_left == 0 || !is_late,
                Shows::All => true,
            };
            // Nothing is kept for a snapshot without a commit that was published before it began.
            let is_kept = shows_way || !is_early;
            // The snapshot then shows everything that is on the way.
            let is_beyond = paused
                .as_ref()
                .is_some_and(|one| one.is_beyond(open.published));
            let is_behind = is_beyond && core.on_the_way.oldest().is_some() && tries_left > 0;
            // The log is to say what programs outside have changed before the snapshot.
            let is_amid = open.remembered.is_some() && tries_left > 0;
            if shows == Shows::All || is_kept && !is_behind && !is_amid {
                break (paused, not_applying, now, open, shows_way);
            }
            drop((paused, not_applying, open));
            match (is_behind, is_amid) {
                (true, _) => self.settle_commits()?,
                (_, true) => self.remember_now()?,
                _ => self.apply_pending()?,
            }
            tries_left = tries_left.saturating_sub(1);
        };
        // Those on their way change the base after `now`, since none is applied at this moment.
        let at = match shows_way {
            true => open.published.max(core.on_the_way.newest()),
            false => open.published,
        };
        let at = paused.as_ref().map_or(at, |paused| paused.snapshot(at));
        let transaction = Transaction::new(core, contention, id, options, at, now);
        let transaction = Arc::new(transaction);
        open.by_id.insert(id, transaction.clone());
        drop((open, paused));
        // Below we lock views. A committing transaction keeps its view until it can take
        // `applying`, so release `applying` first.
        drop(not_applying);
        if transaction.conflicts() == Conflicts::Early {
            self.begin_early(&transaction);
        }
        Ok(transaction)
    }

    /// Begins a transaction with the snapshot of another one, which shows the past and must stay
    /// open meanwhile.
    pub(crate) fn begin_beside(
        &self,
        other: &Transaction<D>,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, BeginError> {
        self.refuse_if_poisoned()?;
        let id = self.take_id()?;
        let (core, contention) = (self.0.core.clone(), self.0.contention.clone());
        let began = other.began_change_time();
        let transaction = Transaction::new(core, contention, id, options, other.at(), began);
        transaction.use_past(other.at());
        let transaction = Arc::new(transaction);
        lock(&self.0.open).by_id.insert(id, transaction.clone());
        if transaction.conflicts() == Conflicts::Early {
            self.begin_early(&transaction);
        }
        Ok(transaction)
    }

    /// From now on writes are noted. Also notes the earlier writes of open transactions.
    pub(crate) fn begin_early(&self, transaction: &Transaction<D>) {
        if self.0.contention.writers.begin(transaction.id()) {
            self.note_writes_so_far();
        }
    }
}
