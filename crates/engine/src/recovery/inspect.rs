//! Finds out what recovery would do, without changing anything.

use std::collections::HashSet;

use atomdir_disk::{Access, Disk, Errno};
use atomdir_format::past::PastRecord;
use atomdir_format::record::LogRecord;
use atomdir_types::{CommitDetails, CommitSummary};

use crate::control::log_elsewhere::LogAt;
use crate::error::StoreError;
use crate::log::past::kept_by;
use crate::log::read_records;
use crate::log::recent::RecentCommit;
use crate::names::{self, InLimbo};
use crate::recovery::control_files::{self, ControlFiles};
use crate::recovery::log_file::read_log;
use crate::recovery::survivors::Survivors;
use crate::recovery::{read_history, staged};
use crate::store::Store;

/// The work that recovery would do.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// Damage for which recovery would refuse to touch the store; empty if there
    /// is none.
    pub damage: Vec<Damage>,
    /// The commits that recovery would bring into the base, oldest first.
    pub commits: Vec<CommitSummary>,
    /// How many commits `log` would list: those of the history, and those in the log.
    pub commits_in_history: u64,
    /// The length of the log up to the end of its last whole record.
    pub log_bytes: u64,
    /// The bytes that recovery would cut off the log.
    pub torn_tail: Option<TornTail>,
    /// Transactions that were open when the store was last used.
    pub transactions_unfinished: u64,
    /// How many objects recovery would remove from the staging directory and from
    /// limbo.
    pub leftovers: u64,
}

#[derive(Debug, Clone)]
pub struct Damage {
    /// The name of the file in the control directory.
    pub file: &'static str,
    /// The offset in the file, if it is known.
    pub offset: Option<u64>,
    /// Names both.
    pub error: StoreError,
}

/// Bytes that never were a whole record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    pub offset: u64,
    pub bytes: u64,
}

/// The part of a log record that the inspection looks at.
enum InspectedRecord {
    /// A commit, with the objects that it keeps in limbo if the store keeps what commits replace.
    Commit(CommitSummary, Option<Vec<InLimbo>>),
    Cancels(u64),
}

impl<D: Disk> Store<D> {
    /// Inspects a store that no process has open. Only reads.
    pub fn inspect(
        disk: &D,
        root: &D::Handle,
        control: D::Handle,
    ) -> Result<Inspection, StoreError> {
        Store::inspect_with_log(disk, root, (control, LogAt::Inside))
    }

    /// Like [`Store::inspect`], for a store whose log may be elsewhere.
    pub fn inspect_with_log(
        disk: &D,
        root: &D::Handle,
        (control, log): (D::Handle, LogAt<D>),
    ) -> Result<Inspection, StoreError> {
        let mut inspection = Inspection::default();
        let opened = control_files::open(disk, root, (control, &log), Access::Read);
        if let Some(control) = inspection.heed(opened)? {
            inspection.look(disk, &control)?;
        }
        Ok(inspection)
    }
}

impl Inspection {
    /// Reports damage, and returns `None` for it.
    fn heed<T>(&mut self, found: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        let (file, offset, error) = match found {
            Ok(found) => return Ok(Some(found)),
            Err(error @ StoreError::Header { .. }) => (names::HEADER, None, error),
            Err(error @ StoreError::Copied { .. }) => (names::HEADER, None, error),
            Err(error @ StoreError::Log { .. }) => (names::LOG, None, error),
            Err(error @ StoreError::Damaged { file, offset, .. }) => (file, Some(offset), error),
            Err(error) => return Err(error),
        };
        self.damage.push(Damage {
            file,
            offset,
            error,
        });
        Ok(None)
    }

    fn look<D: Disk>(&mut self, disk: &D, control: &ControlFiles<D>) -> Result<(), StoreError> {
        let (handles, header) = (&control.handles, &control.header);
        let keep = |record: LogRecord| match record {
            LogRecord::Commit(commit) => {
                let kept = commit.before.is_some().then(|| kept_by(&commit).collect());
                InspectedRecord::Commit(CommitDetails::from(commit).summary, kept)
            }
            LogRecord::Cancellation(record) => InspectedRecord::Cancels(record.cancelled),
        };
        let log = self.heed(read_log(disk, &control.log, &handles.applied, header, keep))?;
        let mut kept = self.heed(kept_in_past(disk, control))?.unwrap_or_default();
        let mut in_history = 0;
        let count = |commit: RecentCommit| {
            // An interrupted checkpoint may have added commits that are also in the log.
            in_history += u64::from(commit.sequence.0 <= header.last_sequence);
        };
        let history = self.heed(read_history(disk, &control.history, header.store_id, count))?;
        let history = history.map_or_else(Vec::new, |history| history.records);
        if let Some(log) = log {
            self.log_bytes = log.tail;
            self.torn_tail = (log.torn_bytes > 0).then_some(TornTail {
                offset: log.tail,
                bytes: log.torn_bytes,
            });
            let cancelled = log.records.iter().filter_map(|logged| match logged {
                InspectedRecord::Commit(..) => None,
                InspectedRecord::Cancels(cancelled) => Some(*cancelled),
            });
            let cancelled: HashSet<u64> = cancelled.collect();
            for logged in log.records {
                let InspectedRecord::Commit(commit, kept_by_it) = logged else {
                    continue;
                };
                if cancelled.contains(&commit.sequence.0) {
                    continue;
                }
                self.commits.push(commit);
                match kept_by_it {
                    Some(more) => kept.extend(more),
                    // The past begins anew after such a commit.
                    None => kept.clear(),
                }
            }
        }
        self.commits_in_history = in_history + self.commits.len() as u64;
        let in_log = self.commits.iter();
        let in_log = in_log.map(|commit| (commit.sequence, commit.transaction));
        let staged = staged(disk, &handles.stage, in_log, &history)?;
        let survivors = Survivors::find(disk, handles, staged)?;
        self.transactions_unfinished = survivors.discarded.len() as u64;
        let list = |directory| disk.list(directory).map_err(failed("list leftovers"));
        let is_kept = |name| names::parse_limbo(name).is_some_and(|object| kept.contains(&object));
        let in_limbo = list(&handles.limbo)?;
        let in_limbo = in_limbo.iter().filter(|entry| !is_kept(&entry.name));
        let surviving = survivors.stages();
        let staged = list(&handles.stage)?;
        let staged = staged
            .iter()
            .filter(|entry| !surviving.contains(&entry.name));
        self.leftovers = (staged.count() + in_limbo.count()) as u64;
        Ok(())
    }
}

/// The objects in limbo that commits keep which have left the log.
fn kept_in_past<D: Disk>(
    disk: &D,
    control: &ControlFiles<D>,
) -> Result<HashSet<InLimbo>, StoreError> {
    let (mut kept, mut newest) = (HashSet::new(), 0);
    let last_sequence = control.header.last_sequence;
    if let Some(file) = &control.past {
        let id = control.header.store_id;
        read_records(disk, file, id, u64::MAX, |record: PastRecord| {
            if record.record.sequence() <= last_sequence {
                newest = record.record.sequence();
                kept.extend(record.record.commit().into_iter().flat_map(kept_by));
            }
            None::<()>
        })?;
    }
    if newest < last_sequence {
        kept.clear();
    }
    Ok(kept)
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
