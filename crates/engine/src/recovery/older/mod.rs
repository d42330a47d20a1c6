//! Restores the snapshots of transactions that have survived and after which others have
//! committed. The objects of such a snapshot are in the base, in limbo and in the past. An open
//! store keeps them in the histories of base objects, in memory. `trace` and `entries` follow objects
//! through the past commits, and `install` looks the objects up and gives them their histories again.
//!
//! Invariants
//! 1. A snapshot is restored only if the past has every commit since. While a transaction survives,
//!    the store forgets none of these ([`Store::held_past`](crate::Store)), and each of them says
//!    what it replaces.
//! 2. If it cannot be known when an outside writer changed something, it is a conflict: the change
//!    counts as made after the begin, unless change times prove the contrary.
//! 3. If anything that a snapshot shows cannot be found, no older snapshot is restored.

mod entries;
mod install;
mod trace;

use atomdir_disk::Disk;

use crate::base::core::Core;
use crate::base::older::Older;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::log::past::PastFile;
use crate::recovery::older::install::Install;
use crate::recovery::older::trace::Trace;

/// Restores snapshots at these points, in ascending order. Returns why it cannot be done, if it
/// cannot.
pub(crate) fn restore<D: Disk>(
    core: &Core<D>,
    past: Option<&PastFile<D>>,
    snapshots: &[Sequence],
    newest: Sequence,
) -> Result<Result<Older, String>, StoreError> {
    let Some(oldest) = snapshots.first() else {
        return Ok(Ok(Older::default()));
    };
    let mut trace = Trace::new(core, snapshots);
    let mut next = oldest.next();
    let mut failed = None;
    if let Some(past) = past {
        past.for_each(core, |record| {
            let sequence = Sequence(record.record.sequence());
            if sequence == next && failed.is_none() {
                next = sequence.next();
                failed = trace.add(&record).err();
            }
        })?;
    }
    if next <= newest {
        return Ok(Err(format!(
            "what commit {next} replaced is no longer kept"
        )));
    }
    if let Some(reason) = failed {
        return Ok(Err(reason));
    }
    Ok(Install::new(core, &trace).run())
}
