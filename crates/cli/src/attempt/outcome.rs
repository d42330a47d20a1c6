//! The outcome of a transaction, as a status descriptor and `--json` report it.

use super::is_conflict;
use crate::error::Error;
use crate::output::json;
use atomdir::TransactionId;
use atomdir::client::Committed;
use serde::{Serialize, Serializer};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Committed(Committed),
    Aborted,
    Kept,
}

/// A transaction and its outcome, or the error.
pub struct Finished<'a> {
    pub transaction: Option<TransactionId>,
    pub result: Result<Outcome, &'a Error>,
    pub exit_code: u8,
}

/// One line. For most readers its first word is enough.
impl fmt::Display for Finished<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = Number(self.transaction.map(|transaction| transaction.0));
        match &self.result {
            Ok(Outcome::Committed(committed)) => {
                let sequence = Number(committed.sequence.map(|sequence| sequence.0));
                write!(formatter, "committed {sequence}")
            }
            Ok(Outcome::Aborted) => formatter.write_str("aborted"),
            Ok(Outcome::Kept) => write!(formatter, "kept {id}"),
            Err(error) if is_conflict(error) => write!(formatter, "conflict {id}"),
            Err(error) => write!(formatter, "failed {} {error}", self.exit_code),
        }
    }
}

/// A number, or `-` when there is none.
struct Number(Option<u64>);

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => number.fmt(formatter),
            None => formatter.write_str("-"),
        }
    }
}

#[derive(Serialize)]
struct FinishedJson<'a> {
    outcome: &'static str,
    transaction: Option<u64>,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes_count: Option<u64>,
    /// Why the base does not show a durable commit yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<&'a str>,
    /// It takes itself back after so long unless it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirm_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// Set after a failed commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<json::ConflictLine<'a>>,
}

impl Serialize for Finished<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let explained = self.result.as_ref().err().map(|error| error.explain());
        let committed = match &self.result {
            Ok(Outcome::Committed(committed)) => Some(committed),
            _ => None,
        };
        FinishedJson {
            outcome: self.word(),
            transaction: self.transaction.map(|transaction| transaction.0),
            exit_code: self.exit_code,
            commit: committed
                .and_then(|committed| committed.sequence)
                .map(|sequence| sequence.0),
            changes_count: committed.map(|committed| committed.changes),
            open: match &self.result {
                Err(Error::Commit { open, .. }) => Some(*open),
                _ => None,
            },
            stalled: committed.and_then(|committed| committed.stalled.as_deref()),
            confirm_seconds: committed
                .and_then(|committed| committed.confirm_ms)
                .map(|wait_ms| wait_ms as f64 / 1000.0),
            message: explained.as_ref().map(|explained| &*explained.message),
            conflicts: match &explained {
                Some(explained) => json::conflicts(&explained.conflicts),
                None => Vec::new(),
            },
        }
        .serialize(serializer)
    }
}

impl Finished<'_> {
    fn word(&self) -> &'static str {
        match &self.result {
            Ok(Outcome::Committed(_)) => "committed",
            Ok(Outcome::Aborted) => "aborted",
            Ok(Outcome::Kept) => "kept",
            Err(error) if is_conflict(error) => "conflict",
            Err(_) => "failed",
        }
    }
}
