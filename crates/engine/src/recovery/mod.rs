//! Opening a store recovers it. The log's tail is composed into one state and applied.
//!
//! `control_files` opens the control directory, `log_file` reads the log, and `open` makes the [`Store`]. `adopt` makes a copied
//! store one of its own. `remake` makes
//! objects again that the log carries and a crash has lost. `survivors` opens transactions again
//! that survive their service, and `older` restores their snapshots. `leftovers` empties staging
//! directories. `relocate` moves the log, or gives one up. `inspect` says what recovery would do, and `check` verifies an open store; neither
//! changes anything.
//!
//! Invariants
//! 1. There is no [`Store`] that was not recovered.
//! 2. Recovery may die at any point and be run again.
//! 3. If durable data is damaged, recovery reports that and changes nothing.
//! 4. Afterwards the staging directory holds only what surviving transactions need (`survivors`),
//!    and limbo holds only what the history keeps.
//!
//! [`Store`]: crate::Store

pub(crate) mod adopt;
pub(crate) mod check;
mod control_files;
pub(crate) mod inspect;
mod leftovers;
pub(crate) mod log_file;
pub(crate) mod older;
mod open;
mod privileges;
pub(crate) mod relocate;
pub(crate) mod remake;
pub(crate) mod survivors;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicU64;

use atomdir_disk::{Disk, Errno, Identity, Name};
use atomdir_format::header::StoreId;
use atomdir_format::record::{CommitRecord, FormerPages, LogRecord};
use atomdir_format::summary::SummaryRecord;
use atomdir_types::RecoveryReport;

use crate::apply::{Apply, ApplyError, Desired, WritableFiles};
use crate::base::core::Core;
use crate::commit::remember;
use crate::control::{self, id_supply};
use crate::error::StoreError;
use crate::ids::{Sequence, TransactionId};
use crate::log::annotations::AnnotationFile;
use crate::log::forgotten::Forgotten;
use crate::log::journal::Journal;
use crate::log::past::PastFile;
use crate::log::past_limits::HistoryStatus;
use crate::log::recent::{RecentCommit, RecentCommits};
use crate::log::{Log, ReadRecords, read_records};
use crate::names;
use crate::options::Options;
use crate::progress::Meter;
use crate::recovery::control_files::ControlFiles;
use crate::recovery::leftovers::purge_foreign_slots;
use crate::recovery::log_file::read_log;
use crate::recovery::remake::remake;
use crate::recovery::survivors::Survivors;
use crate::store::commit_state::CommitState;
use crate::store::queue::Queue;

/// The outcome of a recovery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    pub report: RecoveryReport,
    /// Transactions that had staged something when the store was last used, and are dropped.
    pub discarded: Vec<Discarded>,
}

/// A transaction that did not survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discarded {
    pub id: TransactionId,
    /// How many objects it had staged. Objects that it had only renamed or removed do not count.
    pub changes: u64,
}

type Recovered<D> = (Core<D>, CommitState<D>, Recovery, Survivors);

