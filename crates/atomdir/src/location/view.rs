//! Finds the transaction and the store of a path in a view, as `begin` printed it.
//!
//! Anyone can mount a file system that calls itself ours and names any store. So
//! a mount counts only if nobody but root and the caller can have made it: the
//! directory above it belongs to one of them, and no one else can write in that.
//! The file beside it must also say that its service is that of the store that the
//! mount names, since another store may have that path by now.

use super::StoreLocation;
use crate::mounts::{self, Mount};
use crate::{FindError, Trust};
use atomdir_protocol::TransactionId;
use rustix::fs::{lstat, stat};
use std::path::{Component, Path, PathBuf};

/// `path` must be absolute and without symbolic links. Returns `None` if it is in
/// no view.
pub(super) fn store_of(path: &Path, trust: Trust) -> Result<Option<StoreLocation>, FindError> {
    let view = mounts::view_at(path).map_err(|errno| FindError::Io {
        path: path.to_owned(),
        errno,
    })?;
    let Some(mount) = view else {
        return Ok(None);
    };
    let inside = || FindError::InView {
        path: path.to_owned(),
    };
    // A view that is bound over the store's own path hides the way to the service.
    if mounts::is_native_view(&mount) || mount.root != Path::new("/") {
        return Err(inside());
    }
    check_place(path, &mount)?;
    let store = match StoreLocation::at_with(&mount.source, trust) {
        Err(FindError::NoStore { .. }) => return Err(inside()),
        found => found?,
    };
    let control = stat(&store.control).map_err(|errno| FindError::Io {
        path: store.control.clone(),
        errno,
    })?;
    if !mounts::is_place_of(&mount.point, &control) {
        return Err(inside());
    }
    let (transaction, start) = split(path, &mount.point).ok_or_else(inside)?;
    Ok(Some(StoreLocation {
        start,
        transaction: Some(transaction),
        ..store
    }))
}

/// Whether `path` lies in a mount that claims to be a view.
pub(crate) fn is_in_view(path: &Path) -> bool {
    matches!(mounts::view_at(path), Ok(Some(_)))
}

/// Checks that only root or the caller can have mounted it there.
fn check_place(path: &Path, mount: &Mount) -> Result<(), FindError> {
    let parent = mount.point.parent().unwrap_or(Path::new("/"));
    let stat = lstat(parent).map_err(|errno| FindError::Io {
        path: parent.to_owned(),
        errno,
    })?;
    if mounts::is_private(parent) {
        return Ok(());
    }
    Err(FindError::ForeignView {
        path: path.to_owned(),
        user: stat.st_uid,
    })
}

/// `PLACE/TRANSACTION/NAME/PATH`, where the name is that of the store's root.
fn split(path: &Path, place: &Path) -> Option<(TransactionId, PathBuf)> {
    let mut below = path.strip_prefix(place).ok()?.components();
    let Some(Component::Normal(first)) = below.next() else {
        return None;
    };
    let transaction = TransactionId(first.to_str()?.parse().ok()?);
    below.next();
    Some((transaction, below.as_path().to_owned()))
}
