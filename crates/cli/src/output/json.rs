//! JSON objects that more than one verb prints with `--json`. docs/json.md
//! describes every object.

use super::time;
use crate::changes::{Right, Rights};
use atomdir::client::{
    ChangeLine, Conflict, EarlyReason, EndedHow, EndedTransaction, ForgottenEarly, HistoryStatus,
    LockStatus, Survival, TransactionStatus, View, describe_end,
};
use atomdir::{ChangedBy, CommitSummary, LockScope};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The bytes of a path or a label: a string if they are UTF-8, otherwise
/// `{"bytes": "..."}` in hexadecimal.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(pub &'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let bytes: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("bytes", &bytes)?;
                map.end()
            }
        }
    }
}

/// For fields that own their text.
pub fn text<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    Text(bytes).serialize(serializer)
}

#[derive(Serialize)]
pub struct Change<'a> {
    /// A, M, D, R or T.
    pub change: char,
    pub path: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Text<'a>>,
    /// The rights that the changed object gives programs: `set-user-id`,
    /// `set-group-id`, `capabilities`, `character device` or `block device`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub rights: &'a [&'static str],
}

impl<'a> From<&'a ChangeLine> for Change<'a> {
    fn from(line: &'a ChangeLine) -> Change<'a> {
        Change {
            change: line.change.letter(),
            path: Text(&line.path),
            from: line.from.as_deref().map(Text),
            rights: &[],
        }
    }
}

pub fn changes<'a>(lines: &'a [ChangeLine], rights: Option<&'a Rights>) -> Vec<Change<'a>> {
    let right = |place| rights.and_then(|rights| rights.of(place));
    let lines = lines.iter().enumerate();
    let changes = lines.map(|(place, line)| Change {
        rights: right(place).map_or(&[], Right::words),
        ..Change::from(line)
    });
    changes.collect()
}

#[derive(Serialize)]
pub struct Transaction<'a> {
    pub transaction: u64,
    pub owner: u32,
    pub label: Text<'a>,
    pub began: String,
    pub isolation: &'static str,
    pub durability: &'static str,
    pub conflicts: &'static str,
    pub detached: bool,
    pub sealed: bool,
    /// Native views have no path.
    pub view: Option<Text<'a>>,
    pub view_kind: &'static str,
    pub locks: Vec<Lock<'a>>,
    pub outer: Option<u64>,
    pub nested: Vec<u64>,
    pub holders: &'a [u32],
    pub savepoints: Vec<Text<'a>>,
    /// The commit after which its view shows the store, if that is a view of the past.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub past: Option<u64>,
    /// For a view of the past: the space that forgotten commits take until it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_bytes: Option<u64>,
    /// How many commits the history keeps for it, whatever its limits are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_commits: Option<u64>,
    /// The space of those that are beyond the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// Whether it outlives its service.
    pub survives: bool,
    /// Why it does not, if it is detached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_because: Option<&'a str>,
    /// Why it cannot be opened again, if it has survived its service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stranded: Option<&'a str>,
    /// Why it is open again, if its lazy commit was set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<&'a str>,
    /// The transaction of another store that decides whether it commits, if it has voted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt<'a>>,
    /// The transactions that are only committed together, this one among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub linked: Vec<Linked<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<ConflictLine<'a>>,
}

/// A transaction of a store.
#[derive(Serialize)]
pub struct Linked<'a> {
    pub store: Text<'a>,
    pub transaction: u64,
}

/// What a transaction that has voted waits for.
#[derive(Serialize)]
pub struct InDoubt<'a> {
    pub store: Text<'a>,
    pub transaction: u64,
    /// Why it still waits, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

/// A transaction that has ended otherwise than its user wanted.
#[derive(Serialize)]
pub struct Ended<'a> {
    pub transaction: u64,
    pub owner: u32,
    pub label: Text<'a>,
    pub began: String,
    pub ended: String,
    /// `aborted`, `max_age`, `stopped` or `died`.
    pub how: &'static str,
    /// The user who has ended it, if that was a user.
    pub by: Option<u32>,
    /// About how many objects it had changed, if that is known.
    pub changes_count: Option<u64>,
    pub message: String,
}