pub(crate) fn recover<D: Disk>(
    disk: D,
    root: D::Handle,
    control: ControlFiles<D>,
    hidden: Option<Name>,
    options: Options,
) -> Result<Recovered<D>, StoreError> {
    let ControlFiles {
        handles,
        log,
        history,
        reserve,
        past,
        lock,
        header,
    } = control;
    let id = header.store_id;
    let read = read_log(&disk, &log, &handles.applied, &header, |record| record)?;
    let tail = read.records;
    let newest = tail
        .last()
        .map_or(header.last_sequence, LogRecord::sequence);
    assert!(
        newest >= header.last_sequence,
        "recovery takes a commit that has left the log for a new one"
    );
    let mut recent = RecentCommits::default();
    let summaries = read_history(&disk, &history, id, |commit| recent.note(commit))?;
    let (mut tail, mut cancelled) = without_cancelled(tail);
    distrust((&disk, &root), &mut tail, &mut cancelled)?;
    let in_log = tail.iter();
    let in_log = in_log.map(|of| (Sequence(of.sequence), TransactionId(of.transaction)));
    let staged = staged(&disk, &handles.stage, in_log, &summaries.records)?;
    let newest_commit = newest_commit(&tail, &summaries, header.last_sequence);
    let snapshots = newest_commit.unwrap_or(Sequence(newest))..=Sequence(newest);
    let mut survivors = Survivors::find(&disk, &handles, staged)?;
    let mut annotations = AnnotationFile::read(&disk, &handles.directory, id)?;
    let has_forgotten = annotations.forget_after(Sequence(newest));
    let log_start = log.start();
    let mut journal = Journal {
        newest_summary: summaries.records.last().map_or(0, |(last, _)| last.0),
        log_id: log.id,
        log: Log::new(log.handle, id, read.tail, newest)
            .beginning_at(log_start)
            .growing_by_zeros(options.log_step),
        history: Log::new(history, id, summaries.tail, header.last_sequence),
        header,
        newest: Sequence(newest),
        past: None,
        annotations,
        logged: HistoryStatus::default(),
        settled: BTreeMap::new(),
        has_garbage: false,
        forgotten: Forgotten::default(),
        recent,
        remade: HashMap::new(),
        cancelled,
    };
    let in_history = journal.newest_summary;
    let logged = tail.iter().filter(|record| record.sequence > in_history);
    logged.for_each(|record| journal.note_published(record));
    // The base had the changes before these records were written.
    tail.retain(|record| !record.is_outside);
    let mut state = CommitState {
        journal,
        reserve,
        reserved: AtomicU64::new(0),
        lock,
        queue: Queue::default(),
        stages: BTreeSet::new(),
        applied: HashSet::new(),
        history: options.history,
        last_commit: None,
        newest_undo: Sequence(0),
    };
    let recovery = found(&tail, (read.tail, read.torn_bytes), &survivors);
    let core = Core::new(disk, root, handles, hidden, options).map_err(failed("examine"))?;
    state.journal.annotations.publish(&core);
    state.journal.past = open_past(&core, past, state.journal.header.last_sequence)?;
    repair_history(&core, &mut state.journal, &summaries)?;
    redo(
        &core,
        &mut state,
        (&mut tail, &survivors),
        read.unproven,
        read.torn_bytes > 0,
    )?;
    if has_forgotten {
        let directory = &core.control.directory;
        let annotations = &state.journal.annotations;
        annotations.write(&core.disk, directory, id)?;
    }
    clean_up(&core, &mut state, &survivors)?;
    survivors.restore_older(&core, &mut state.journal, &snapshots)?;
    Ok((core, state, recovery, survivors))
}

fn found(
    tail: &[CommitRecord],
    (log_bytes, torn_tail_bytes): (u64, u64),
    survivors: &Survivors,
) -> Recovery {
    Recovery {
        report: RecoveryReport {
            commits_replayed: tail.len() as u64,
            bytes_replayed: if tail.is_empty() { 0 } else { log_bytes },
            transactions_discarded: survivors.discarded.len() as u64,
            torn_tail_bytes,
        },
        discarded: survivors.discarded.clone(),
    }
}

/// Cuts an incomplete record off the history, and writes those again that may not be durable.
fn repair_history<D: Disk, T>(
    core: &Core<D>,
    journal: &mut Journal<D>,
    read: &ReadRecords<T>,
) -> Result<(), StoreError> {
    if read.torn_bytes > 0 {
        let cut = journal.history.cut(&core.disk, read.tail);
        cut.map_err(failed("cut the history"))?;
    }
    if journal.newest_summary > journal.header.last_sequence {
        let written = journal.history.rewrite(&core.disk, read.unproven);
        written.map_err(failed("write the history again"))?;
    }
    Ok(())
}

/// Returns the commits in the log's tail that did happen, and the sequences that belong to none.
fn without_cancelled(tail: Vec<LogRecord>) -> (Vec<CommitRecord>, BTreeSet<u64>) {
    let (mut commits, mut cancelled) = (Vec::new(), BTreeSet::new());
    for record in tail {
        match record {
            LogRecord::Commit(commit) => commits.push(commit),
            LogRecord::Cancellation(record) => {
                cancelled.extend([record.cancelled, record.sequence]);
            }
        }
    }
    commits.retain(|commit| !cancelled.contains(&commit.sequence));
    (commits, cancelled)
}

/// Leaves out what programs outside have changed if the old pages are in limbo and the machine has
/// booted since: nobody has flushed these.
fn distrust<D: Disk>(
    (disk, root): (&D, &D::Handle),
    tail: &mut Vec<CommitRecord>,
    left_out: &mut BTreeSet<u64>,
) -> Result<(), StoreError> {
    let boot = remember::boot(disk, root).map_err(failed("ask for the boot of"))?;
    tail.retain(|record| {
        let mut former = record.before.iter().flat_map(|before| &before.objects);
        let is_unsure = record.is_outside
            && (boot.is_none() || boot != Some(record.stage))
            && former.any(|one| one.pages == FormerPages::Limbo);
        if is_unsure {
            left_out.insert(record.sequence);
        }
        !is_unsure
    });
    Ok(())
}

