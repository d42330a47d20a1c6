//! What recovery would do, found out without changing anything.

use atomdir_disk::{Access, Disk, Errno};
use atomdir_format::summary::SummaryRecord;

use crate::error::StoreError;
use crate::log::history::CommitSummary;
use crate::names;
use crate::recovery::control_files::{self, ControlFiles};
use crate::recovery::{read_history, read_log, unfinished};
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inspection {
    /// What recovery would refuse to touch the store for; empty when all is well.
    pub damage: Vec<Damage>,
    /// What it would bring into the base, oldest first.
    pub commits: Vec<CommitSummary>,
    /// Of the log up to the end of its last whole record.
    pub log_bytes: u64,
    /// What it would cut off the log.
    pub torn_tail: Option<TornTail>,
    /// Transactions that were open when the store was last used.
    pub transactions_unfinished: u64,
    /// What it would remove of the staging directory and of limbo.
    pub leftovers: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// In the control directory.
    pub file: &'static str,
    /// Where in the file, if that can be told.
    pub offset: Option<u64>,
    /// A sentence that names both.
    pub message: String,
}

/// Something that never was a whole record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    pub offset: u64,
    pub bytes: u64,
}

impl<D: Disk> Store<D> {
    /// Looks at a store that no process has open, and reads only.
    pub fn inspect(disk: &D, control: D::Handle) -> Result<Inspection, StoreError> {
        let mut inspection = Inspection::default();
        let opened = control_files::open(disk, control, Access::Read);
        if let Some(control) = inspection.heed(opened)? {
            inspection.look(disk, &control)?;
        }
        Ok(inspection)
    }
}

impl Inspection {
    /// What is damaged is told, and looked at no further.
    fn heed<T>(&mut self, found: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        let (file, offset, error) = match found {
            Ok(found) => return Ok(Some(found)),
            Err(error @ StoreError::Header { .. }) => (names::HEADER, None, error),
            Err(error @ StoreError::Copied) => (names::LOG, None, error),
            Err(error @ StoreError::Damaged { file, offset, .. }) => (file, Some(offset), error),
            Err(error) => return Err(error),
        };
        self.damage.push(Damage {
            file,
            offset,
            message: error.to_string(),
        });
        Ok(None)
    }

    fn look<D: Disk>(&mut self, disk: &D, control: &ControlFiles<D>) -> Result<(), StoreError> {
        let (handles, header) = (&control.handles, &control.header);
        let keep = |record| CommitSummary::from(SummaryRecord::from(record));
        let log = self.heed(read_log(disk, &control.log, &handles.applied, header, keep))?;
        let history = self.heed(read_history(disk, &control.history, header.store_id))?;
        let history = history.map_or_else(Vec::new, |history| history.records);
        if let Some(log) = log {
            self.log_bytes = log.tail;
            self.torn_tail = (log.torn_bytes > 0).then_some(TornTail {
                offset: log.tail,
                bytes: log.torn_bytes,
            });
            self.commits = log.records;
        }
        let stat = disk
            .stat(&handles.directory)
            .map_err(failed("examine the directory"))?;
        if stat.identity != header.control_identity && !self.commits.is_empty() {
            self.heed::<()>(Err(StoreError::Copied))?;
        }
        let in_log = self.commits.iter().map(|commit| commit.transaction);
        self.transactions_unfinished = unfinished(disk, &handles.stage, in_log, &history)?;
        for directory in [&handles.stage, &handles.limbo] {
            let entries = disk.list(directory).map_err(failed("list leftovers"))?;
            self.leftovers += entries.len() as u64;
        }
        Ok(())
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
