//! The lines in which errors name transactions and conflicts.

use crate::merging::NotMerged;
use crate::output::{escaped, quoted, time};
use atomdir::client::{Conflict, TransactionStatus};
use atomdir::{ChangedBy, CommitAuthor, TransactionId};

pub(super) fn not_merged_line(one: &NotMerged) -> String {
    format!("{}  {}: {}", one.number, quoted(&one.path), one.reason)
}

pub(super) fn numbers(transactions: &[TransactionStatus]) -> String {
    let numbers = transactions.iter().map(|open| open.transaction.to_string());
    let numbers: Vec<String> = numbers.collect();
    numbers.join(", ")
}

pub(super) fn transaction_line(open: &TransactionStatus) -> String {
    let line = format!("{}  began {}", open.transaction, time::readable(open.began));
    match open.label.is_empty() {
        true => line,
        false => format!("{line}  {}", escaped(&open.label)),
    }
}

pub fn conflict_line(conflict: &Conflict) -> String {
    let path = quoted(&conflict.path);
    let what = &conflict.what;
    match &conflict.by {
        ChangedBy::Outside => format!("{path}: {what}, by an outside writer"),
        ChangedBy::Outer { transaction } => {
            format!("{path}: {what}, in the outer transaction {transaction}")
        }
        ChangedBy::Open { transaction, label } => {
            let by = format!("{path}: {what}, by transaction {transaction}, which is open");
            labelled(by, label)
        }
        ChangedBy::Commit {
            sequence,
            author: None,
        } => format!("{path}: {what}, by commit {sequence}"),
        ChangedBy::Commit {
            sequence,
            author: Some(CommitAuthor {
                transaction, label, ..
            }),
        } => {
            let by = format!("{path}: {what}, by commit {sequence} of transaction {transaction}");
            labelled(by, label)
        }
    }
}

fn labelled(line: String, label: &[u8]) -> String {
    match label.is_empty() {
        true => line,
        false => format!("{line} ({})", escaped(label)),
    }
}

pub(super) fn partner_ended(transaction: TransactionId, has_committed: bool) -> String {
    match has_committed {
        true => format!(
            "the commit of all stores is done, but transaction {transaction} has changes that came after it"
        ),
        false => format!(
            "transaction {transaction} has ended without a commit, so those that are linked with it cannot be \
             committed"
        ),
    }
}
