//! Commits through a service.

use super::undone::{Views, overwrite};
use super::{Patterns, appended, by_path, equal_index, is_of_index};
use crate::choosing::Sides;
use crate::connection::Connection;
use crate::error::{CommitError, RequestError};
use crate::settings::Settings;
use crate::three_way::{InView, Side, SnapshotContents, TEXT_LENGTH_MAX, ThreeWay, Versions};
use crate::transaction::Transaction;
use atomdir_protocol::{
    ChangedBy, Committed, Conflict, Isolation, Numbers, Others, Progress, TransactionId,
};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::{Errno, pread};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

const SAVEPOINT: &[u8] = b"before both have appended";

/// A file to which both have appended, open in the view, with what it gets there.
type Both = (OwnedFd, Vec<u8>);

impl Connection {
    /// Like [`commit`](Self::commit), for a transaction that others may hold.
    pub fn commit_with(
        &mut self,
        transaction: TransactionId,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let refused = match self.commit_if_untouched(transaction, others, progress) {
            Err(refused @ CommitError::Conflict { .. }) => refused,
            committed => return committed,
        };
        let CommitError::Conflict { conflicts, .. } = &refused else {
            return Err(refused);
        };
        let Some(mine) = self.reconcile(transaction, conflicts) else {
            return Err(refused);
        };
        let sides = Sides {
            mine: Numbers::These(mine),
            theirs: Numbers::These(Vec::new()),
        };
        let committed = self.commit_with_sides(transaction, &sides, others, progress);
        if committed.is_err() {
            // Otherwise the next attempt would find what the others have appended on both sides. If
            // there is no savepoint, nothing was written.
            let _ = self.roll_back(transaction, SAVEPOINT);
        }
        committed.map(|(committed, _)| committed)
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
        self.append(transaction, &texts)?;
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

    fn both_appended(&mut self, view: &Transaction, conflict: &Conflict) -> Option<Both> {
        let path = &conflict.path[..];
        let mut versions = InConflict {
            connection: self,
            view,
        };
        let texts = ThreeWay::look_up(&mut versions, path, conflict.what);
        let contents = appended::both(&texts.ok()?.ok()?)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let root = view.root().ok()?;
        let file = openat2(root, path, flags, Mode::empty(), BENEATH).ok()?;
        Some((file, contents))
    }

    /// Writes the files in the view, or none.
    fn append(&mut self, transaction: TransactionId, texts: &[Both]) -> Option<()> {
        if texts.is_empty() {
            return Some(());
        }
        self.set_savepoint(transaction, SAVEPOINT).ok()?;
        let written = |(file, contents): &Both| overwrite(file, contents).is_some();
        match texts.iter().all(written) {
            true => Some(()),
            false => {
                self.roll_back(transaction, SAVEPOINT).ok()?;
                None
            }
        }
    }
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

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

    /// What cannot be read counts as no file.
    fn in_view(&mut self, path: &[u8]) -> Result<InView, RequestError> {
        let read = || {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let root = self.view.root()?;
            let file = openat2(root, path, flags, Mode::empty(), BENEATH)?;
            let length = fstat(&file)?.st_size as u64;
            if length > TEXT_LENGTH_MAX {
                return Ok(InView::LongFile);
            }
            let mut contents = vec![0; length as usize];
            let mut filled = 0;
            while filled < contents.len() {
                match pread(&file, &mut contents[filled..], filled as u64)? {
                    0 => return Err(Errno::IO),
                    count => filled += count,
                }
            }
            Ok(InView::File(contents))
        };
        Ok(read().unwrap_or(InView::NoFile))
    }
}
