//! Finds all places in the mount namespace where a store can be reached.
//!
//! The store's directory is a path on one file system. Another mount of this file
//! system may show the store if the mount's root is above that path, or part of the
//! store if its root is below. A place counts only if it shows the same object as the
//! path in the store does, so nothing unrelated is covered.

use super::Sealing;
use crate::enter::c_path;
use atomdir::client::mounts::Mount;
use atomdir::client::reason;
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

/// What to mount over a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// The view, or the part of it at `source`, a path below the store's own.
    View {
        source: CString,
        target: CString,
        is_directory: bool,
    },
    /// An empty directory.
    Directory(CString),
    /// An empty file.
    File(CString),
}

/// A place that may show the store, but that we cannot check.
#[derive(Debug, thiserror::Error)]
#[error("'{place}' cannot be looked at: {errno}", errno = reason(errno))]
pub(in crate::enter) struct Unseen {
    pub(in crate::enter) place: PathBuf,
    pub(in crate::enter) errno: Errno,
}

/// `base` is where the view is bound, without symbolic links.
pub(super) fn covers(mounts: &[Mount], base: &Path, sealing: &Sealing) -> io::Result<Vec<Cover>> {
    let mut covers = Vec::new();
    for (target, original) in shown(mounts, base) {
        // The view hides mounts below the store. But if the store is the root, these
        // mounts are bound into the view.
        let is_hidden = base != Path::new("/") && target.starts_with(base);
        if is_hidden || target == Path::new("/") || !is_same(&target, &original)? {
            continue;
        }
        // A view never shows the control directory.
        let is_directory = lstat(&target).is_ok_and(|stat| is_directory(&stat));
        covers.push(Cover::View {
            source: c_path(&original)?,
            target: c_path(&target)?,
            is_directory,
        });
    }
    if let Some(control) = &sealing.control {
        let itself = (control.clone(), control.clone());
        for (target, original) in shown(mounts, control).chain([itself]) {
            if !target.starts_with(base) && is_same(&target, &original)? {
                covers.push(cover_empty(&target)?);
            }
        }
    }
    // The service chose this place, and must not use it to hide the view.
    if base.starts_with(&sealing.views) {
        let message = "the service names a place of views that holds the store";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    for target in views_elsewhere(mounts, &sealing.views)? {
        if !target.starts_with(base) {
            covers.push(cover_empty(&target)?);
        }
    }
    // This cover must be last: earlier ones may bind views from there.
    if lstat(&sealing.views).is_ok() {
        covers.push(cover_empty(&sealing.views)?);
    }
    Ok(covers)
}

/// Where other mounts show the place of views, or the file systems that are mounted there.
fn views_elsewhere(mounts: &[Mount], views: &Path) -> io::Result<Vec<PathBuf>> {
    let mut places = Vec::new();
    for (target, original) in shown(mounts, views) {
        if is_same(&target, &original)? {
            places.push(target);
        }
    }
    let is_there = |mount: &&Mount| mount.point.starts_with(views);
    let of_views = mounts.iter().filter(is_there);
    let devices: Vec<&str> = of_views.map(|mount| &*mount.device).collect();
    let others = mounts.iter().filter(|mount| !is_there(mount));
    let same = others.filter(|mount| devices.contains(&&*mount.device));
    places.extend(same.map(|mount| mount.point.clone()));
    // One that another one covers need not be looked at.
    places.sort();
    places.dedup_by(|below, above| below.starts_with(above));
    Ok(places)
}

pub(super) fn cover_empty(target: &Path) -> io::Result<Cover> {
    let path = c_path(target)?;
    Ok(match lstat(target) {
        Ok(stat) if !is_directory(&stat) => Cover::File(path),
        _ => Cover::Directory(path),
    })
}

/// Covers for the places that the command is to find empty, at every mount that shows them.
pub(super) fn hidden(mounts: &[Mount], base: &Path, named: &[PathBuf]) -> io::Result<Vec<Cover>> {
    let mut covers = Vec::new();
    for place in named {
        for target in elsewhere(mounts, place)?.into_iter().chain([place.clone()]) {
            if base.starts_with(&target) {
                let message = format!(
                    "'{}' is also '{}', and to hide it would hide the store",
                    place.display(),
                    target.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            covers.push(cover_empty(&target)?);
        }
    }
    Ok(covers)
}

/// The other places where mounts show this object, or parts of this directory.
pub(super) fn elsewhere(mounts: &[Mount], place: &Path) -> io::Result<Vec<PathBuf>> {
    let mut targets = Vec::new();
    for (target, original) in shown(mounts, place) {
        if !target.starts_with(place) && is_same(&target, &original)? {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// All places at which a mount may show `directory` or something below it, each with
/// the path below `directory` that it shows.
fn shown(mounts: &[Mount], directory: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let on_file_systems: Vec<(&str, PathBuf)> = mounts
        .iter()
        .filter_map(|mount| {
            let below = directory.strip_prefix(&mount.point).ok()?;
            Some((&*mount.device, join(&mount.root, below)))
        })
        .collect();
    let mut places = Vec::new();
    for mount in mounts {
        for (device, path) in &on_file_systems {
            if mount.device != *device {
                continue;
            }
            if let Ok(below) = path.strip_prefix(&mount.root) {
                places.push((join(&mount.point, below), directory.to_owned()));
            } else if let Ok(below) = mount.root.strip_prefix(path) {
                places.push((mount.point.clone(), join(directory, below)));
            }
        }
    }
    places.sort();
    places.dedup();
    let directory = directory.to_owned();
    places
        .into_iter()
        .filter(move |(target, original)| *target != directory || *original != directory)
}

/// Joining an empty path would append a slash, and then links would be followed.
fn join(above: &Path, below: &Path) -> PathBuf {
    match below.as_os_str().is_empty() {
        true => above.to_owned(),
        false => above.join(below),
    }
}

fn lstat(path: &Path) -> rustix::io::Result<Stat> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// Whether both are the same object. The command cannot reach what other users have
/// closed to us. But it could open up a directory of its own user's, which an earlier
/// command may have closed. So such a directory is an error: we could not seal the
/// command.
fn is_same(target: &Path, original: &Path) -> io::Result<bool> {
    let errno = match (lstat(target), lstat(original)) {
        (Ok(a), Ok(b)) => return Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)),
        (Err(Errno::NOENT | Errno::NOTDIR), _) | (_, Err(Errno::NOENT | Errno::NOTDIR)) => {
            return Ok(false);
        }
        (Err(Errno::ACCESS), _) if is_closed_by_others(target) => return Ok(false),
        (Err(errno), _) | (_, Err(errno)) => errno,
    };
    let place = target.to_owned();
    Err(io::Error::other(Unseen { place, errno }))
}

/// Whether the first directory on the way that we may not search belongs to another user.
fn is_closed_by_others(path: &Path) -> bool {
    let seen = path.ancestors().find_map(|above| lstat(above).ok());
    seen.is_some_and(|closed| closed.st_uid != geteuid().as_raw())
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir::client::mounts;

    fn places(table: &str, directory: &str) -> Vec<(String, String)> {
        let mounts = mounts::parse(table.as_bytes());
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        shown(&mounts, Path::new(directory))
            .map(|(target, original)| (text(target), text(original)))
            .collect()
    }

    #[test]
    fn other_mounts_of_the_file_system_show_the_store_or_parts_of_it() {
        let table = r"
27 1 254:0 / / rw - ext4 /dev/vda rw
40 27 8:1 / /srv rw - ext4 /dev/sda1 rw
41 27 8:1 / /mnt/again rw - ext4 /dev/sda1 rw
42 27 8:1 /site/docs /docs\040here rw - ext4 /dev/sda1 rw
43 27 8:1 /other /other rw - ext4 /dev/sda1 rw
44 27 8:1 /site /twice rw - ext4 /dev/sda1 rw
45 27 8:2 /site /else rw - ext4 /dev/sda2 rw
";
        let found = places(table, "/srv/site");
        let wanted = [
            ("/docs here", "/srv/site/docs"),
            ("/mnt/again/site", "/srv/site"),
            ("/twice", "/srv/site"),
        ];
        let wanted = wanted.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_store_that_is_mounted_itself_is_found_at_its_other_place() {
        let table =
            "27 1 254:0 / / rw - ext4 x rw\n40 27 254:0 /data/site /srv/site rw - ext4 x rw\n";
        let found = places(table, "/srv/site");
        assert_eq!(found, [("/data/site".to_owned(), "/srv/site".to_owned())]);
    }
}
