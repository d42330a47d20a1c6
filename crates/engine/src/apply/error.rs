//! Errors that keep a commit from being applied, and what each of them means.
//!
//! Invariant: nobody but root keeps a commit that has begun to change the base from being finished,
//! since such a commit cannot be taken back. [`verdict`] is the one place that decides what an error
//! means:
//!
//! | error | cause | verdict |
//! | --- | --- | --- |
//! | `EIO`, `EROFS`, `EUCLEAN`, `EBADMSG`, `ENXIO`, `ENODEV`; no number | the disk, or this program | the store is poisoned |
//! | `ENOSPC`, `EDQUOT`, `ENOMEM`, `EMFILE`, `ENFILE`, `EAGAIN`, `EINTR` | the machine lacks something for now | the commit stalls |
//! | `EACCES`, `EPERM`, `EBUSY`, `ETXTBSY`, with this process's own rights | root: an immutable object, a mount, a swap file | the commit stalls |
//! | the same, with a listed user's rights | the user may not do this any more | the object is left |
//! | every other one, such as `EXDEV`, `EMLINK`, `ENOKEY`, `ENOENT`, `ESTALE`, `EINVAL`, `ENAMETOOLONG`, `ELOOP` | the owner of an object or of a directory: projects, encryption, folded names, the limit of names, a directory that is gone | the object is left |
//!
//! An extended attribute that finds no space is left as well: what space an inode has for them
//! depends on its owner. A left object stays where it was. If it was new, it stays in limbo, and
//! `check` names it.

use atomdir_disk::{Disk, Errno};

use super::Apply;

/// An error, and the path at which it happened.
#[derive(Debug)]
pub(crate) struct ApplyError {
    pub path: String,
    pub reason: String,
    pub errno: Option<Errno>,
    /// A flush of the base failed: the written data may be lost.
    pub flush_failed: Option<Errno>,
}

/// What an error means for the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Only recovery can find out what is in the base.
    Poisons,
    /// The commit is tried again until the obstacle has gone.
    Stalls,
    /// The commit goes on, and the object stays as it is.
    Leaves,
}

/// `for_user`: the call was made with a listed user's rights.
pub(crate) fn verdict(errno: Option<Errno>, for_user: bool) -> Verdict {
    match errno {
        None
        | Some(
            Errno::IO | Errno::ROFS | Errno::UCLEAN | Errno::BADMSG | Errno::NXIO | Errno::NODEV,
        ) => Verdict::Poisons,
        Some(
            Errno::NOSPC
            | Errno::DQUOT
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
            | Errno::AGAIN
            | Errno::INTR,
        ) => Verdict::Stalls,
        Some(Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::TXTBSY) if !for_user => {
            Verdict::Stalls
        }
        Some(_) => Verdict::Leaves,
    }
}

impl ApplyError {
    pub fn new(path: String, reason: String, errno: Errno) -> ApplyError {
        ApplyError {
            path,
            reason,
            errno: Some(errno),
            flush_failed: None,
        }
    }

    pub fn verdict(&self, for_user: bool) -> Verdict {
        match self.flush_failed {
            Some(_) => Verdict::Poisons,
            None => verdict(self.errno, for_user),
        }
    }

    /// Whether the cause is an obstacle in the base that can go away.
    pub fn is_obstacle(&self) -> bool {
        self.verdict(false) != Verdict::Poisons
    }
}

impl<D: Disk> Apply<'_, D> {
    /// Whether the error concerns nothing but the object at which it happened.
    pub(super) fn leaves(&self, error: &ApplyError) -> bool {
        error.verdict(self.actor.is_some()) == Verdict::Leaves
    }

    pub(super) fn failure(&self, name: &[u8], reason: &str, errno: Option<Errno>) -> ApplyError {
        let path = String::from_utf8_lossy(name).into_owned();
        let reason = match errno {
            Some(errno) => format!("{reason}: {errno}", errno = atomdir_disk::reason(errno)),
            None => reason.to_owned(),
        };
        ApplyError {
            path,
            reason,
            errno,
            flush_failed: self.flush_failed,
        }
    }
}
