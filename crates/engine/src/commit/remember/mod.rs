//! Changes that programs outside transactions make through a guard are logged as commits, so that
//! they are listed, shown and undone as these are.
//!
//! While nothing is logged for them, a snapshot of the moment before the first such change stays
//! open (`store::remembered`). So the calls keep what they change (`commit::guarded`), as for any
//! transaction. The record then says how the base differs from that snapshot (`found`). It is never
//! applied: what it describes is in the base, as durable as the file system has it.
//!
//! Invariants
//! 1. A record is made while the gate is paused: no call is under way, and no commit is being
//!    applied. Its sequence is the epoch of the calls.
//! 2. Nothing that is remembered crosses a commit or a begin: before either gets its place in the
//!    commit order, what came earlier is logged. So a later record never takes what a commit has
//!    changed for an outsider's change, and each snapshot is a point between records. A call between
//!    the two is remembered with what follows. If it changes what the commit changes, the commit
//!    finds that before it is applied, and is cancelled.
//! 3. What the record names in limbo is the history's from then on. A checkpoint flushes it. A record
//!    in the log whose saved pages are in limbo counts only as long as the machine has not booted
//!    since: a flush of the log for a later commit may have made the record durable without them.
//! 4. If something cannot be remembered, that is reported, and nobody waits for it or fails.

mod differences;
mod found;
mod limbo;
mod lines;

use std::sync::atomic::Ordering;

use atomdir_disk::{Disk, Errno, Identity, Name, Stat, Timestamp, reason};
use atomdir_format::record::{CommitRecord, LogRecord};

use crate::error::StoreError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::record_builder;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::guard::Guard;
use crate::store::open_transactions::OpenTransactions;
use crate::store::remembered::{Remembered, Run};
use crate::sync;
use crate::write_set::Carried;

use found::{Found, find};

impl<D: Disk> Guard<D> {
    /// Whether changes are remembered. The caller then says who makes them.
    pub fn remembers(&self) -> bool {
        self.store.0.remembers.load(Ordering::Relaxed)
    }

    /// Logs what has been changed until now. Not to be called inside the gate.
    pub fn log_changes(&self) -> Result<(), StoreError> {
        self.store.remember_now()
    }

    /// This run is about to change something. If those that have changed something before are over,
    /// their changes are logged first. Not to be called inside the gate.
    pub fn begin_run(&self, run: &Run, is_over: impl Fn(&Run) -> bool) {
        let others_are_over = {
            let open = lock(&self.store.0.open);
            open.remembered.as_ref().is_some_and(|remembered| {
                let mut runs = remembered.runs.iter();
                runs.all(|known| known.group != run.group && is_over(known))
            })
        };
        // If another thread commits just now, that logs them: this call must not wait for it.
        if others_are_over && let Some(mut state) = sync::try_lock(&self.store.0.commit) {
            // Nothing is dropped that the kernel would have to forget: see `Paused::by_call`.
            if let Err(error) = self.store.record(&mut state, true) {
                tracing::warn!(%error, "changes of programs outside are not in the history");
            }
        }
    }

    /// Whose call this is. It is inside the gate.
    pub fn note_run(&self, run: &Run) {
        let mut open = lock(&self.store.0.open);
        self.store.begin_to_remember(&mut open);
        if let Some(remembered) = &mut open.remembered {
            remembered.note_run(run);
        }
    }

    /// The call has made this object, perhaps with a name in a directory.
    pub fn note_made(&self, object: &Stat, place: Option<(Identity, &Name)>) {
        let core = &*self.store.0.core;
        let known = place.and_then(|(directory, name)| {
            let directory = core.known(directory)?;
            Some(core.intern(object, &directory, name))
        });
        if let Some(remembered) = &mut lock(&self.store.0.open).remembered {
            remembered.made.insert(object.identity, known);
        }
    }
}

impl<D: Disk> Store<D> {
    /// From now on, what programs outside change through a guard is kept like commits, or not. It
    /// takes a history that is kept.
    pub fn remember_outside(&self, remembers: bool) -> Result<(), StoreError> {
        self.remember_now()?;
        self.0.remembers.store(remembers, Ordering::Relaxed);
        Ok(())
    }

    /// Logs what programs outside have changed until now.
    pub fn remember_now(&self) -> Result<(), StoreError> {
        if lock(&self.0.open).remembered.is_some() {
            self.record_outside(&mut lock(&self.0.commit))?;
            self.drop_remembered();
        }
        Ok(())
    }

    /// What was kept for records goes, unless transactions need it or the history has it now.
    fn drop_remembered(&self) {
        self.prune_versions();
        self.drop_links_in_limbo();
        self.0.gate.forget_pending();
    }

    /// Logs it if those who have changed it are over, or take too long.
    pub(super) fn remember_if_due(&self) -> Result<(), StoreError> {
        let now = self.0.core.options.clock.now();
        let is_due = {
            let open = lock(&self.0.open);
            let remembered = open.remembered.as_ref();
            remembered.is_some_and(|remembered| remembered.is_due(now))
        };
        if is_due {
            self.remember_now()?;
        }
        if self.0.remembers.load(Ordering::Relaxed) {
            // Calls have left that to others.
            self.drop_remembered();
        }
        Ok(())
    }