impl<'a> From<&'a EndedTransaction> for Ended<'a> {
    fn from(one: &'a EndedTransaction) -> Ended<'a> {
        let (how, by) = match one.how {
            EndedHow::Aborted { by } => ("aborted", Some(by)),
            EndedHow::Age { .. } => ("max_age", None),
            EndedHow::Stopped { by } => ("stopped", by),
            EndedHow::Died => ("died", None),
        };
        Ended {
            transaction: one.transaction.0,
            owner: one.owner,
            label: Text(&one.label),
            began: time::precise(one.began),
            ended: time::precise(one.ended),
            how,
            by,
            changes_count: one.changes,
            message: describe_end(one.how),
        }
    }
}

#[derive(Serialize)]
pub struct Lock<'a> {
    pub path: Text<'a>,
    pub mode: &'static str,
    /// `object`, `range` or `subtree`.
    pub scope: &'static str,
    /// For a range: its bytes; the end is not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// If false, the request still waits.
    pub granted: bool,
}

impl<'a> From<&'a LockStatus> for Lock<'a> {
    fn from(lock: &'a LockStatus) -> Lock<'a> {
        let (scope, range) = match lock.scope {
            LockScope::Object => ("object", None),
            LockScope::Subtree => ("subtree", None),
            LockScope::Bytes { start, end } => ("range", Some((start, end))),
        };
        Lock {
            path: Text(&lock.path),
            mode: super::lock_mode_word(lock.mode),
            scope,
            start: range.map(|(start, _)| start),
            end: range.map(|(_, end)| end),
            granted: lock.granted,
        }
    }
}

impl<'a> From<&'a TransactionStatus> for Transaction<'a> {
    fn from(status: &'a TransactionStatus) -> Transaction<'a> {
        Transaction {
            transaction: status.transaction.0,
            owner: status.owner,
            label: Text(&status.label),
            began: time::precise(status.began),
            isolation: super::isolation_word(status.isolation),
            durability: super::durability_word(status.durability),
            conflicts: super::conflicts_word(status.conflicts),
            locks: status.locks.iter().map(Lock::from).collect(),
            met: conflicts(&status.met),
            detached: status.detached,
            sealed: status.sealed,
            view: (status.view == View::Exact).then_some(Text(&status.view_path)),
            view_kind: match status.view {
                View::Exact => "exact",
                View::Native => "native",
                View::Exclusive => "exclusive",
            },
            outer: status.outer.map(|outer| outer.0),
            nested: status.nested.iter().map(|nested| nested.0).collect(),
            holders: &status.holders,
            savepoints: status.savepoints.iter().map(|name| Text(name)).collect(),
            past: status.past.map(|commit| commit.0),
            held_bytes: status.past.map(|_| status.held_bytes),
            kept_commits: (status.kept_commits > 0).then_some(status.kept_commits),
            kept_bytes: (status.kept_commits > 0).then_some(status.kept_bytes),
            survives: status.survival == Survival::Survives,
            ends_because: match &status.survival {
                Survival::Ends { reason } => reason.as_deref(),
                Survival::Stranded { .. } | Survival::Survives => None,
            },
            stranded: match &status.survival {
                Survival::Stranded { reason } => Some(reason),
                Survival::Ends { .. } | Survival::Survives => None,
            },
            set_aside: status.set_aside.as_deref(),
            in_doubt: status.in_doubt.as_ref().map(|in_doubt| InDoubt {
                store: Text(&in_doubt.coordinator.root),
                transaction: in_doubt.coordinator.transaction.0,
                reason: in_doubt.reason.as_deref(),
            }),
            linked: (status.linked.iter())
                .map(|one| Linked {
                    store: Text(&one.root),
                    transaction: one.transaction.0,
                })
                .collect(),
        }
    }
}

#[derive(Serialize)]
pub struct Commit<'a> {
    pub commit: u64,
    pub transaction: u64,
    pub time: String,
    pub user: u32,
    pub label: Text<'a>,
    pub changes_count: u64,
    /// The commits that it took back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub takes_back: Vec<u64>,
    /// It cannot be undone, because what it replaced is not kept.
    pub forgotten: bool,
    pub pinned: bool,
    /// The commit that has taken it back.
    pub undone_by: Option<u64>,
    /// When it takes itself back, if nobody confirms it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_by: Option<String>,
    /// It could not be taken back: in how many places others had changed the same since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_taken_back: Option<u64>,
}

