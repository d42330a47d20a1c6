//! Transactions that survive the service that had them open: see `view::log`.
//!
//! Invariants
//! 1. A transaction is opened again only if its snapshot is intact: no commit has landed since its
//!    begin or refresh, or the past has restored the snapshot (`older`). Commits that were
//!    cancelled do not count. Otherwise it is stranded: nothing of it is removed until somebody
//!    aborts it.
//! 2. A transaction is not opened again if its commit is in the log or the history, unless its snapshot
//!    holds this commit: then it was the commit of a part, and the rest is open.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Timestamp};

use crate::base::core::Core;
use crate::base::older::Older;
use crate::control::ControlHandles;
use crate::error::StoreError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::journal::Journal;
use crate::names;
use crate::options::Conflicts;
use crate::recovery::older;
use crate::recovery::{Discarded, failed};
use crate::store::Store;
use crate::store::stranded::Stranded;
use crate::transaction::Transaction;
use crate::view::log::{LoggedView, Unread, read};

/// Deeper directories of an upper layer count as one object.
const COUNTED_DEPTH_MAX: u32 = 64;

#[derive(Default)]
pub(crate) struct Survivors {
    logged: Vec<LoggedView>,
    pub stranded: Vec<Stranded>,
    older: Older,
    /// Transactions that end with their service.
    pub discarded: Vec<Discarded>,
}

impl Survivors {
    /// Looks at the transactions that were open. Changes nothing.
    pub fn find<D: Disk>(
        disk: &D,
        handles: &ControlHandles<D>,
        staged: Vec<(TransactionId, Option<Sequence>)>,
    ) -> Result<Survivors, StoreError> {
        let mut found = Survivors::default();
        for one in staged {
            found
                .add(disk, handles, one)
                .map_err(failed("look for transactions that survive"))?;
        }
        Ok(found)
    }

    fn add<D: Disk>(
        &mut self,
        disk: &D,
        handles: &ControlHandles<D>,
        (id, committed): (TransactionId, Option<Sequence>),
    ) -> Result<(), Errno> {
        let name = names::transaction(id);
        let stage = disk.open(&handles.stage, &name, Access::Directory)?;
        match disk.stat_at(&stage, &names::fixed(names::VIEW)) {
            Err(Errno::NOENT) => {
                if committed.is_none() {
                    self.discard(disk, &stage, id);
                }
                return Ok(());
            }
            found => drop(found?),
        }
        let (store, attachment) = (handles.applied.store(), handles.applied.attachment());
        match (committed, read(disk, &stage, store, attachment)) {
            (Some(committed), Ok(logged)) if logged.begin.at >= committed.0 => {
                self.logged.push(logged);
            }
            (Some(_), _) => {}
            (None, Ok(logged)) if logged.begin.transaction != id.0 => {
                self.discard(disk, &stage, id)
            }
            (None, Ok(logged)) => self.logged.push(logged),
            (None, Err(Unread::NothingFlushed)) => self.discard(disk, &stage, id),
            (None, Err(Unread::Ended)) => {}
            (None, Err(Unread::Damaged(reason))) => self.stranded.push(Stranded {
                id,
                owner: None,
                label: Vec::new(),
                began: Timestamp::default(),
                reason: format!("its view log cannot be read: {reason}"),
                needs: None,
            }),
        }
        Ok(())
    }

    /// Restores the snapshots after which commits have landed. The log must be empty. The base is
    /// as of all of `present`.
    pub fn restore_older<D: Disk>(
        &mut self,
        core: &Core<D>,
        journal: &mut Journal<D>,
        present: &RangeInclusive<Sequence>,
    ) -> Result<(), StoreError> {
        assert!(
            journal.log.length() == 0,
            "snapshots are restored before the log is in the base"
        );
        let snapshots = self.logged.iter().map(|one| Sequence(one.begin.at));
        let mut snapshots: Vec<Sequence> = snapshots.filter(|at| at < present.start()).collect();
        snapshots.sort();
        snapshots.dedup();
        if !snapshots.is_empty() {
            // Pages that records have carried are written to limbo.
            journal.has_garbage = true;
        }
        let newest = *present.end();
        let restored = older::restore(core, journal.past.as_ref(), &snapshots, newest)?;
        let why_not = match restored {
            Ok(older) => {
                self.older = older;
                None
            }
            Err(reason) => Some(reason),
        };
        let is_lost = |one: &mut LoggedView| {
            let at = Sequence(one.begin.at);
            at > newest || (at < *present.start() && why_not.is_some())
        };
        for lost in self.logged.extract_if(.., is_lost) {
            let reason = why_not.clone();
            let reason = reason.unwrap_or_else(|| "the log has lost it".to_owned());
            let reason = format!(
                "its snapshot, as of commit {}, cannot be restored: {reason}",
                lost.begin.at
            );
            self.stranded.push(stranded(&lost, reason));
        }
        Ok(())
    }