/// The newest commit that has happened. Later sequences belong to commits that were cancelled.
/// `None` if the history does not tell.
fn newest_commit(
    tail: &[CommitRecord],
    summaries: &ReadRecords<Summarized>,
    last_summary: u64,
) -> Option<Sequence> {
    if let Some(record) = tail.last() {
        return Some(Sequence(record.sequence));
    }
    if last_summary == 0 {
        // None has ever left the log, so none has happened.
        return Some(Sequence(0));
    }
    let (last, _) = summaries.records.last()?;
    let mut newest_first = summaries.records.iter().rev();
    let newest = newest_first.find(|(_, transaction)| transaction.is_some());
    let (newest, _) = newest.filter(|_| last.0 >= last_summary)?;
    Some(*newest)
}

/// A sequence in the history, and the transaction that made the commit; `None` if it belongs to no
/// commit.
type Summarized = (Sequence, Option<TransactionId>);

/// Reads which transaction made which commit.
pub(crate) fn read_history<D: Disk>(
    disk: &D,
    history: &D::Handle,
    id: StoreId,
    mut each: impl FnMut(RecentCommit),
) -> Result<ReadRecords<Summarized>, StoreError> {
    read_records(disk, history, id, u64::MAX, |summary: SummaryRecord| {
        let sequence = Sequence(summary.sequence);
        let transaction = summary.commit.map(|commit| {
            let transaction = TransactionId(commit.transaction);
            each(RecentCommit {
                sequence,
                transaction,
                user: commit.user,
            });
            transaction
        });
        Some((sequence, transaction))
    })
}

/// Returns the transactions that have staged something, each with its newest commit in the log and
/// the history, if there is one.
pub(crate) fn staged<D: Disk>(
    disk: &D,
    stage: &D::Handle,
    in_log: impl Iterator<Item = (Sequence, TransactionId)>,
    history: &[Summarized],
) -> Result<Vec<(TransactionId, Option<Sequence>)>, StoreError> {
    let mut newest: HashMap<TransactionId, Sequence> = HashMap::new();
    let in_history = history.iter();
    let in_history = in_history.filter_map(|(sequence, by)| Some((*sequence, (*by)?)));
    for (sequence, transaction) in in_history.chain(in_log) {
        newest.insert(transaction, sequence);
    }
    let staged = disk.list(stage).map_err(failed("list staged files"))?;
    let ids = staged
        .iter()
        .filter_map(|entry| names::slot_number(&entry.name))
        .map(TransactionId);
    Ok(ids.map(|id| (id, newest.get(&id).copied())).collect())
}

