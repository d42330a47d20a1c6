//! Objects in limbo that the history has forgotten, until they can be removed.
//!
//! Invariant: while snapshots are open, something is removed from limbo only if no commit keeps it,
//! no open snapshot shows it, and no open transaction was made from the past. So if others replace
//! a file again and again, an open transaction does not keep every version once the history forgets
//! them.

use std::collections::HashSet;

use atomdir_disk::{Disk, Errno, Identity};
use atomdir_format::record::CommitRecord;

use crate::base::OldBody;
use crate::base::core::Core;
use crate::control;
use crate::ids::Sequence;
use crate::log::past::kept_by;
use crate::names::{self, InLimbo};
use crate::write_set::WriteSet;

#[derive(Default)]
pub(crate) struct Forgotten {
    /// Objects that may still be in limbo though no commit keeps them.
    waiting: Vec<InLimbo>,
    /// Objects that commits keep in limbo and that snapshots open at the commit may show.
    shown: HashSet<InLimbo>,
    /// An upper bound for the space of the waiting objects.
    pub bytes: u64,
}

impl Forgotten {
    /// Notes the objects that a commit keeps for snapshots as well; `unseen` are the objects that
    /// no open snapshot shows. Call it before objects of the write set get other identities.
    pub fn note_shown(
        &mut self,
        record: &CommitRecord,
        set: &WriteSet,
        unseen: &HashSet<Identity>,
    ) {
        if record.before.is_none() {
            // Without history, a commit keeps nothing.
            return;
        }
        let sequence = Sequence(record.sequence);
        let saved: HashSet<Identity> = set
            .objects
            .iter()
            .filter(|object| {
                let state = object.base.state();
                let mut bodies = state.history.iter().flat_map(|history| &history.bodies);
                bodies.any(|(until, body)| {
                    *until == sequence && matches!(**body, OldBody::Pages { .. })
                })
            })
            .map(|object| object.base.identity())
            .collect();
        self.shown.extend(kept_by(record).filter(|kept| match kept {
            (object, None) => !unseen.contains(object),
            (object, Some(_)) => saved.contains(object),
        }));
    }

    pub fn add(&mut self, forgotten: Vec<InLimbo>, bytes: u64) {
        self.waiting.extend(forgotten);
        self.bytes += bytes;
    }

    /// Removes what no open snapshot shows. `is_needed` knows of other reasons to keep it.
    pub fn remove_unseen<D: Disk>(
        &mut self,
        core: &Core<D>,
        is_needed: impl Fn(&InLimbo) -> bool,
    ) -> Result<(), Errno> {
        let mut waiting = std::mem::take(&mut self.waiting);
        while let Some(one) = waiting.pop() {
            if self.shown.contains(&one) || is_needed(&one) {
                self.waiting.push(one);
                continue;
            }
            let name = names::in_limbo(one);
            if let Err(errno) = control::remove_tree(&core.disk, &core.control.limbo, &name) {
                self.waiting.push(one);
                self.waiting.append(&mut waiting);
                return Err(errno);
            }
            core.handles.forget(one.0);
        }
        if self.waiting.is_empty() {
            self.bytes = 0;
        }
        Ok(())
    }

    /// Limbo has only what commits keep, and no snapshot is open.
    pub fn clear(&mut self) {
        *self = Forgotten::default();
    }
}
