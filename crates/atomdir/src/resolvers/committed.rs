//! Commits through a service.

use super::reconciled::{Refused, commit_reconciled};
use super::undone::{Views, read_file, write};
use super::{Changes, Patterns, Rewrite, equal_index};
use crate::connection::Connection;
use crate::error::{CommitError, RequestError};
use crate::requests::CommittedPortion;
use crate::settings::Settings;
use crate::three_way::{InView, Side, SnapshotContents, TEXT_LENGTH_MAX, Versions};
use crate::transaction::Transaction;
use atomdir_protocol::{
    ChangeLine, Conflict, Isolation, Numbers, Others, Portion, Progress, Sides, TransactionId,
};
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeSet;

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
        let mut in_conflict = InConflict {
            connection: self,
            transaction,
            view: None,
        };
        let committed = commit_reconciled(&mut in_conflict, conflicts, |in_conflict, mine| {
            let portion = Portion::Sides(Sides {
                mine: Numbers::These(mine),
                theirs: Numbers::These(Vec::new()),
            });
            let connection = &mut *in_conflict.connection;
            connection.commit_if_untouched(transaction, &portion, others, progress)
        });
        committed.unwrap_or(Err(refused))
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
}

struct InConflict<'a> {
    connection: &'a mut Connection,
    transaction: TransactionId,
    /// Opened when it is first needed.
    view: Option<Transaction>,
}

impl InConflict<'_> {
    fn open_view(&mut self) -> Option<(&mut Connection, &Transaction)> {
        if self.view.is_none() {
            self.view = self.connection.open_view(self.transaction).ok();
        }
        Some((self.connection, self.view.as_ref()?))
    }
}

impl Refused for InConflict<'_> {
    fn patterns(&mut self) -> Patterns {
        self.connection.patterns()
    }

    fn list_conflicts(&mut self) -> Option<Vec<Conflict>> {
        self.connection.list_conflicts(self.transaction).ok()
    }

    fn isolation(&mut self) -> Option<Isolation> {
        let status = self.connection.status(self.transaction);
        Some(status.ok()?.isolation)
    }

    fn changes(&mut self) -> Option<Vec<ChangeLine>> {
        self.connection.changes(self.transaction).ok()
    }

    fn has_equal_index(&mut self, path: &[u8], changes: &Changes) -> bool {
        let Some((connection, view)) = self.open_view() else {
            return false;
        };
        let views = Views::new(connection, view, BTreeSet::new());
        views.is_ok_and(|views| equal_index(&views, path, changes).is_some())
    }

    fn set_savepoint(&mut self, name: &[u8]) -> Option<()> {
        self.connection.set_savepoint(self.transaction, name).ok()
    }

    fn roll_back(&mut self, name: &[u8]) -> Option<()> {
        self.connection.roll_back(self.transaction, name).ok()
    }

    fn write(&mut self, rewrite: &Rewrite) -> Option<()> {
        let (_, view) = self.open_view()?;
        write(view.root().ok()?, rewrite)
    }
}

impl Versions for InConflict<'_> {
    type Error = RequestError;

    fn on_side(
        &mut self,
        side: Side,
        path: &[u8],
    ) -> Result<Option<SnapshotContents>, RequestError> {
        let side = (self.transaction, side);
        self.connection.object_of(side, path, TEXT_LENGTH_MAX)
    }

    /// A file that cannot be read counts as none.
    fn in_view(&mut self, path: &[u8]) -> Result<InView, RequestError> {
        let root = self.open_view().and_then(|(_, view)| view.root().ok());
        let read = root.and_then(|root| read_file(root, path, TEXT_LENGTH_MAX));
        Ok(read.map_or(InView::NoFile, |(contents, _)| InView::File(contents)))
    }
}
