//! Moves a directory on an overlay, as in a container's own root, wholly to the overlay's upper layer.
//!
//! An object of a lower layer gets another identity when it is first changed, and a directory of one
//! cannot be renamed. What is made anew is in the upper layer alone, and stays what it is. So all that
//! is in the directory is copied beside it, in the directory itself, and then each copy takes the place
//! of its original.
//!
//! Invariants
//! 1. Nothing is removed before everything was copied, and the copies are on the disk.
//! 2. An original is removed only if its copy says the same: kind, mode, owner, length, time of
//!    modification or target. This also holds for the rest of one whose removal was interrupted.
//! 3. After an interruption at any point another call goes on. What is lost then is in [`COPIED`].
//!
//! `tree` copies, compares and removes; `fitness` says whether this can be done here.

mod fitness;
mod tree;

use super::Root;
use crate::InitError;
use atomdir_disk::{Access, Disk, Errno, LinuxDisk, Name, NewNode, RenameMode, reason};
use atomdir_engine::Store;
use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::OwnedFd;

/// Where the copies are made. What an interrupted call has left here is made anew.
const COPY: &str = ".atomdir-copy";
/// The same directory once they are complete.
const COPIED: &str = ".atomdir-copied";

/// Why something was not done.
enum Failure {
    Refused(String),
    Failed { at: String, errno: Errno },
}

type Outcome<T = ()> = Result<T, Failure>;

fn at(path: &str, step: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Failed {
        at: format!("{step} '{path}'"),
        errno,
    }
}

pub(super) fn to_upper_layer(root: &Root) -> Result<(), InitError> {
    let handle = fcntl_dupfd_cloexec(&root.handle, 3).map_err(root.failed("keeping it open"))?;
    let copying = Copying {
        root,
        handle,
        disk: LinuxDisk::new(),
    };
    copying.run().map_err(|failure| InitError::NotCopied {
        path: root.path.clone(),
        reason: match failure {
            Failure::Refused(reason) => reason,
            Failure::Failed { at, errno } => format!("{at}: {}", reason(errno)),
        },
    })
}

struct Copying<'a> {
    root: &'a Root,
    handle: OwnedFd,
    disk: LinuxDisk,
}

impl Copying<'_> {
    fn run(&self) -> Outcome {
        fitness::check(&self.root.path, &self.handle)?;
        if !self.exists(COPIED)? {
            self.remove(COPY)?;
            if let Err(failure) = self.copy() {
                // The first failure matters more.
                let _ = self.remove(COPY);
                return Err(failure);
            }
        }
        fitness::check_use(&self.root.path)?;
        self.exchange()
    }

    fn copy(&self) -> Outcome {
        let made = self
            .disk
            .make(&self.handle, &name(COPY), &NewNode::Directory, 0o700);
        made.map_err(at(COPY, "make"))?;
        let copy = self.open(COPY)?;
        fitness::check_layers(&self.disk, &self.handle, &copy)?;
        let mut copier = tree::Copier::new(&self.disk);
        copier.copy_entries(&self.handle, &copy, |name| name == COPY)?;
        self.compare(&copy)?;
        let synced = self.disk.sync_file_system(&copy);
        synced.map_err(at(COPY, "write to the disk"))?;
        self.rename((&self.handle, COPY), (&self.handle, COPIED))?;
        self.sync()
    }

    /// Refuses what was changed, made or removed since it was copied.
    fn compare(&self, copy: &OwnedFd) -> Outcome {
        let found = tree::list(&self.disk, &self.handle, "")?;
        for one in found.iter().filter(|one| one.as_bytes() != COPY.as_bytes()) {
            tree::check_equal(&self.disk, &self.handle, copy, one, "")?;
        }
        let copied = tree::list(&self.disk, copy, "")?;
        match copied.iter().find(|one| !found.contains(one)) {
            None => Ok(()),
            Some(gone) => Err(tree::changed(&tree::shown("", gone))),
        }
    }

    /// Lets the copies take the places of their originals.
    fn exchange(&self) -> Outcome {
        let copied = self.open(COPIED)?;
        for one in &tree::list(&self.disk, &copied, COPIED)? {
            let path = tree::shown("", one);
            tree::remove_equal(&self.disk, &self.handle, &copied, one)?;
            let renamed =
                self.disk
                    .rename((&copied, one), (&self.handle, one), RenameMode::NoReplace);
            renamed.map_err(at(&path, "put into its place the copy of"))?;
        }
        self.sync()?;
        let removed = self.disk.remove_directory(&self.handle, &name(COPIED));
        removed.map_err(at(COPIED, "remove"))?;
        self.sync()
    }

    fn exists(&self, what: &str) -> Outcome<bool> {
        match self.disk.stat_at(&self.handle, &name(what)) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(at(what, "look for")(errno)),
        }
    }

    fn open(&self, what: &str) -> Outcome<OwnedFd> {
        let opened = self.disk.open(&self.handle, &name(what), Access::Directory);
        opened.map_err(at(what, "open"))
    }

    fn remove(&self, what: &str) -> Outcome {
        let removed = Store::remove_control(&self.disk, &self.handle, &name(what));
        removed.map_err(at(what, "remove"))
    }

    fn rename(&self, from: (&OwnedFd, &str), to: (&OwnedFd, &str)) -> Outcome {
        let renamed = self.disk.rename(
            (from.0, &name(from.1)),
            (to.0, &name(to.1)),
            RenameMode::NoReplace,
        );
        renamed.map_err(at(from.1, "rename"))
    }

    fn sync(&self) -> Outcome {
        let synced = self.disk.sync_file_system(&self.handle);
        synced.map_err(at(COPIED, "write to the disk"))
    }
}

fn name(constant: &str) -> Name {
    Name::new(constant.as_bytes()).expect("a constant is a valid name")
}
