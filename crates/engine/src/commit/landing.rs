//! Commits a part of a transaction's changes, and keeps the transaction open with the rest.
//!
//! Up to the record, this is a commit like any other, of a smaller write set. But the
//! transaction goes on, with the same view over the same snapshot. Its new files are in the
//! base once the commit is published, so the view must then find them there: `Landing` holds
//! the view from the moment when the record is appended until then. Programs in the view
//! wait meanwhile, as they do during any commit.
//!
//! Invariants
//! 1. While a landing waits in the queue, it has the view, and nothing changes it.
//! 2. A landing that is dropped before it was finished ends the transaction.
//! 3. The staging directory of the transaction stays as long as the log may need an object that has
//!    landed from it: until the next checkpoint, or until the transaction ends after that
//!    checkpoint.
//!
//! A landing does not merge (`refuse_merged`): see the first invariant of `base::landed`.

use std::sync::Arc;

use atomdir_disk::{Disk, Kind};

use crate::base::{OwnStamp, Stamp};
use crate::commit::Committed;
use crate::commit::publish::created_directory;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::{NodeId, Sequence, TransactionId};
use crate::lock;
use crate::progress::Meter;
use crate::rules::Rule;
use crate::store::Store;
use crate::store::commit_state::Guard;
use crate::store::queue::{Landing, Logged, Pending};
use crate::transaction::view_slot::Committing;
use crate::view::part::{LandedPart, NoPart, Part};
use crate::view::{Outdated, View};
use crate::write_set::WriteSet;

/// Finds the part of a transaction's changes that is to land.
pub(crate) fn choose<D: Disk>(view: &mut View<D>, paths: &[Vec<u8>]) -> Result<Part, CommitError> {
    if view.reads.is_some() {
        let reason = "what is left may depend on everything that it has read";
        return Err(CommitError::OnlyWhole { reason });
    }
    view.part_to_land(paths).map_err(no_part)
}

pub(crate) fn no_part(error: NoPart) -> CommitError {
    match error {
        NoPart::Unchanged { path } => CommitError::Unchanged {
            path: String::from_utf8_lossy(&path).into_owned(),
        },
        NoPart::Unknown { path, errno } => CommitError::io("look at", &path, errno),
    }
}

/// Refuses to land an object of which others have committed another part since the snapshot.
/// The transaction would otherwise see that part from now on, and not the rest of their
/// commit.
pub(crate) fn refuse_merged<D: Disk>(view: &View<D>, set: &WriteSet) -> Result<(), CommitError> {
    let written = set.objects.iter().filter(|object| !object.is_implied);
    let merged = written.filter_map(|object| {
        let newest = object.base.state().changed().and_then(|changed| {
            changed.newest_but(|sequence| sequence <= view.at || view.landed.is_own(sequence))
        })?;
        Rule::LandedWhole.holds().then(|| Conflict {
            path: object.path.to_bytes(),
            what: ConflictKind::OtherPart,
            by: ChangedBy::commit(newest),
        })
    });
    let conflicts: Vec<Conflict> = merged.collect();
    match conflicts.is_empty() {
        true => Ok(()),
        false => Err(CommitError::Conflict(conflicts)),
    }
}

impl<D: Disk> Store<D> {
    /// Waits until a logged part is in the base, with the view out of the transaction.
    pub(crate) fn land(
        &self,
        mut state: Guard<'_, D>,
        (logged, part): (Logged<D>, Part),
        mut committing: Committing<'_, D>,
        meter: &mut Meter<'_>,
    ) -> Result<Committed, CommitError> {
        let id = TransactionId(logged.record.transaction);
        let sequence = Sequence(logged.record.sequence);
        let landed = logged.record.summary.clone();
        let outdated = part.nodes().into_iter().map(Outdated::Node).collect();
        // A transaction that is being committed is among the open ones.
        let transaction = self.transaction(id).ok_or(CommitError::Ended)?;
        transaction.note_landed(sequence);
        let landing = Landing {
            transaction,
            view: committing.take_over(),
            part,
        };
        state.stages.insert(self.0.core.stages.of(id));
        // Also if the transaction is lazy: the view needs the part in the base.
        let pending = Pending::part(logged, landing);
        state.queue.push(&self.0.core, pending);
        self.0.gate.entered();
        let applied = self.wait_until_applied(state, sequence, meter);
        if let Err(CommitError::Logged(_)) = &applied {
            drop(self.take_landing(id));
            self.ended(id);
        }
        let stalled = applied?;
        Ok(Committed {
            sequence: Some(sequence),
            changes: landed.len() as u64,
            outdated,
            landed,
            dropped: Vec::new(),
            stalled,
        })
    }

    /// Lets the transaction go on, after its part was published.
    pub(crate) fn finish_landing(&self, mut landing: Landing<D>, pending: &Pending<D>) {
        let Some(view) = &mut landing.view else {
            return;
        };
        // Its snapshot now differs from every point in the commit order, so it survives no longer.
        // Until here, a death leaves either the whole transaction or the part in the base.
        view.end_log();
        landing.transaction.hold_past(false);
        let sequence = Sequence(pending.record.sequence);
        let created = self.created_nodes(view, &pending.set, sequence);
        view.land_part(LandedPart {
            part: &landing.part,
            set: &pending.set,
            staging: pending.staging,
            sequence,
            created,
        });
        let transaction = &landing.transaction;
        transaction.share.update(|| view.kept_objects());
        let writers = &self.0.contention.writers;
        if writers.is_needed() {
            writers.landed(&transaction.author(), &view.written());
            self.wake_calls();
        }
    }

    /// The base objects of the new nodes.
    fn created_nodes(
        &self,
        view: &View<D>,
        set: &WriteSet,
        sequence: Sequence,
    ) -> Vec<(NodeId, Arc<crate::base::Base>)> {
        let core = &*self.0.core;
        let mut known = vec![None; set.created.len()];
        let mut nodes = Vec::new();
        for (index, created) in set.created.iter().enumerate() {
            let is_new = view
                .node(created.node)
                .is_ok_and(|node| node.base.is_none());
            if !is_new {
                continue;
            }
            // An outside writer may have removed it already.
            let base = created_directory(core, set, index, &mut known);
            let Some(base) = base.filter(|base| base.identity() == created.identity) else {
                continue;
            };
            if base.kind != Kind::Directory
                && let Ok(stat) = core.stat_now(&base)
            {
                // Otherwise it would be taken for the work of an outside writer.
                let stamp = Stamp::of(&stat);
                let left_by = sequence;
                let own_stamp = OwnStamp { stamp, left_by };
                base.state().history_mut().changed.own_stamp = Some(own_stamp);
                lock(&self.0.retained).insert(base.serial, base.clone());
            }
            nodes.push((created.node, base));
        }
        nodes
    }
}
