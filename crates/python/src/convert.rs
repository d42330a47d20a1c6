//! Converts arguments from Python, and results to Python.

use atomdir::client::describe_end;
use atomdir::{
    ChangedPath, CommitSummary, Conflicts, Durability, EndedHow, HistoryStatus, Isolation,
    Metadata, Receipt, Sequence, Take, Timestamp,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Finds the choice that `word` names, in a list of names and choices.
pub(crate) fn choose<T: Copy>(what: &str, word: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(name, _)| *name == word);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!(
            "{what} is '{word}', not one of: {}",
            names.join(", ")
        ))
    })
}

pub(crate) const ISOLATIONS: &[(&str, Isolation)] = &[
    ("snapshot", Isolation::Snapshot),
    ("serializable", Isolation::Serializable),
];

pub(crate) const DURABILITIES: &[(&str, Durability)] = &[
    ("durable", Durability::Durable),
    ("deferred", Durability::Deferred),
    ("lazy", Durability::Lazy),
];

pub(crate) const CONFLICTS: &[(&str, Conflicts)] =
    &[("commit", Conflicts::AtCommit), ("early", Conflicts::Early)];

pub(crate) const SIDES: &[(&str, Take)] = &[
    ("mine", Take::Mine),
    ("theirs", Take::Theirs),
    ("merge", Take::Merge),
];

/// Metadata as numbers: mode, inode, links, user, group, length, blocks, device number, and the
/// times of access, modification and change in nanoseconds since 1970.
pub(crate) type Stat = (u32, u64, u32, u32, u32, u64, u64, u64, i64, i64, i64);

pub(crate) fn stat(metadata: &Metadata) -> Stat {
    (
        metadata.kind.type_bits() | metadata.mode,
        metadata.inode,
        metadata.links,
        metadata.user,
        metadata.group,
        metadata.len,
        metadata.blocks,
        metadata.device_number,
        nanoseconds(metadata.accessed),
        nanoseconds(metadata.modified),
        nanoseconds(metadata.changed),
    )
}

fn nanoseconds(time: SystemTime) -> i64 {
    let whole = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => whole(since),
        Err(error) => -whole(error.duration()),
    }
}

/// Seconds since 1970, as Python's own functions use them.
pub(crate) fn seconds(time: Timestamp) -> f64 {
    nanoseconds(time.into()) as f64 / 1e9
}

/// An open transaction: its id, user and label, when it began in nanoseconds since 1970, whether it
/// survives, how many commits the history keeps for it, and the bytes of these beyond its limits.
pub(crate) type OpenTransaction = (u64, u32, OsString, i64, bool, u64, u64);

pub(crate) fn open_transaction(open: atomdir::OpenTransaction) -> OpenTransaction {
    let began = nanoseconds(open.began);
    let (id, kept) = (open.id.0, (open.kept_commits, open.kept_bytes));
    (
        id,
        open.user,
        open.label,
        began,
        open.survives,
        kept.0,
        kept.1,
    )
}

/// A transaction that was not ended by its user: its id, user and label, when it began and ended in
/// nanoseconds since 1970, how it ended, the user who ended it, a description of the end, and about
/// how many objects it had changed.
pub(crate) type EndedTransaction = (
    u64,
    u32,
    OsString,
    i64,
    i64,
    &'static str,
    Option<u32>,
    String,
    Option<u64>,
);

pub(crate) fn ended_transaction(one: atomdir::EndedTransaction) -> EndedTransaction {
    let (how, by) = match one.how {
        EndedHow::Aborted { by } => ("aborted", Some(by)),
        EndedHow::Age { .. } => ("max_age", None),
        EndedHow::Stopped { by } => ("stopped", by),
        EndedHow::Died => ("died", None),
    };
    let (began, ended) = (nanoseconds(one.began), nanoseconds(one.ended));
    let why = describe_end(one.how);
    let (id, user, label) = (one.id.0, one.user, one.label);
    (id, user, label, began, ended, how, by, why, one.changes)
}

/// How many commits can be undone, the space that their history takes, and the oldest of them with its
/// time in nanoseconds since 1970.
pub(crate) type History = (u64, u64, Option<(u64, i64)>);

pub(crate) fn history(kept: HistoryStatus) -> History {
    let oldest = kept.oldest;
    let oldest = oldest.map(|(sequence, time)| (sequence.0, nanoseconds(time.into())));
    (kept.commits, kept.bytes, oldest)
}

/// Converts a number of seconds. One that is too large becomes the longest duration.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// The letter of a change, its path, and the path before a rename.
pub(crate) type Change = (char, OsString, Option<OsString>);

pub(crate) fn change(changed: ChangedPath) -> Change {
    let from = changed.from.map(PathBuf::into_os_string);
    (changed.change.letter(), changed.path.into_os_string(), from)
}

/// The commit's place in the order, how many paths have changed, and the reason if it is stalled.
pub(crate) type Committed = (Option<u64>, u64, Option<String>);

pub(crate) fn committed(receipt: &Receipt) -> Committed {
    let sequence = receipt.sequence().map(|sequence| sequence.0);
    let stalled = receipt.stalled().map(str::to_owned);
    (sequence, receipt.changes(), stalled)
}

/// A commit's number, transaction, time in nanoseconds since 1970, user, label and number of
/// changes; and what has become of it.
pub(crate) type Commit = (u64, u64, i64, u32, OsString, u64, Marks);

/// Whether a commit is pinned, and forgotten; the commit that has undone it; until when it waits to
/// be confirmed, in nanoseconds since 1970; and in how many places it could not be taken back.
type Marks = (bool, bool, Option<u64>, Option<i64>, Option<u64>);

pub(crate) fn commit(summary: CommitSummary) -> Commit {
    let marks = summary.marks;
    let unconfirmed = marks.unconfirmed;
    (
        summary.sequence.0,
        summary.transaction.0,
        nanoseconds_of(summary.time),
        summary.user,
        OsString::from_vec(summary.label),
        summary.changes,
        (
            marks.pinned,
            marks.forgotten,
            marks.undone_by.map(|by| by.0),
            unconfirmed.map(|one| nanoseconds_of(one.due)),
            unconfirmed.and_then(|one| one.refused),
        ),
    )
}

fn nanoseconds_of(time: Timestamp) -> i64 {
    let nanoseconds = time.seconds.saturating_mul(1_000_000_000);
    nanoseconds.saturating_add(time.nanoseconds.into())
}

pub(crate) fn sequences(numbers: Vec<u64>) -> Vec<Sequence> {
    numbers.into_iter().map(Sequence).collect()
}

pub(crate) fn paths(paths: &[PathBuf]) -> Vec<&Path> {
    paths.iter().map(PathBuf::as_path).collect()
}

pub(crate) fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    match nanoseconds < 0 {
        true => SystemTime::UNIX_EPOCH - distance,
        false => SystemTime::UNIX_EPOCH + distance,
    }
}
