//! One side of a difference: an object in the snapshot or in the view.

use crate::error::Error;
use crate::files;
use atomdir::client::compare::{Attributes, CONTENTS_LENGTH_MAX};
use atomdir::client::{Connection, Transaction};
use atomdir::{Kind, Timestamp, TransactionId};
use rustix::fs::{AtFlags, Stat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) kind: Kind,
    /// Permission bits with set-id and sticky bits.
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) modified: Timestamp,
    pub(super) length: u64,
    pub(super) device_number: u64,
    /// Extended attributes, by name.
    pub(super) xattrs: files::Xattrs,
    pub(super) contents: Contents,
    /// An outside writer has changed the object since the transaction began, so these are not
    /// the contents that the transaction found, but those of now.
    pub(super) is_of_now: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Contents {
    /// The contents of a file, or the target of a symbolic link.
    Bytes(Vec<u8>),
    TooLong,
    /// For objects that are neither.
    None,
}

impl Contents {
    /// Returns false if the answer is unknown.
    pub(super) fn is_same(&self, other: &Contents) -> bool {
        *self != Contents::TooLong && self == other
    }
}

/// What a transaction's view has at a path.
pub(super) struct InView {
    /// `None` also if the object was removed after the list of changes was made.
    pub(super) version: Option<Version>,
    /// An outside writer has removed or replaced the object that the transaction has changed, so
    /// the view cannot show it any more.
    pub(super) is_gone: bool,
}

impl InView {
    pub(super) fn nothing() -> InView {
        InView {
            version: None,
            is_gone: false,
        }
    }

    pub(super) fn at(transaction: &Transaction, path: &[u8]) -> Result<InView, Error> {
        let (version, is_gone) = match Version::in_view(transaction, path) {
            Err(Error::View {
                errno: Errno::STALE,
                ..
            }) => (None, true),
            version => (version?, false),
        };
        Ok(InView { version, is_gone })
    }
}

impl Version {
    pub(super) fn attributes(&self) -> Attributes {
        let mut xattrs = self.xattrs.clone();
        xattrs.sort();
        Attributes {
            kind: self.kind,
            mode: self.mode,
            user: self.user,
            group: self.group,
            device_number: self.device_number,
            length: self.length,
            modified: self.modified,
            xattrs,
        }
    }

    pub(super) fn in_snapshot(
        connection: &mut Connection,
        transaction: TransactionId,
        path: &[u8],
    ) -> Result<Option<Version>, Error> {
        let found = connection.snapshot_object(transaction, path, CONTENTS_LENGTH_MAX)?;
        Ok(found.map(|found| {
            let object = found.object;
            Version {
                kind: object.kind,
                mode: object.mode,
                user: object.user,
                group: object.group,
                modified: object.modified,
                length: object.length,
                device_number: object.device_number,
                xattrs: object.xattrs,
                is_of_now: object.kind == Kind::File && object.changed_outside,
                contents: match object.kind {
                    Kind::File if object.too_long => Contents::TooLong,
                    Kind::File => Contents::Bytes(found.contents),
                    Kind::Symlink => Contents::Bytes(object.target),
                    _ => Contents::None,
                },
            }
        }))
    }

    /// Returns `None` also if an outside writer has removed or replaced the object.
    pub(super) fn stat_in_view(
        transaction: &Transaction,
        path: &[u8],
    ) -> Result<Option<Stat>, Error> {
        look_in_view(transaction, path, |root| {
            match files::open_parent(root, path).and_then(|place| stat_at(&place)) {
                Err(Errno::STALE) => Err(Errno::NOENT),
                stat => stat,
            }
        })
    }

    /// Also returns `None` if the object was removed after the list of changes
    /// was made.
    pub(super) fn in_view(
        transaction: &Transaction,
        path: &[u8],
    ) -> Result<Option<Version>, Error> {
        look_in_view(transaction, path, |root| read_in_view(root, path))
    }
}

/// Returns `None` if nothing is at the path.
fn look_in_view<T>(
    transaction: &Transaction,
    path: &[u8],
    look: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
) -> Result<Option<T>, Error> {
    let failed = |errno| Error::View {
        path: path.to_owned(),
        errno,
    };
    // A view that has ended must not look like a removed file.
    let root = transaction.root().map_err(failed)?;
    match look(root) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}

fn read_in_view(root: BorrowedFd<'_>, path: &[u8]) -> Result<Version, Errno> {
    let place = files::open_parent(root, path)?;
    let stat = stat_at(&place)?;
    let (directory, name) = place;
    let kind = kind_of(&stat);
    let length = stat.st_size as u64;
    let contents = match kind {
        Kind::File if length > CONTENTS_LENGTH_MAX => Contents::TooLong,
        Kind::File => Contents::Bytes(files::read_at(&directory, name)?),
        Kind::Symlink => {
            Contents::Bytes(rustix::fs::readlinkat(&directory, name, Vec::new())?.into_bytes())
        }
        _ => Contents::None,
    };
    Ok(Version {
        kind,
        mode: stat.st_mode & 0o7777,
        user: stat.st_uid,
        group: stat.st_gid,
        modified: Timestamp::of_fields(stat.st_mtime, stat.st_mtime_nsec),
        length,
        device_number: stat.st_rdev,
        xattrs: files::xattrs_at(&directory, name)?,
        contents,
        is_of_now: false,
    })
}

fn stat_at((directory, name): &(OwnedFd, &OsStr)) -> Result<Stat, Errno> {
    let flags = match name.is_empty() {
        true => AtFlags::EMPTY_PATH,
        false => AtFlags::SYMLINK_NOFOLLOW,
    };
    statat(directory, *name, flags)
}

pub(super) fn kind_of(stat: &Stat) -> Kind {
    Kind::of_mode(stat.st_mode).unwrap_or(Kind::File)
}
