//! Errors that keep a commit from being applied.

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

impl ApplyError {
    pub fn new(path: String, reason: String, errno: Errno) -> ApplyError {
        ApplyError {
            path,
            reason,
            errno: Some(errno),
            flush_failed: None,
        }
    }

    /// Whether the cause is an obstacle in the base that can go away. The disk or this program
    /// causes all other errors, and only recovery can find out what is in the base.
    pub fn is_obstacle(&self) -> bool {
        let of_the_disk = [
            Errno::IO,
            Errno::ROFS,
            Errno::UCLEAN,
            Errno::BADMSG,
            Errno::NXIO,
            Errno::NODEV,
        ];
        let errno = self.errno.filter(|errno| !of_the_disk.contains(errno));
        self.flush_failed.is_none() && errno.is_some()
    }
}

impl<D: Disk> Apply<'_, D> {
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
