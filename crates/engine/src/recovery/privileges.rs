//! A note of the privileges that recovery temporarily takes from files.
//!
//! When a file is written, the kernel clears its `security.capability` and, if the writer has
//! no CAP_FSETID, its set-id bits. Recovery restores them once it has written contents again
//! (`apply::again`), but may die before. So if a file has any, recovery first writes this note
//! and flushes it. A recovery that applies the whole log because the applied mark is gone
//! applies the note after the log's last record.
//!
//! The note has the sequence of the log's last record. With any other sequence it belongs to a
//! log that was retired since, and is ignored.

use std::collections::HashSet;

use atomdir_disk::{Access, Disk, Errno, Identity};
use atomdir_format::frame;
use atomdir_format::privileges::PrivilegesNote;

use super::failed;
use crate::apply::{Apply, ApplyError};
use crate::base::core::Core;
use crate::control;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::log::read_records;
use crate::names;

/// Notes the privileges that [`Apply::write_again`] will take.
pub(super) fn write<D: Disk>(
    core: &Core<D>,
    newest: Sequence,
    again: &mut Apply<'_, D>,
    unfinished: &HashSet<Identity>,
) -> Result<(), StoreError> {
    let found = again.privileges(unfinished);
    let found = found.map_err(|ApplyError { path, reason, .. }| StoreError::Apply {
        sequence: newest,
        path,
        reason,
    })?;
    if found.is_empty() {
        return remove(core);
    }
    let note = PrivilegesNote {
        sequence: newest.0,
        files: found,
    };
    let bytes = frame::encode(core.control.applied.store(), 0, &note);
    let names = (names::PRIVILEGES_NEW, names::PRIVILEGES);
    control::replace(&core.disk, &core.control.directory, names, &bytes)
        .map_err(failed("write down privileges"))
}

/// Reads the note of a recovery that died.
pub(super) fn read<D: Disk>(
    core: &Core<D>,
    newest: Sequence,
) -> Result<Option<PrivilegesNote>, StoreError> {
    let name = names::fixed(names::PRIVILEGES);
    let opened = core.disk.open(&core.control.directory, &name, Access::Read);
    let file = match opened {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("open the note of privileges")(errno)),
    };
    let is_of_this_log = |note: PrivilegesNote| (note.sequence == newest.0).then_some(note);
    let store = core.control.applied.store();
    let read = read_records(&core.disk, &file, store, u64::MAX, is_of_this_log)?;
    Ok(read.records.into_iter().next())
}

pub(super) fn remove<D: Disk>(core: &Core<D>) -> Result<(), StoreError> {
    let name = names::fixed(names::PRIVILEGES);
    control::remove(&core.disk, &core.control.directory, &name)
        .map_err(failed("remove the note of privileges"))
}