fn redo<D: Disk>(
    core: &Core<D>,
    state: &mut CommitState<D>,
    (tail, survivors): (&mut [CommitRecord], &Survivors),
    unproven: u64,
    torn: bool,
) -> Result<(), StoreError> {
    let unflushed = failed("flush the base");
    if torn {
        // The next flush makes the cut durable. Until then no crash can complete these bytes
        // to a record.
        let end = state.journal.log.length();
        state
            .journal
            .log
            .cut(&core.disk, end)
            .map_err(failed("cut the log"))?;
    }
    if !tail.is_empty() {
        // The records may have been read from the page cache only; the base must not get ahead
        // of the log on disk.
        state
            .journal
            .log
            .rewrite(&core.disk, unproven)
            .map_err(failed("write the log again"))?;
        state
            .journal
            .log
            .flush(&core.disk, state.journal.newest.0)
            .map_err(failed("flush the log"))?;
        assert!(
            state.journal.newest.0 <= state.journal.log.durable(),
            "recovery applies a record that is not durable"
        );
        let applied = core.control.applied.read(&core.disk);
        let applied = applied.map_err(failed("read the applied mark"))?;
        let applied = match applied {
            Some(applied) => write_again(core, state.journal.newest, tail, applied)?,
            None => None,
        };
        let mut note = match applied {
            Some(_) => None,
            None => privileges::read(core, state.journal.newest)?,
        };
        let is_applied = |record: &CommitRecord| applied >= Some(Sequence(record.sequence));
        let first_left = tail.partition_point(is_applied);
        let (done, left) = tail.split_at_mut(first_left);
        // If the applied mark holds, the system has not crashed, so no object was lost.
        let remakes = applied.is_none();
        let earlier: HashSet<Identity> = Desired::of(&*done, remakes).files().collect();
        let writers = WritableFiles::<D>::new();
        let mut identities = HashMap::new();
        let applied = state.with_reserve(core, || {
            let mut desired = Desired::of(&*left, remakes).with_privileges(note.as_ref());
            if remakes {
                let remade = remake(core, left, note.as_mut(), &desired)?;
                if !remade.is_empty() {
                    desired = Desired::of(&*left, remakes).with_privileges(note.as_ref());
                }
                identities.extend(remade);
            }
            let mut apply = Apply::new(core, &desired, &earlier, None, &writers);
            apply.replays = true;
            apply.run(&mut Meter::new(&mut |_| {}))?;
            // Nobody has read meanwhile.
            core.moving.forget_all();
            if apply.objects_missing > 0 {
                tracing::warn!(
                    objects = apply.objects_missing,
                    "taken away by outside writers after they were committed"
                );
            }
            Ok(())
        });
        applied.map_err(|error| match error.flush_failed {
            Some(errno) => unflushed(errno),
            None => StoreError::Apply {
                sequence: state.journal.newest,
                path: error.path,
                reason: error.reason,
            },
        })?;
        purge_foreign_slots(core, &survivors.stages(), tail)?;
        state.journal.remade = identities;
    }
    if state.journal.log.length() > 0 {
        let flush = || core.flush_base().map_err(unflushed);
        let flush_log = |log: &D::Handle| {
            let flushed = core.disk.sync_data(log);
            flushed.map_err(failed("flush the log"))
        };
        state.journal.retire_log(core, false, (flush, flush_log))?;
    }
    privileges::remove(core)?;
    // The header is flushed here anyway, so the first transaction need not do it.
    state.journal.header.transaction_high_water += id_supply::RESERVE_MIN;
    state.journal.write_header(core)
}

/// Writes contents again that the kernel may have failed to write (`apply::again`). Returns
/// `None` if the mark is cleared and the whole tail must be applied.
///
/// While this runs, files are in an older state. So the mark is cleared first: if this
/// recovery dies, the next one must not take the older state for an outside writer's change.
fn write_again<D: Disk>(
    core: &Core<D>,
    newest: Sequence,
    tail: &[CommitRecord],
    applied: Sequence,
) -> Result<Option<Sequence>, StoreError> {
    let mark = &core.control.applied;
    let (done, left) = tail.split_at(tail.partition_point(|of| of.sequence <= applied.0));
    let earlier = Desired::of(done, false).files().collect();
    let unfinished = Desired::of(left, false).updated().collect();
    let (all, writers) = (Desired::of(tail, true), WritableFiles::<D>::new());
    let mut again = Apply::new(core, &all, &earlier, None, &writers);
    again.leave_closed();
    privileges::write(core, newest, &mut again, &unfinished)?;
    mark.clear(&core.disk)
        .map_err(failed("clear the applied mark"))?;
    if let Err(ApplyError { path, reason, .. }) = again.write_again(&unfinished) {
        tracing::warn!(path, "not written again: {reason}");
        return Ok(None);
    }
    mark.advance(&core.disk, applied);
    Ok(Some(applied))
}

/// Opens the file `past`, and makes it if it is missing and the store keeps history. The header
/// is written before anything relies on its name.
fn open_past<D: Disk>(
    core: &Core<D>,
    file: Option<D::Handle>,
    last_sequence: u64,
) -> Result<Option<PastFile<D>>, StoreError> {
    match file {
        Some(file) => PastFile::open(core, file, last_sequence).map(Some),
        None if core.options.history.is_none() => Ok(None),
        None => PastFile::create(core, last_sequence).map(Some),
    }
}

fn clean_up<D: Disk>(
    core: &Core<D>,
    state: &mut CommitState<D>,
    survivors: &Survivors,
) -> Result<(), StoreError> {
    let kept = survivors.stages();
    control::purge(&core.disk, &core.control.stage, |name| kept.contains(name))
        .and_then(|()| state.journal.purge_limbo(core))
        .map_err(failed("remove leftovers"))?;
    state
        .empty_reserve(core)
        .map_err(failed("release reserved space"))
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