    pub(super) fn begin_to_remember(&self, open: &mut OpenTransactions<D>) {
        if self.0.remembers.load(Ordering::Relaxed) && open.remembered.is_none() {
            let before = Sequence(self.0.gate.epoch().0 - 1);
            let now = self.0.core.options.clock.now();
            open.remembered = Some(Remembered::after(before, now));
        }
    }

    /// Appends the record of what programs outside have changed, if there is anything.
    pub(super) fn record_outside(&self, state: &mut CommitState<D>) -> Result<(), StoreError> {
        self.record(state, false)
    }

    fn record(&self, state: &mut CommitState<D>, is_call: bool) -> Result<(), StoreError> {
        if lock(&self.0.open).remembered.is_none() || lock(&self.0.stalled).is_some() {
            return Ok(());
        }
        self.refuse_if_poisoned()?;
        let Some(mut paused) = self.0.gate.pause() else {
            lock(&self.0.open).remembered = None;
            return Ok(());
        };
        if is_call {
            paused = paused.by_call();
        }
        let (remembered, passing) = {
            let mut open = lock(&self.0.open);
            (open.remembered.take(), std::mem::take(&mut open.passing))
        };
        let Some(remembered) = remembered.filter(|one| !one.is_empty()) else {
            lock(&self.0.open).passing = passing;
            return Ok(());
        };
        let sequence = paused.close();
        let found = find(&self.0.core, &remembered, &passing, sequence);
        let settled = self.stamp()?;
        drop(paused);
        let logged = match found {
            _ if state.history.is_none() => Ok(()),
            Ok(found) if found.is_passing() => {
                lock(&self.0.open).passing = found.passing;
                Ok(())
            }
            Ok(found) => self.log_remembered(state, (remembered, found), (sequence, settled)),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = logged {
            let errno = reason(errno);
            tracing::warn!(%errno, "changes of programs outside are not in the history");
        }
        Ok(())
    }

    fn log_remembered(
        &self,
        state: &mut CommitState<D>,
        (remembered, found): (Remembered, Found),
        (sequence, settled): (Sequence, Timestamp),
    ) -> Result<(), Errno> {
        let core = &*self.0.core;
        let TransactionId(transaction) = self.take_id_in(state).map_err(|_| Errno::IO)?;
        let now = core.options.clock.now();
        let head = CommitRecord {
            sequence: sequence.0,
            transaction,
            stage: boot(&core.disk, &core.root)?.unwrap_or_default(),
            time: now,
            user: user(&remembered.runs).unwrap_or(core.options.privileges.user),
            groups: None,
            is_outside: true,
            label: label(&remembered.runs),
            directories: Vec::new(),
            objects: Vec::new(),
            entries: Vec::new(),
            updates: Vec::new(),
            made: Vec::new(),
            summary: found.set.summary.clone(),
            before: Some(found.before),
        };
        let no_contents = Carried {
            created: Vec::new(),
            pages: found.contents,
        };
        let record = record_builder::build(&found.set, &no_contents, head, &found.present);
        let before = Sequence(sequence.0 - 1);
        self.append_epochs(state, before)?;
        state
            .journal
            .log
            .append(&core.disk, &LogRecord::Commit(record.clone()))?;
        state.journal.note_appended(&record);
        state.journal.settled.insert(sequence.0, settled);
        state.journal.note_published(&record);
        state.note_size(core);
        state.last_commit = Some(now);
        self.0.flusher.note_appended(sequence);
        self.0.gate.hand_over(&found.handed_over);
        Ok(())
    }
}

/// A number that the next boot, or attachment of the disk, has not. Recovery then distrusts what nobody has flushed.
pub(crate) fn boot<D: Disk>(disk: &D, root: &D::Handle) -> Result<Option<u64>, Errno> {
    let attachment = disk.attachment(root)?;
    Ok(attachment.map(|known| {
        let number = u128::from_le_bytes(known.boot);
        (number as u64) ^ known.disk
    }))
}

/// Whose runs they are. `None`: of several users, or of nobody in particular. Then the commit is the
/// owner's of the store.
fn user(runs: &[Run]) -> Option<u32> {
    let first = runs.first()?.user;
    runs.iter().all(|run| run.user == first).then_some(first)
}

/// Names the programs, as the commit's label.
fn label(runs: &[Run]) -> Vec<u8> {
    const RUNS_MAX: usize = 4;
    let mut label = b"outside: ".to_vec();
    let names: Vec<&[u8]> = runs.iter().take(RUNS_MAX).map(|run| &*run.name).collect();
    match names.is_empty() {
        true => label.extend(b"unknown"),
        false => label.extend(names.join(&b", "[..])),
    }
    if runs.len() > RUNS_MAX {
        label.extend(b", ...");
    }
    label
}
