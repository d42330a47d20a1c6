//! Longer hints.

use super::Error;
use crate::explain::ExitCode;
use crate::merging::{Next, NotMerged};
use atomdir::TransactionId;

/// It is not known which transaction is meant, or it is not open.
pub(super) fn unnamed(error: &Error) -> (u8, Option<String>) {
    let (code, hint) = match error {
        Error::SeveralTransactions { .. } => (ExitCode::Usage, "name the one you mean".to_owned()),
        Error::InUse { transaction, .. } => (
            ExitCode::Usage,
            format!("name it to abort it: `atomdir abort {transaction}`"),
        ),
        Error::NotOpen { .. } => (
            ExitCode::NotFound,
            "`atomdir begin` begins one that outlives the store's service".to_owned(),
        ),
        _ => (
            ExitCode::NotFound,
            "`atomdir begin` begins one; root sees those of others with `atomdir list`".to_owned(),
        ),
    };
    (code.code(), Some(hint))
}

pub(super) fn not_merged_hint(transaction: TransactionId, not_merged: &[NotMerged]) -> String {
    let of = |next: Next| {
        let numbers = not_merged.iter().filter(|one| one.next == next);
        let numbers: Vec<String> = numbers.map(|one| one.number.to_string()).collect();
        (!numbers.is_empty()).then(|| numbers.join(","))
    };
    if of(Next::Abort).is_some() {
        return format!(
            "no side can be taken either: `atomdir abort {transaction}` drops its changes; then run \
             its programs again"
        );
    }
    let edited = of(Next::Edit).map(|numbers| {
        format!(
            "edit the marked files in the view, then take your side of them: --take-mine {numbers}"
        )
    });
    let by_hand = of(Next::ByHand).map(|numbers| {
        format!(
            "add --markers or --tool to merge {numbers} by hand, or take a side: --take-mine or \
             --take-theirs {numbers}"
        )
    });
    let either = of(Next::TakeSide)
        .map(|numbers| format!("take a side: --take-mine or --take-theirs {numbers}"));
    let theirs =
        of(Next::TakeTheirs).map(|numbers| format!("take their side: --take-theirs {numbers}"));
    let steps = [edited, by_hand, either, theirs];
    let steps: Vec<String> = steps.into_iter().flatten().collect();
    format!(
        "{}; with `atomdir commit {transaction} --merge`, and the other sides as before",
        steps.join("; ")
    )
}
