//! Shows what a transaction changed, as a list and as differences of contents.

mod difference;
mod filter;
mod list;
mod part;
mod patch;
mod rights;
mod stat;
mod three_way;
mod unified;
mod version;

pub use difference::Difference;
use difference::Lines;
pub use filter::{Filter, path_in_store};
pub use list::{ChangeList, Listing, name_of};
pub use part::{Named, PartJson, show_others};
pub use patch::Affected;
pub use rights::{Right, Rights};
pub use stat::Stat;
pub use three_way::ThreeWay;

use crate::context::Connected;
use crate::error::Error;
use atomdir::ChangeLine;
use atomdir::client::Transaction;
use version::Version;

/// Looks up both sides of a change, which is one of `lines`: in the snapshot and in the view.
pub fn difference<'a>(
    connected: &mut Connected,
    transaction: &Transaction,
    lines: &[ChangeLine],
    line: &'a ChangeLine,
) -> Result<Difference<'a>, Error> {
    let old_path = patch::old_path(lines, line);
    let before = match line.change {
        atomdir::Change::Added => None,
        _ => Version::in_snapshot(&mut connected.connection, transaction.id, &old_path)?,
    };
    let after = match line.change {
        atomdir::Change::Deleted => None,
        _ => Version::in_view(transaction, &line.path)?,
    };
    Ok(Difference {
        line,
        old_path,
        before,
        after,
    })
}