impl<'a> From<&'a CommitSummary> for Commit<'a> {
    fn from(summary: &'a CommitSummary) -> Commit<'a> {
        Commit {
            commit: summary.sequence.0,
            transaction: summary.transaction.0,
            time: time::precise(summary.time),
            user: summary.user,
            label: Text(&summary.label),
            changes_count: summary.changes,
            takes_back: summary.takes_back.iter().map(|commit| commit.0).collect(),
            forgotten: summary.marks.forgotten,
            pinned: summary.marks.pinned,
            undone_by: summary.marks.undone_by.map(|commit| commit.0),
            confirm_by: summary.marks.unconfirmed.map(|one| time::precise(one.due)),
            not_taken_back: summary.marks.unconfirmed.and_then(|one| one.refused),
        }
    }
}

/// What is kept of commits, so that they can be undone.
#[derive(Serialize)]
pub struct History {
    commits: u64,
    bytes: u64,
    oldest_commit: Option<u64>,
    oldest_time: Option<String>,
    /// When commits were last forgotten before their time.
    #[serde(skip_serializing_if = "Option::is_none")]
    forgotten_early: Option<Early>,
}

#[derive(Serialize)]
struct Early {
    time: String,
    commits: u64,
    newest_commit: u64,
    /// `space`, `free_space`, `too_many` or `asked`.
    why: &'static str,
}

impl From<ForgottenEarly> for Early {
    fn from(early: ForgottenEarly) -> Early {
        Early {
            time: time::precise(early.time),
            commits: early.commits,
            newest_commit: early.newest.0,
            why: match early.why {
                EarlyReason::Space => "space",
                EarlyReason::FreeSpace => "free_space",
                EarlyReason::TooMany => "too_many",
                EarlyReason::Asked => "asked",
            },
        }
    }
}

impl From<HistoryStatus> for History {
    fn from(status: HistoryStatus) -> History {
        History {
            commits: status.commits,
            bytes: status.bytes,
            oldest_commit: status.oldest.map(|(sequence, _)| sequence.0),
            oldest_time: status.oldest.map(|(_, made)| time::precise(made)),
            forgotten_early: status.early.map(Early::from),
        }
    }
}

#[derive(Serialize)]
pub struct ConflictLine<'a> {
    path: Text<'a>,
    what: String,
    #[serde(flatten)]
    by: By<'a>,
}

/// Who made the change; `by` determines which other fields are there.
#[derive(Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
enum By<'a> {
    Outside,
    Outer {
        transaction: u64,
    },
    /// A transaction that is still open.
    Transaction {
        transaction: u64,
        label: Text<'a>,
    },
    Commit {
        commit: u64,
        /// These are missing if the history no longer has the commit.
        #[serde(skip_serializing_if = "Option::is_none")]
        transaction: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<Text<'a>>,
    },
}

pub fn conflicts(conflicts: &[Conflict]) -> Vec<ConflictLine<'_>> {
    conflicts.iter().map(conflict).collect()
}

pub fn conflict(conflict: &Conflict) -> ConflictLine<'_> {
    ConflictLine {
        path: Text(&conflict.path),
        what: conflict.what.to_string(),
        by: match &conflict.by {
            ChangedBy::Outside => By::Outside,
            ChangedBy::Outer { transaction } => By::Outer {
                transaction: transaction.0,
            },
            ChangedBy::Open { transaction, label } => By::Transaction {
                transaction: transaction.0,
                label: Text(label),
            },
            ChangedBy::Commit { sequence, author } => By::Commit {
                commit: sequence.0,
                transaction: author.as_ref().map(|author| author.transaction.0),
                label: author.as_ref().map(|author| Text(&author.label)),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_utf8_is_hexadecimal() {
        let json = |bytes: &[u8]| serde_json::to_string(&Text(bytes)).unwrap();
        assert_eq!(json("a\"ü".as_bytes()), "\"a\\\"ü\"");
        assert_eq!(json(b"a\xff"), r#"{"bytes":"61ff"}"#);
    }
}
