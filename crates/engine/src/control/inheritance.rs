//! Staged objects take nothing from the control directory.
//!
//! A directory may hand down a default ACL, flags, a project, a label or encryption to what is made in
//! it. The control directory inherits these from the store's root, or from the directory above. A staged
//! object would bring them along to where a commit moves it, and there they may let strangers read and
//! write it.
//!
//! Invariant: of an open store, the directories in which objects are staged hand down nothing that the
//! root does not have as well. What new objects inherit from the directory that they are made in
//! (its default ACL, its group) the view gives them.

use atomdir_disk::{Access, Disk, Kind};

use crate::control::failed;
use crate::error::StoreError;
use crate::names;

pub(crate) fn stop<D: Disk>(
    disk: &D,
    root: &D::Handle,
    directory: &D::Handle,
) -> Result<(), StoreError> {
    let stopped = disk.stop_handing_down(directory, root);
    match stopped.map_err(failed("take off what is inherited"))? {
        None => Ok(()),
        Some(what) => Err(StoreError::Inherited { what }),
    }
}

/// The directories in the control directory in which objects are made, and those of transactions.
pub(crate) fn stop_in<D: Disk>(
    disk: &D,
    root: &D::Handle,
    control: &D::Handle,
) -> Result<(), StoreError> {
    let failed = failed("open directories");
    for name in [names::STAGE, names::LIMBO] {
        let directory = disk.open(control, &names::fixed(name), Access::Directory);
        let directory = directory.map_err(&failed)?;
        stop(disk, root, &directory)?;
        if name != names::STAGE {
            continue;
        }
        for entry in disk.list(&directory).map_err(&failed)? {
            let stat = disk.stat_at(&directory, &entry.name).map_err(&failed)?;
            if stat.kind == Kind::Directory {
                let staged = disk.open(&directory, &entry.name, Access::Directory);
                stop(disk, root, &staged.map_err(&failed)?)?;
            }
        }
    }
    Ok(())
}
