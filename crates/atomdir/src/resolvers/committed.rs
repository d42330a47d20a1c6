//! Commits through a service.

use super::undone::{Views, read_file, write};
use super::{Patterns, Rewrite, appended, by_path, equal_index, is_of_index};
use crate::connection::Connection;
use crate::error::{CommitError, RequestError};
use crate::requests::CommittedPortion;
use crate::settings::Settings;
use crate::three_way::{InView, Side, SnapshotContents, TEXT_LENGTH_MAX, ThreeWay, Versions};
use crate::transaction::Transaction;
use atomdir_protocol::{
    ChangedBy, Conflict, Isolation, Numbers, Others, Portion, Progress, Sides, TransactionId,
};
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeSet;

const SAVEPOINT: &[u8] = b"before both have appended";

impl Connection {
    /// Like [`commit`](Self::commit), of so much, and for a transaction that others may hold.
    pub fn commit_portion(
        &mut self,
        transaction: TransactionId,
        portion: &Portion,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CommittedPortion, CommitError> {
        let refused = match self.commit_if_untouched(transaction, portion, others, progress) {
            Err(refused @ CommitError::Conflict { .. }) if *portion == Portion::All => refused,
            committed => return committed,
        };
        let CommitError::Conflict { conflicts, .. } = &refused else {
            return Err(refused);
        };
        let Some(mine) = self.reconcile(transaction, conflicts) else {
            return Err(refused);
        };
        let portion = Portion::Sides(Sides {
            mine: Numbers::These(mine),
            theirs: Numbers::These(Vec::new()),
        });
        let committed = self.commit_if_untouched(transaction, &portion, others, progress);
        if committed.is_err() {
            // Otherwise the next attempt would find what the others have appended on both sides. If
            // there is no savepoint, nothing was written.
            let _ = self.roll_back(transaction, SAVEPOINT);
        }
        committed
    }

    /// The numbers of the conflicts, if in all of them the files of others are equal to what the
    /// transaction has found, or both have only appended; what the others have appended is in the view
    /// then. Whatever others change after the list is made refuses the commit.
    fn reconcile(&mut self, transaction: TransactionId, refused: &[Conflict]) -> Option<Vec<u64>> {
        let patterns = self.patterns();
        let is_known = |conflict: &Conflict| is_of_index(conflict) || patterns.have(&conflict.path);
        if !refused.iter().all(is_known) {
            return None;
        }
        let listed = self.list_conflicts(transaction).ok()?;
        if listed.is_empty() || !listed.iter().all(is_known) {
            return None;
        }
        let status = self.status(transaction).ok()?;
        let changes = by_path(&self.changes(transaction).ok()?);
        let view = self.open_view(transaction).ok()?;
        let mut texts = Vec::new();
        for conflict in &listed {
            if is_of_index(conflict) {
                let views = Views::new(self, &view, BTreeSet::new()).ok()?;
                let is_outside = conflict.by == ChangedBy::Outside;
                is_outside.then(|| equal_index(&views, &conflict.path, &changes))??;
            } else if status.isolation != Isolation::Serializable {
                texts.push(self.both_appended(&view, conflict)?);
            } else {
                return None;
            }
        }
        self.append(&view, &texts)?;
        Some((1..=listed.len() as u64).collect())
    }

    /// The files to which both sides may append.
    fn patterns(&self) -> Patterns {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let control = self
            .control()
            .and_then(|path| open(path, flags, Mode::empty()).ok());
        let settings = control.and_then(|control| Settings::read(control).ok());
        settings
            .map(|settings| settings.appended())
            .unwrap_or_default()
    }

    /// A file to which both have appended, as it is to be in the view.
    fn both_appended(&mut self, view: &Transaction, conflict: &Conflict) -> Option<Rewrite> {
        let path = &conflict.path[..];
        let mut versions = InConflict {
            connection: self,
            view,
        };
        let texts = ThreeWay::look_up(&mut versions, path, conflict.what);
        let texts = texts.ok()?.ok()?;
        Some(Rewrite {
            path: path.to_vec(),
            contents: Some(appended::both(&texts)?),
            found: texts.mine,
        })
    }

    /// Writes the files in the view, or none.
    fn append(&mut self, view: &Transaction, texts: &[Rewrite]) -> Option<()> {
        if texts.is_empty() {
            return Some(());
        }
        let root = view.root().ok()?;
        self.set_savepoint(view.id, SAVEPOINT).ok()?;
        match texts.iter().all(|one| write(root, one).is_some()) {
            true => Some(()),
            false => {
                self.roll_back(view.id, SAVEPOINT).ok()?;
                None
            }
        }
    }
}

struct InConflict<'a> {
    connection: &'a mut Connection,
    view: &'a Transaction,
}

impl Versions for InConflict<'_> {
    type Error = RequestError;

    fn on_side(
        &mut self,
        side: Side,
        path: &[u8],
    ) -> Result<Option<SnapshotContents>, RequestError> {
        let side = (self.view.id, side);
        self.connection.object_of(side, path, TEXT_LENGTH_MAX)
    }

    /// A file that cannot be read counts as none.
    fn in_view(&mut self, path: &[u8]) -> Result<InView, RequestError> {
        let root = self.view.root().ok();
        let read = root.and_then(|root| read_file(root, path, TEXT_LENGTH_MAX));
        Ok(read.map_or(InView::NoFile, |(contents, _)| InView::File(contents)))
    }
}