    fn discard<D: Disk>(&mut self, disk: &D, stage: &D::Handle, id: TransactionId) {
        // The number is only reported, so whatever cannot be read counts as nothing.
        let slots = disk.list(stage).unwrap_or_default();
        let slots = slots
            .iter()
            .filter_map(|entry| names::slot_number(&entry.name));
        let upper = disk.open(stage, &names::fixed(names::UPPER), Access::Directory);
        let in_upper = upper.map_or(0, |upper| count_below(disk, &upper, 0));
        let changes = slots.count() as u64 + in_upper;
        self.discarded.push(Discarded { id, changes });
    }

    /// The names of the staging directories that recovery must not empty.
    pub fn stages(&self) -> HashSet<Name> {
        let logged = self.logged.iter().map(|one| one.begin.transaction);
        let stranded = self.stranded.iter().map(|one| one.id.0);
        let ids = logged.chain(stranded).map(TransactionId);
        ids.map(names::transaction).collect()
    }
}

/// Counts the objects in an overlay's upper layer, down to some depth.
fn count_below<D: Disk>(disk: &D, directory: &D::Handle, depth: u32) -> u64 {
    let entries = disk.list(directory).unwrap_or_default();
    let below = entries.iter().map(|entry| {
        let inner = match depth < COUNTED_DEPTH_MAX && entry.kind == Some(Kind::Directory) {
            true => disk.open(directory, &entry.name, Access::Directory).ok(),
            false => None,
        };
        1 + inner.map_or(0, |inner| count_below(disk, &inner, depth + 1))
    });
    below.sum()
}

fn stranded(logged: &LoggedView, reason: String) -> Stranded {
    Stranded {
        id: TransactionId(logged.begin.transaction),
        owner: Some(logged.begin.user),
        label: logged.begin.label.clone(),
        began: logged.begin.began,
        reason,
        needs: None,
    }
}

impl<D: Disk> Store<D> {
    /// Opens the transactions that have survived.
    pub(crate) fn open_survivors(&self, survivors: Survivors) {
        lock(&self.0.stranded).extend(survivors.stranded);
        let older = survivors.older;
        let retained = older.retained.iter();
        lock(&self.0.retained).extend(retained.map(|base| (base.serial, base.clone())));
        for logged in survivors.logged {
            let failed = stranded(&logged, String::new());
            let (core, contention) = (self.0.core.clone(), self.0.contention.clone());
            let at = Sequence(logged.begin.at);
            match Transaction::revive(core, contention, logged, &older) {
                Ok(transaction) => {
                    let brought = transaction.brought().into_iter();
                    lock(&self.0.retained).extend(brought.map(|base| (base.serial, base)));
                    self.hold_vote(&transaction);
                    let mut open = lock(&self.0.open);
                    open.by_id.insert(transaction.id(), transaction.into());
                }
                Err(errno) => {
                    self.0.core.handles.remove_transaction(failed.id);
                    let errno = atomdir_disk::reason(errno);
                    let reason = format!("its view cannot be made again: {errno}");
                    let needs = Some(at);
                    lock(&self.0.stranded).push(Stranded {
                        reason,
                        needs,
                        ..failed
                    });
                }
            }
        }
        for transaction in self.transactions() {
            if transaction.conflicts() == Conflicts::Early {
                self.begin_early(&transaction);
            }
        }
    }
}
