//! Obstacles that other users create while a commit is applied.
//!
//! 1. If an ordinary user mounts a file system on a name, apply unmounts it if this process has
//!    root's rights. The kernel does the same when a directory is removed in another mount
//!    namespace. A mount of root's stays, and stalls the commit.
//! 2. In the store of an ordinary user, another user can own a directory and close it. That
//!    user could as well move everything in it elsewhere right before the commit. So apply
//!    treats the directory as one that has gone: what belongs in it stays where it was.

use atomdir_disk::{Access, Disk, Errno, Identity};

use super::{Apply, EntryPlace, TRIES_MAX};

impl<D: Disk> Apply<'_, D> {
    /// Calls `act` again as long as a file system can be unmounted that is in its way.
    pub(super) fn uncovered<T>(
        &mut self,
        places: &[&EntryPlace],
        act: impl Fn(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for _ in 0..TRIES_MAX {
            match act(self) {
                Err(Errno::BUSY | Errno::XDEV) if self.uncover_places(places) => {}
                result => return result,
            }
        }
        act(self)
    }

    fn uncover_places(&mut self, places: &[&EntryPlace]) -> bool {
        let mut any = false;
        for place in places {
            if let Ok(Some(parent)) = self.parent(place.parent) {
                any |= self.core.uncover_name(&parent, &place.name);
            }
        }
        any
    }

    /// Leaves alone from now on what other users have closed. Whether there is more of it than
    /// was known.
    pub fn leave_closed(&mut self) -> bool {
        if self.core.options.privileges.all {
            return false;
        }
        let desired = self.desired;
        let known = self.progress.closed.len();
        let mut before = usize::MAX;
        // A closed directory must be known before the objects below it can be looked at.
        while before != self.progress.closed.len() {
            before = self.progress.closed.len();
            for (directory, rights) in desired.rights_to_directories() {
                if self.is_closed(directory, rights) {
                    let inode = directory.inode;
                    tracing::warn!(
                        inode,
                        "closed by another user, so a commit leaves it as it is"
                    );
                    self.progress.closed.insert(directory);
                }
            }
            self.is_surveyed = false;
        }
        self.progress.closed.len() > known
    }

    fn is_closed(&mut self, directory: Identity, rights: u32) -> bool {
        let Ok(Some(place)) = self.find(directory) else {
            return false;
        };
        let Ok(Some(parent)) = self.parent(place.parent) else {
            return false;
        };
        let opened = self.core.disk.open(&parent, &place.name, Access::Path);
        opened.is_ok_and(|handle| self.core.is_closed(&handle, rights))
    }
}
