//! Finds changes that give programs rights which their user did not have: programs
//! that run with the rights of their owner or group or with capabilities, and
//! device nodes. A user who reads a list of changes must not have to search for
//! them.

use super::version::Version;
use crate::context::Connected;
use crate::error::Error;
use crate::files;
use atomdir::Change;
use atomdir::client::compare::old_path;
use atomdir::client::{ChangeLine, Transaction};
use rustix::fs::{AtFlags, FileType, Stat, major, minor, statat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::BorrowedFd;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const EXECUTABLE: u32 = 0o111;
const CAPABILITIES: &[u8] = b"security.capability";

/// The rights that changes give, by the change's place in the list.
#[derive(Debug, Default)]
pub struct Rights(BTreeMap<usize, Right>);

/// The rights that one changed object gives.
#[derive(Debug, PartialEq, Eq)]
pub struct Right {
    words: Vec<&'static str>,
    mode: Option<u32>,
    mode_before: Option<u32>,
    /// Major and minor number.
    device: Option<(u32, u32)>,
}

impl Rights {
    pub fn find(
        connected: &mut Connected,
        transaction: &Transaction,
        lines: &[ChangeLine],
    ) -> Result<Rights, Error> {
        let mut found = BTreeMap::new();
        let shared = shared_paths(lines);
        for (place, line) in lines.iter().enumerate() {
            if line.change == Change::Deleted {
                continue;
            }
            let failed = |errno| Error::View {
                path: line.path.clone(),
                errno,
            };
            let root = transaction.root().map_err(failed)?;
            let is_shared = shared.contains(line.path.as_slice());
            let at_path = match line.change == Change::Modified && is_shared {
                true => Err(Errno::NOENT),
                false => look(root, &line.path),
            };
            let Some(mut right) = seen(at_path, line.change).map_err(failed)? else {
                continue;
            };
            if line.change != Change::Added {
                let old = old_path(lines, line);
                let before = Version::in_snapshot(&mut connected.connection, transaction.id, &old)?;
                right.mode_before = before.map(|before| before.mode);
            }
            found.insert(place, right);
        }
        Ok(Rights(found))
    }

    pub fn of(&self, place: usize) -> Option<&Right> {
        self.0.get(&place)
    }

    /// How many changes give rights.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Right {
    pub fn words(&self) -> &[&'static str] {
        &self.words
    }
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.join(", ");
        match (self.device, self.mode, self.mode_before) {
            (Some((major, minor)), ..) => write!(formatter, "{words} {major}:{minor}"),
            (_, Some(mode), Some(before)) if mode != before => {
                write!(formatter, "mode {before:04o} -> {mode:04o}: {words}")
            }
            (_, Some(mode), _) => write!(formatter, "mode {mode:04o}: {words}"),
            (_, None, _) => formatter.write_str(&words),
        }
    }
}

/// The paths that several changed files have had. Such a path leads to one of them.
fn shared_paths(lines: &[ChangeLine]) -> BTreeSet<&[u8]> {
    let mut all = BTreeSet::new();
    let files = lines
        .iter()
        .filter(|line| !matches!(line.change, Change::Deleted | Change::Renamed));
    let paths = files.map(|line| line.path.as_slice());
    paths.filter(|path| !all.insert(*path)).collect()
}

fn seen(at_path: Result<Option<Right>, Errno>, change: Change) -> Result<Option<Right>, Errno> {
    let unseen = |word| {
        Ok(Some(Right {
            words: vec![word],
            mode: None,
            mode_before: None,
            device: None,
        }))
    };
    match at_path {
        // The file has lost this name, and only its directory entries know its others.
        Err(Errno::NOENT | Errno::NOTDIR) if change == Change::Modified => {
            unseen("changed under its other names, which are not listed")
        }
        // It was removed after the list was made.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        // A directory that its owner may not search must not hide such changes.
        Err(Errno::ACCESS) => unseen("not to be seen by its owner"),
        other => other,
    }
}

fn look(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Right>, Errno> {
    if path.is_empty() {
        return Ok(None);
    }
    let (directory, name) = files::open_parent(root, path)?;
    let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_capable = || -> Result<bool, Errno> {
        let xattrs = files::xattrs_at(&directory, name)?;
        Ok(xattrs.iter().any(|(name, _)| name == CAPABILITIES))
    };
    let mut words = words_for(&stat);
    let is_program = is_file(&stat) && stat.st_mode & EXECUTABLE != 0;
    if is_program && is_capable()? {
        words.push("capabilities");
    }
    if words.is_empty() {
        return Ok(None);
    }
    let is_device = !is_file(&stat);
    Ok(Some(Right {
        words,
        mode: Some(stat.st_mode & 0o7777),
        mode_before: None,
        device: is_device.then(|| (major(stat.st_rdev), minor(stat.st_rdev))),
    }))
}

fn words_for(stat: &Stat) -> Vec<&'static str> {
    let mut words = Vec::new();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => words.extend(set_id_words(stat.st_mode)),
        FileType::CharacterDevice => words.push("character device"),
        FileType::BlockDevice => words.push("block device"),
        _ => {}
    }
    words
}

/// The rights that a regular file's mode gives.
pub(super) fn set_id_words(mode: u32) -> Vec<&'static str> {
    let bits = [(SET_USER_ID, "set-user-id"), (SET_GROUP_ID, "set-group-id")];
    let set = bits.into_iter().filter(|(bit, _)| mode & bit != 0);
    set.map(|(_, word)| word).collect()
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(mode: u32, mode_before: Option<u32>, device: Option<(u32, u32)>) -> String {
        let word = match device {
            Some(_) => "block device",
            None => "set-user-id",
        };
        Right {
            words: vec![word],
            mode: Some(mode),
            mode_before,
            device,
        }
        .to_string()
    }

    #[test]
    fn a_right_is_shown_with_the_mode_that_gives_it() {
        assert_eq!(
            right(0o4755, Some(0o755), None),
            "mode 0755 -> 4755: set-user-id"
        );
        assert_eq!(right(0o4755, None, None), "mode 4755: set-user-id");
        assert_eq!(right(0o600, None, Some((8, 1))), "block device 8:1");
    }
}
