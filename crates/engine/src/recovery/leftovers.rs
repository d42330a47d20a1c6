//! Empties the staging directories.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Access, Disk, Errno, Name};
use atomdir_format::record::{CommitRecord, Locator, Source};

use crate::base::core::Core;
use crate::control::{self, failed};
use crate::error::StoreError;
use crate::ids::TransactionId;
use crate::names;

/// Empties them, but for what the commits have staged in their own: the next recovery may need that,
/// if this one dies. Several transactions may have used one directory (`base::stages`), and a file of
/// the base may still have a link in it. To remove that changes the file, so it comes before the
/// commits are settled.
pub(super) fn purge_foreign_slots<D: Disk>(
    core: &Core<D>,
    kept: &HashSet<Name>,
    tail: &[CommitRecord],
) -> Result<(), StoreError> {
    let mut own: HashMap<Name, HashSet<Name>> = HashMap::new();
    for record in tail {
        let stage = names::transaction(TransactionId(record.stage));
        own.entry(stage).or_default().extend(slots(record));
    }
    let (disk, stage) = (&core.disk, &core.control.stage);
    let is_left = |name: &Name| kept.contains(name) || own.contains_key(name);
    let purge = || {
        control::purge(disk, stage, is_left)?;
        for (name, slots) in own.iter().filter(|(name, _)| !kept.contains(*name)) {
            match disk.open(stage, name, Access::Directory) {
                Ok(directory) => control::purge(disk, &directory, |slot| slots.contains(slot))?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    };
    purge().map_err(failed("remove staged files"))
}

/// The names to which the record refers in its transaction's staging directory.
fn slots(record: &CommitRecord) -> impl Iterator<Item = Name> + '_ {
    let objects = record
        .objects
        .iter()
        .filter_map(|object| match object.locator {
            Locator::Staged { slot } => Some(slot),
            _ => None,
        });
    let contents =
        record
            .updates
            .iter()
            .filter_map(|update| match &update.content.as_ref()?.source {
                Source::Staged { slot } => Some(*slot),
                Source::Carried { .. } => None,
            });
    objects.chain(contents).map(names::slot)
}
