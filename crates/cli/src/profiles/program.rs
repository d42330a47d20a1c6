//! Finds programs as a shell does, but for links to ourselves that masquerade as them.

use rustix::fs::{Access, FileType};
use std::env::split_paths;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What a shell would start, and what is behind it.
#[derive(Debug, Default)]
pub struct Found {
    /// Ourselves, by a link that masquerades as the program. A shell starts it before the program.
    pub link: Option<PathBuf>,
    pub program: Option<PathBuf>,
}

/// Finds a program by its name in the directories of `path`, or by its path.
pub fn find(program: &OsStr, path: &OsStr) -> Found {
    let candidates: Vec<PathBuf> = match Path::new(program).components().count() {
        1 if !program.is_empty() => split_paths(path).map(|one| one.join(program)).collect(),
        _ => std::path::absolute(program).into_iter().collect(),
    };
    let mut found = Found::default();
    for candidate in candidates.into_iter().filter(|one| is_executable(one)) {
        match is_own(&candidate) {
            true => found.link = found.link.or(Some(candidate)),
            false => {
                found.program = Some(candidate);
                break;
            }
        }
    }
    found
}

/// Whether a path leads to the file that this process runs.
pub fn is_own(path: &Path) -> bool {
    let own = rustix::fs::stat("/proc/self/exe");
    let is_it = |own: rustix::fs::Stat| {
        let found = rustix::fs::stat(path);
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino))
    };
    own.is_ok_and(is_it)
}

fn is_executable(path: &Path) -> bool {
    let stat = rustix::fs::stat(path);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}
