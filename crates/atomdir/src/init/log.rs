//! Choosing, moving and giving up a log that is not in the control directory.

use super::{Root, deinit::own_store, nesting};
use crate::hosting::{StartLock, log_at, log_path, log_place, store_options};
use crate::location::view;
use crate::{InitError, Trust};
use atomdir_disk::{LinuxDisk, Name, reason};
use atomdir_engine::{LogAt, LostLog, NewLog, Store};
use rustix::fs::{AtFlags, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Few descriptors are needed: nothing is open in the store.
const DESCRIPTORS_RESERVED: u64 = 64;

/// The place of a log to be made.
pub(super) struct Chosen {
    pub(super) path: PathBuf,
    directory: OwnedFd,
    name: Name,
    id: [u8; 16],
}

impl Chosen {
    /// Resolves symbolic links above the file. A log in the store would be a part of its own base.
    pub(super) fn new(root: &Root, wanted: &Path) -> Result<Chosen, InitError> {
        let unfit = |reason: String| InitError::LogUnfit {
            log: wanted.to_owned(),
            reason,
        };
        let path = resolve(wanted).map_err(|errno| unfit(reason(errno)))?;
        if path.is_dir() {
            return Err(unfit(
                "it is a directory: name a file in it that does not exist yet".to_owned(),
            ));
        }
        if path.starts_with(&root.path) {
            return Err(unfit("it would be in the store itself".to_owned()));
        }
        if let Some(store) = nesting::store_above(&path) {
            return Err(unfit(format!(
                "it lies inside the store '{}'",
                store.display()
            )));
        }
        if path.parent().is_some_and(view::is_in_view) {
            return Err(unfit("it lies in the view of a transaction".to_owned()));
        }
        let (directory, name) = log_place::directory_of(&path).map_err(unfit)?;
        let mut id = [0; 16];
        getrandom(&mut id, GetRandomFlags::empty()).map_err(|errno| unfit(reason(errno)))?;
        Ok(Chosen {
            path,
            directory,
            name,
            id,
        })
    }

    /// For a store that nothing has been made of yet.
    pub(super) fn check_free(&self) -> Result<(), InitError> {
        match statat(
            &self.directory,
            self.name.as_bytes(),
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.unfit(reason(errno))),
            Ok(_) => Err(self.unfit("there is something already".to_owned())),
        }
    }

    fn unfit(&self, reason: String) -> InitError {
        InitError::LogUnfit {
            log: self.path.clone(),
            reason,
        }
    }

    pub(super) fn new_log(&self) -> NewLog<'_, LinuxDisk> {
        NewLog {
            directory: &self.directory,
            name: self.name.clone(),
            path: self.path.as_os_str().as_bytes().to_vec(),
            id: self.id,
        }
    }
}

/// The last name need not exist, and is not followed if it is a symbolic link.
fn resolve(wanted: &Path) -> Result<PathBuf, Errno> {
    let absolute = std::path::absolute(wanted).map_err(|_| Errno::INVAL)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = parent.canonicalize();
    let parent = parent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(parent.join(name))
}

/// The path of the log of the store whose root is `directory`, if it is not in its control directory.
pub fn log_of(directory: &Path, trust: Trust) -> Result<Option<PathBuf>, InitError> {
    let (_, _, control) = own_store(directory, trust)?;
    Ok(log_path(&control))
}

/// Moves the log of the store whose root is `directory` to `to`, which must not exist; `None`: into the
/// control directory. The store is recovered before. Fails while a program has it open.
pub fn move_log(directory: &Path, to: Option<&Path>, trust: Trust) -> Result<(), InitError> {
    let (root, _, control) = own_store(directory, trust)?;
    let chosen = to.map(|to| Chosen::new(&root, to)).transpose()?;
    if let Some(chosen) = &chosen {
        chosen.check_free()?;
    }
    let _lock = StartLock::wait(&control).map_err(root.failed("taking the start lock"))?;
    close(&root, &control)?;
    let kept = keep(&root, &control)?;
    let new = chosen.as_ref().map(Chosen::new_log);
    let log = log_at(&control);
    let moved = Store::move_log(&LinuxDisk::new(), &root.handle, (kept, log), new.as_ref());
    moved.map_err(|error| root.refused(error))
}

/// Gives the log of the store whose root is `directory` up, if it is not in the control directory. The
/// store gets an empty one there. Returns what is lost; `None`: the log is in the control directory.
pub fn give_up_log(directory: &Path, trust: Trust) -> Result<Option<LostLog>, InitError> {
    let (root, _, control) = own_store(directory, trust)?;
    let _lock = StartLock::wait(&control).map_err(root.failed("taking the start lock"))?;
    let kept = keep(&root, &control)?;
    let given_up = Store::give_up_log(&LinuxDisk::new(), &root.handle, kept);
    given_up.map_err(|error| root.refused(error))
}

/// Removes the log of a store that is none any more.
pub(super) fn remove(log: &LogAt<LinuxDisk>) -> Result<(), Errno> {
    match log {
        LogAt::Elsewhere { directory, name } => {
            Store::remove_control(&LinuxDisk::new(), directory, name)
        }
        _ => Ok(()),
    }
}

/// Recovers the store and closes it, so that its log is empty.
fn close(root: &Root, control: &OwnedFd) -> Result<(), InitError> {
    let options = store_options(control, DESCRIPTORS_RESERVED);
    let options = options.map_err(root.failed("reading its file system"))?;
    let hidden = Name::new(crate::CONTROL_NAME.as_bytes()).ok();
    let handles = (keep(root, &root.handle)?, keep(root, control)?);
    let log = log_at(control);
    let opened = Store::open_with_log(
        LinuxDisk::new(),
        handles.0,
        (handles.1, log),
        hidden,
        options,
    );
    let (store, _) = opened.map_err(|error| root.refused(error))?;
    let left = store.left().map_err(root.failed("looking what it keeps"))?;
    if left.transactions > 0 {
        return Err(InitError::HasMore {
            path: root.path.clone(),
            what: format!("open transactions: {}", left.transactions),
        });
    }
    store.close().map_err(|error| root.refused(error))
}

fn keep(root: &Root, directory: &OwnedFd) -> Result<OwnedFd, InitError> {
    fcntl_dupfd_cloexec(directory, 3).map_err(root.failed("keeping it open"))
}
