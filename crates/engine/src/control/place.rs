//! Where a control directory counts: where it was made.
//!
//! A copy of a store, from a backup, an archive or a clone, has objects of its own. The identities in
//! its log and its past are those of the original, and its settings are the decisions of whoever made
//! them there. So the header names the store's place, and nobody uses a store elsewhere before its
//! user has adopted it (`recovery::adopt`).
//!
//! Invariants
//! 1. A store is opened only in the place that its header names: this control directory and this
//!    root, on this file system.
//! 2. The place is independent of names and mounts. A store that is renamed, or that is reached by a
//!    bind mount, is in its place, and so is one in an image of its whole file system.
//! 3. Only the creation and the adoption of a store write the place.

use atomdir_disk::{Access, Disk};
use atomdir_format::header::{Place, StoreHeader};

use crate::control::failed;
use crate::error::StoreError;
use crate::names;

/// The present place. `inside` is any object of the control directory that is open for reading.
pub(crate) fn present<D: Disk>(
    disk: &D,
    root: &D::Handle,
    control: &D::Handle,
    inside: &D::Handle,
) -> Result<Place, StoreError> {
    let failed = failed("examine the place");
    Ok(Place {
        control: disk.stat(control).map_err(&failed)?.identity,
        root: disk.stat(root).map_err(&failed)?.identity,
        file_system: disk.status(inside).map_err(&failed)?.id,
    })
}

/// The place where the header counts must be the present one.
pub(crate) fn check<D: Disk>(
    disk: &D,
    root: &D::Handle,
    control: &D::Handle,
    header: &StoreHeader,
) -> Result<(), StoreError> {
    let name = names::fixed(names::HEADER);
    let file = disk.open(control, &name, Access::Read);
    let present = present(
        disk,
        root,
        control,
        &file.map_err(failed("open the header"))?,
    )?;
    let made = header.place;
    let unknown = Default::default();
    // An id may be unknown where the store is now, but never become another one.
    let is_same_file_system = made.file_system == present.file_system
        || made.file_system == unknown
        || present.file_system == unknown;
    if is_same_file_system && (made.control, made.root) == (present.control, present.root) {
        return Ok(());
    }
    Err(StoreError::Copied {
        shares_control: made.control == present.control && is_same_file_system,
    })
}
