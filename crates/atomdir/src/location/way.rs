//! The way from `/` down to a directory, opened one name at a time. So the
//! directories that we check are those that we passed through: no link is followed,
//! and a directory that is renamed meanwhile is still the one that was checked.

use crate::trust::{Distrust, Owned};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Way {
    /// From `/` to the directory itself.
    pub(crate) steps: Vec<Owned>,
    /// The directory itself.
    pub(crate) end: OwnedFd,
}

impl Way {
    /// `path` must be absolute and without symbolic links.
    pub(crate) fn to(path: &Path) -> Result<Way, (PathBuf, Errno)> {
        Way::visiting(path, |_, _| ())
    }

    /// Calls `visit` with each directory on the way and its number.
    pub(crate) fn visiting(
        path: &Path,
        mut visit: impl FnMut(usize, &OwnedFd),
    ) -> Result<Way, (PathBuf, Errno)> {
        let mut at = PathBuf::from("/");
        let mut end = open(None, "/".as_ref()).map_err(|errno| (at.clone(), errno))?;
        let mut steps = Vec::new();
        let mut names = path
            .components()
            .skip_while(|one| *one == Component::RootDir);
        loop {
            let step = Owned::new(&at, &end).map_err(|errno| (at.clone(), errno))?;
            visit(steps.len(), &end);
            steps.push(step);
            let name = match names.next() {
                None => return Ok(Way { steps, end }),
                Some(Component::Normal(name)) => name,
                Some(_) => return Err((path.to_owned(), Errno::INVAL)),
            };
            at.push(name);
            end = open(Some(&end), name.as_ref()).map_err(|errno| (at.clone(), errno))?;
        }
    }

    /// Checks that nobody else can replace the directory at the end of the first
    /// `count` steps with another.
    pub(crate) fn check_above(&self, count: usize) -> Result<(), Distrust> {
        self.steps[..count].iter().try_for_each(Owned::check_above)
    }
}

fn open(above: Option<&OwnedFd>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match above {
        Some(above) => openat(above, name, flags, Mode::empty()),
        None => openat(CWD, name, flags, Mode::empty()),
    }
}
