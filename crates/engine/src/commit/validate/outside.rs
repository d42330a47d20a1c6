//! Finds changes of outside writers by the traces they leave.
//!
//! A name was changed if it does not name the expected object. A file is compared
//! by its identity, length, modification time and change time (a [`Stamp`]). If
//! they are not those that the store's own last commit left behind, the last change
//! was an outside writer's, at the file's change time. It is a conflict if that is
//! not before the transaction's begin. Both times come from the file system's own
//! clock.
//!
//! A later commit of the store changes the stamp again and would hide the outside
//! change. So every validation notes it in the file's history as long as a
//! transaction is open that is older than the change: see `Changed::outside`.
//!
//! Two cases need no clock, which may have been set back: the file does not look as
//! it did when this transaction first looked at it, or the outside change came
//! after a commit that is not in this transaction's snapshot. Such a change counts
//! as made at the begin or later.

use atomdir_disk::Disk;
use atomdir_types::TreePath;

use super::Validation;
use crate::base::{Base, Stamp};
use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::rules::Rule;

/// Who has changed a file since the snapshot.
#[derive(Clone, Copy)]
pub(super) enum Suspect {
    Outside,
    /// A commit, and perhaps an outside writer after it: the service died before that was known.
    AlsoOutside {
        by: Sequence,
    },
}

impl Suspect {
    pub fn is_outside(self) -> bool {
        matches!(self, Suspect::Outside)
    }
}

impl<D: Disk> Validation<'_, D> {
    /// `now`: the file's present stamp; `first`: its stamp when the transaction first changed it.
    pub(super) fn is_changed_outside(&self, base: &Base, now: Stamp, first: Option<Stamp>) -> bool {
        self.suspect(base, now, first).is_some()
    }

    pub(super) fn suspect(&self, base: &Base, now: Stamp, first: Option<Stamp>) -> Option<Suspect> {
        let own = base.state().changed().and_then(|changed| changed.own_stamp);
        let is_ours = own.is_some_and(|own| own.stamp == now) && Rule::OwnStamp.holds();
        let is_newer =
            own.is_some_and(|own| own.left_by > self.at) && Rule::ChangedAfterNewerCommit.holds();
        let is_other = first.is_some_and(|first| first != now);
        let is_other = is_other && Rule::ChangedSinceFirstLook.holds();
        if !is_ours && (is_newer || is_other) {
            let at = now.changed().max(self.began);
            base.state().history_mut().changed.note_outside(at);
        } else {
            self.note_outside(Rule::OutsideRemembered, base, now);
        }
        let (outside, doubt) = match base.state().changed() {
            Some(changed) => (changed.outside, changed.doubt),
            None => (None, None),
        };
        let is_late = |at| at >= self.began || !Rule::ChangedBeforeBegin.holds();
        let is_remembered = outside.is_some_and(is_late);
        if is_remembered || (!is_ours && is_late(now.changed())) {
            return Some(Suspect::Outside);
        }
        let doubt = doubt.filter(|(until, _)| is_late(*until));
        doubt.map(|(_, by)| Suspect::AlsoOutside { by })
    }

    pub(super) fn conflict_with(&mut self, suspect: Suspect, rule: Rule, path: &TreePath) {
        let (what, by) = match suspect {
            Suspect::Outside => (ConflictKind::Contents, None),
            Suspect::AlsoOutside { by } => (ConflictKind::UnknownParts, Some(by)),
        };
        self.conflict(rule, path, what, by);
    }

    /// Remembers the change of an outside writer for the open transactions that are
    /// older than it, before a commit changes the file.
    pub(super) fn note_outside(&self, rule: Rule, base: &Base, now: Stamp) {
        let own = base.state().changed().and_then(|changed| changed.own_stamp);
        let is_ours = own.is_some_and(|own| own.stamp == now);
        if !is_ours && rule.holds() && now.changed() >= (self.oldest_began)() {
            base.state()
                .history_mut()
                .changed
                .note_outside(now.changed());
        }
    }
}
