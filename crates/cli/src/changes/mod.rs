//! Shows what a transaction changed, as a list and as differences of contents.

mod between;
mod difference;
mod filter;
mod fold;
mod list;
mod overwrite;
mod part;
mod patch;
mod rights;
mod stat;
pub mod three_way;
mod unified;
mod version;

pub use between::Between;
use difference::Lines;
pub use difference::{Difference, TextChange};
pub use filter::{Filter, path_in_store, without_dots};
pub use fold::{FoldedList, Group, Heap, fold};
pub use list::{ChangeList, Listing, name_of};
pub use overwrite::overwrite;
pub use part::{Named, PartJson, paths_in_store, show_others};
pub use patch::Affected;
pub use rights::{Right, Rights};
pub use stat::{Stat, Subject};
pub use unified::Comparison;

use crate::context::Connected;
use crate::error::Error;
use atomdir::client::compare::old_path;
use atomdir::client::{ChangeLine, Transaction};
use version::{InView, Version};

/// Returns the old and the new text, if the change is one of a text's lines and of nothing else;
/// otherwise why it has no hunks, if it might have some.
pub fn changed_text(
    connected: &mut Connected,
    transaction: &Transaction,
    lines: &[ChangeLine],
    line: &ChangeLine,
) -> Result<Result<TextChange, Option<&'static str>>, Error> {
    if line.change != atomdir::Change::Modified {
        return Ok(Err(None));
    }
    Ok(difference(connected, transaction, lines, line)?.into_texts())
}

/// Looks up both sides of a change, which is one of `lines`: in the snapshot and in the view.
pub fn difference<'a>(
    connected: &mut Connected,
    transaction: &Transaction,
    lines: &[ChangeLine],
    line: &'a ChangeLine,
) -> Result<Difference<'a>, Error> {
    let old_path = old_path(lines, line);
    let before = match line.change {
        atomdir::Change::Added => None,
        _ => Version::in_snapshot(&mut connected.connection, transaction.id, &old_path)?,
    };
    let after = match line.change {
        atomdir::Change::Deleted => InView::nothing(),
        _ => InView::at(transaction, &line.path)?,
    };
    Ok(Difference {
        line,
        old_path,
        before,
        after: after.version,
        is_gone: after.is_gone,
    })
}
