//! Transactions that survive the service that had them open: see `view::log`.
//!
//! Invariants
//! 1. A transaction is opened again only if it reads what it read before: no commit has landed
//!    since its begin or refresh. Commits that were cancelled do not count. Otherwise it is stranded: nothing of it is removed until somebody aborts
//!    it, and it can be opened by a version that restores older snapshots.
//! 2. A transaction whose commit is in the log or the history is not opened again.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Timestamp};

use crate::control::ControlHandles;
use crate::error::StoreError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::names;
use crate::options::Conflicts;
use crate::recovery::{Discarded, failed};
use crate::store::Store;
use crate::store::stranded::Stranded;
use crate::transaction::Transaction;
use crate::view::log::{Logged, Unread, read};

/// Deeper directories of an upper layer count as one object.
const COUNTED_DEPTH_MAX: u32 = 64;

#[derive(Default)]
pub(crate) struct Survivors {
    logged: Vec<Logged>,
    pub stranded: Vec<Stranded>,
    /// Transactions that end with their service.
    pub discarded: Vec<Discarded>,
}

impl Survivors {
    /// Looks at the transactions that were open. Changes nothing. The base is as of all of these
    /// snapshots.
    pub fn find<D: Disk>(
        disk: &D,
        handles: &ControlHandles<D>,
        open: Vec<TransactionId>,
        snapshots: RangeInclusive<Sequence>,
    ) -> Result<Survivors, StoreError> {
        let mut found = Survivors::default();
        for id in open {
            found
                .add(disk, handles, id, &snapshots)
                .map_err(failed("look for transactions that survive"))?;
        }
        Ok(found)
    }

    fn add<D: Disk>(
        &mut self,
        disk: &D,
        handles: &ControlHandles<D>,
        id: TransactionId,
        snapshots: &RangeInclusive<Sequence>,
    ) -> Result<(), Errno> {
        let name = names::transaction(id);
        let stage = disk.open(&handles.stage, &name, Access::Directory)?;
        match disk.stat_at(&stage, &names::fixed(names::VIEW)) {
            Err(Errno::NOENT) => {
                self.discard(disk, &stage, id);
                return Ok(());
            }
            found => drop(found?),
        }
        let (store, mounting) = (handles.applied.store(), handles.applied.mounting());
        match read(disk, &stage, store, mounting) {
            Ok(logged) if logged.begin.transaction != id.0 => self.discard(disk, &stage, id),
            Ok(logged) if !snapshots.contains(&Sequence(logged.begin.at)) => {
                let reason = format!(
                    "its snapshot is as of commit {}, commit {} has landed since, and older \
                     snapshots cannot be restored yet",
                    logged.begin.at,
                    snapshots.start()
                );
                self.stranded.push(stranded(&logged, reason));
            }
            Ok(logged) => self.logged.push(logged),
            Err(Unread::NothingFlushed) => self.discard(disk, &stage, id),
            Err(Unread::Ended) => {}
            Err(Unread::Damaged(reason)) => self.stranded.push(Stranded {
                id,
                owner: None,
                label: Vec::new(),
                began: Timestamp::default(),
                reason: format!("its view log cannot be read: {reason}"),
            }),
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

/// Counts what is in an overlay's upper layer, down to some depth.
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

fn stranded(logged: &Logged, reason: String) -> Stranded {
    Stranded {
        id: TransactionId(logged.begin.transaction),
        owner: Some(logged.begin.user),
        label: logged.begin.label.clone(),
        began: logged.begin.began,
        reason,
    }
}

impl<D: Disk> Store<D> {
    /// Opens the transactions that have survived.
    pub(crate) fn open_survivors(&self, survivors: Survivors) {
        lock(&self.0.stranded).extend(survivors.stranded);
        for logged in survivors.logged {
            let failed = stranded(&logged, String::new());
            let (core, contention) = (self.0.core.clone(), self.0.contention.clone());
            match Transaction::revive(core, contention, logged) {
                Ok(transaction) => {
                    let mut open = lock(&self.0.open);
                    open.by_id.insert(transaction.id(), transaction.into());
                }
                Err(errno) => {
                    self.0.core.handles.remove_transaction(failed.id);
                    let errno = atomdir_disk::reason(errno);
                    let reason = format!("its view cannot be made again: {errno}");
                    lock(&self.0.stranded).push(Stranded { reason, ..failed });
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
