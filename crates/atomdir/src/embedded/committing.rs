//! Commits in this process: past the leases of others, and together with what they have appended.

use super::convert;
use super::session::EmbeddedTransaction;
use crate::api::{CommitError, InConflict, overwrite};
use crate::hosting::outlast_leases;
use crate::resolvers::{Changes, Patterns, Refused, Rewrite, commit_reconciled, has_equal_index};
use crate::settings::Settings;
use crate::three_way::{InView, Side, SnapshotContents, Versions};
use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine as engine;
use atomdir_types::{ChangeLine, Conflict, Isolation};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

type Committing = Result<engine::Committed, engine::CommitError>;

impl EmbeddedTransaction {
    pub(super) fn commit_by(
        &self,
        commit: impl Fn(&engine::Store<LinuxDisk>) -> Committing,
    ) -> Result<engine::Committed, CommitError> {
        self.try_commit(commit)?.map_err(convert::commit_error)
    }

    /// Commits the transaction, with what it and others have appended to the same files.
    pub(super) fn commit_whole(&self) -> Result<engine::Committed, CommitError> {
        let conflicts = match self.try_commit(|store| store.commit(&self.transaction))? {
            Err(engine::CommitError::Conflict(conflicts)) => conflicts,
            done => return done.map_err(convert::commit_error),
        };
        let committed = commit_reconciled(&mut InThisProcess(self), &conflicts, |_, mine| {
            let sides = engine::Sides {
                mine,
                theirs: Vec::new(),
            };
            self.commit_by(|store| {
                store.commit_portion(
                    &self.transaction,
                    engine::Portion::Sides(&sides),
                    &mut |_| {},
                )
            })
        });
        committed.unwrap_or_else(|| {
            let refused = engine::CommitError::Conflict(conflicts);
            Err(convert::commit_error(refused))
        })
    }

    /// Asks again while another program holds a lease on a file.
    fn try_commit(
        &self,
        commit: impl Fn(&engine::Store<LinuxDisk>) -> Committing,
    ) -> Result<Committing, CommitError> {
        let store = self.store.here()?;
        let is_leased =
            |tried: &Committing| matches!(tried, Err(engine::CommitError::Leased { .. }));
        let committed = outlast_leases(
            || commit(store),
            is_leased,
            |time| {
                std::thread::sleep(time);
                true
            },
        );
        if committed.is_ok() {
            self.store.ticks.wake();
        }
        Ok(committed)
    }
}

struct InThisProcess<'a>(&'a EmbeddedTransaction);

impl Refused for InThisProcess<'_> {
    fn patterns(&mut self) -> Patterns {
        let settings = Settings::read(&self.0.store.control);
        settings.map_or_else(|_| Patterns::default(), |settings| settings.appended())
    }

    fn list_conflicts(&mut self) -> Option<Vec<Conflict>> {
        let store = self.0.store.here().ok()?;
        store.list_conflicts(&self.0.transaction).ok()
    }

    fn isolation(&mut self) -> Option<Isolation> {
        Some(self.0.transaction.isolation())
    }

    fn changes(&mut self) -> Option<Vec<ChangeLine>> {
        self.0.engine().ok()?.changes().ok()
    }

    fn has_equal_index(&mut self, path: &[u8], changes: &Changes) -> bool {
        let EmbeddedTransaction {
            store, transaction, ..
        } = self.0;
        let options = engine::BeginOptions {
            isolation: Isolation::Snapshot,
            ..convert::options_of_another(transaction)
        };
        let index = (path, changes);
        let store = store.here();
        store.is_ok_and(|store| has_equal_index(store, transaction, index, options))
    }

    fn set_savepoint(&mut self, name: &[u8]) -> Option<()> {
        self.0.engine().ok()?.set_savepoint(name).ok()
    }

    fn roll_back(&mut self, name: &[u8]) -> Option<()> {
        self.0.engine().ok()?.roll_back(name).ok().map(drop)
    }

    fn write(&mut self, rewrite: &Rewrite) -> Option<()> {
        let path = &rewrite.path[..];
        if self.in_view(path).ok()? != InView::File(rewrite.found.clone()) {
            return None;
        }
        // Only an undo removes files.
        let contents = rewrite.contents.as_ref()?;
        let path = Path::new(OsStr::from_bytes(path));
        overwrite(self.0, path, (&rewrite.found, contents)).ok()
    }
}

impl Versions for InThisProcess<'_> {
    type Error = Errno;

    fn on_side(&mut self, side: Side, path: &[u8]) -> Result<Option<SnapshotContents>, Errno> {
        InConflict(self.0).on_side(side, path)
    }

    fn in_view(&mut self, path: &[u8]) -> Result<InView, Errno> {
        InConflict(self.0).in_view(path)
    }
}
