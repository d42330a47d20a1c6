//! Selects the changes at and below some paths.

use atomdir_types::path::AnyPath;
use atomdir_types::{Change, ChangeLine};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Selects the changes at and below some paths; without paths, all changes.
#[derive(Debug, Clone, Default)]
pub struct PathFilter {
    paths: Vec<PathBuf>,
}

impl PathFilter {
    /// The paths are relative to the store's root, and have no `.` and `..`. The root itself is
    /// empty.
    pub fn new(paths: Vec<PathBuf>) -> PathFilter {
        PathFilter { paths }
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The paths, as requests have them.
    pub(crate) fn as_bytes(&self) -> Vec<Vec<u8>> {
        let paths = self.paths.iter().map(|path| path.as_os_str().as_bytes());
        paths.map(<[u8]>::to_vec).collect()
    }

    /// Whether a path is selected.
    pub fn wants_path(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let mut paths = self.paths.iter();
        self.paths.is_empty() || paths.any(|wanted| path.starts_with(wanted))
    }

    /// Whether a change is at or below one of the paths.
    pub fn wants(&self, line: &ChangeLine<impl AnyPath>) -> bool {
        let from = line.from.as_ref();
        self.wants_path(&line.path.bytes())
            || from.is_some_and(|from| self.wants_path(&from.bytes()))
    }

    /// Whether a commit with these changes has changed something at or below one of the paths.
    pub fn wants_commit(&self, changes: &[ChangeLine<impl AnyPath>]) -> bool {
        self.paths.is_empty()
            || changes.iter().any(|line| self.wants(line))
            || !self.around(changes).is_empty()
    }

    /// Of a commit's changes, those that are at or below one of the paths or change what is there.
    pub fn of_commit(&self, changes: &[ChangeLine]) -> Vec<ChangeLine> {
        let around = self.around(changes);
        let wanted = changes
            .iter()
            .filter(|line| self.wants(line) || around.contains(line));
        wanted.cloned().collect()
    }

    /// The changes of directories above a path that are also changes of what is at the path: a
    /// directory that was renamed, or brought back by an undo, is one change for everything in it.
    fn around<'a, P: AnyPath>(&self, changes: &'a [ChangeLine<P>]) -> Vec<&'a ChangeLine<P>> {
        let above = changes.iter().filter(|line| self.is_below(line));
        let mut above: Vec<&ChangeLine<P>> = above.collect();
        // There are few of them: each is about a directory above a wanted path.
        above.retain(|line| match line.change {
            Change::Renamed => true,
            Change::Added => !has_below(changes, &line.path.bytes()),
            _ => false,
        });
        above
    }

    /// Whether one of the paths lies at or below the change's own paths.
    fn is_below(&self, line: &ChangeLine<impl AnyPath>) -> bool {
        let above = std::iter::once(&line.path).chain(&line.from);
        let mut above = above.map(AnyPath::bytes);
        above.any(|above| {
            let above = Path::new(OsStr::from_bytes(&above));
            self.paths.iter().any(|wanted| wanted.starts_with(above))
        })
    }
}

fn has_below(changes: &[ChangeLine<impl AnyPath>], path: &[u8]) -> bool {
    changes.iter().any(|line| {
        let below = line.path.bytes();
        let below = below.strip_prefix(path);
        below.is_some_and(|below| below.first() == Some(&b'/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(change: Change, path: &str, from: Option<&str>) -> ChangeLine {
        ChangeLine {
            change,
            path: path.into(),
            from: from.map(|from| from.into()),
        }
    }

    #[test]
    fn a_whole_directory_is_one_change_for_everything_in_it() {
        let filter = PathFilter::new(vec!["a/b".into()]);
        let wants = |changes: &[ChangeLine]| filter.wants_commit(changes);
        assert!(wants(&[line(Change::Renamed, "x", Some("a"))]));
        assert!(wants(&[line(Change::Added, "a", None)]));
        // Others were made with the directory, and the path was not.
        let made = [
            line(Change::Added, "a", None),
            line(Change::Added, "a/c", None),
        ];
        assert!(!wants(&made));
        assert!(!wants(&[line(Change::Modified, "a", None)]));
        assert!(!wants(&[line(Change::Added, "a/bc", None)]));
        assert!(wants(&[line(Change::Deleted, "a/b/c", None)]));
        assert!(PathFilter::default().wants_commit(&[] as &[ChangeLine]));
    }

    #[test]
    fn a_commits_changes_of_a_path_are_those_at_below_and_around_it() {
        let moved = line(Change::Renamed, "x", Some("a"));
        let below = line(Change::Modified, "a/b/c", None);
        let other = line(Change::Modified, "d", None);
        let all = [moved.clone(), below.clone(), other];
        let filter = PathFilter::new(vec!["a/b".into()]);
        assert_eq!(filter.of_commit(&all), [moved, below]);
        assert_eq!(PathFilter::default().of_commit(&all), all);
    }
}
