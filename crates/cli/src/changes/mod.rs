//! What a transaction changed, as a list and as differences of contents.

mod difference;
mod filter;
mod list;
mod rights;
mod stat;
mod unified;
mod version;

pub use difference::Difference;
use difference::Lines;
pub use filter::{Filter, path_in_store};
pub use list::{ChangeList, Listing, name_of};
pub use rights::{Right, Rights};
pub use stat::Stat;

use crate::context::Connected;
use crate::error::Error;
use atomdir::{ChangeLine, Transaction};
use version::Version;

/// Looks a change up on both sides: in the snapshot and in the view.
pub fn difference<'a>(
    connected: &mut Connected,
    transaction: &Transaction,
    line: &'a ChangeLine,
) -> Result<Difference<'a>, Error> {
    let before_path = line.from.as_ref().unwrap_or(&line.path);
    let before = match line.change {
        atomdir::Change::Added => None,
        _ => Version::in_snapshot(&mut connected.connection, transaction.id, before_path)?,
    };
    let after = match line.change {
        atomdir::Change::Deleted => None,
        _ => Version::in_view(transaction, &line.path)?,
    };
    Ok(Difference {
        line,
        before,
        after,
    })
}
