//! Changes that git makes by itself in a repository: it moves objects into packs and references into one file
//! (`git gc`, `git repack`, `git pack-refs`), and writes the logs of references again.
//!
//! An undo then finds that what the commits made has gone. It need not bring that back to remove it:
//!
//! - An object is named for its contents, and nobody writes to it. If the commits made it, it may be
//!   gone. If it was there before them, they have at most changed its times, as git does to keep it from
//!   being pruned.
//! - A reference that has gone must be among the packed ones, and its log must say that nobody has
//!   moved it since (`git_log`). It then gets there the value that it had before.
//! - A log loses the lines that the commits added.

use super::{Change, Changes, Object, Resolution, Rewrite, Sight, git_log};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const REPOSITORY: &[u8] = b".git/";

/// The path of the repository that has this file, with a slash at its end.
pub fn repository_of(path: &[u8]) -> Option<&[u8]> {
    let is_start = |at: &usize| *at == 0 || path[at - 1] == b'/';
    let mut starts = (0..path.len()).filter(is_start);
    let start = starts.find(|at| path[*at..].starts_with(REPOSITORY))?;
    Some(&path[..start + REPOSITORY.len()])
}

/// The place of a conflict in a repository.
enum Place<'a> {
    Objects(&'a [u8]),
    /// A reference, or a directory of references.
    References(&'a [u8]),
    /// The log of a reference, or a directory of logs.
    Logs,
}

impl<'a> Place<'a> {
    fn of(within: &'a [u8]) -> Option<Place<'a>> {
        // Its log is the list of what was stashed.
        const STASH: &[u8] = b"refs/stash";
        if let Some(object) = within.strip_prefix(b"objects/") {
            return Some(Place::Objects(object));
        }
        if let Some(name) = within.strip_prefix(b"logs/") {
            return (name != STASH).then_some(Place::Logs);
        }
        let is_reference = within.starts_with(b"refs/") && within != STASH;
        is_reference.then_some(Place::References(within))
    }
}

/// Adds to the resolution what is to become of these paths, at which something is in the way of an
/// undo. `None`: it is not known.
pub fn resolve(
    sight: &impl Sight,
    (repository, changes): (&[u8], &Changes),
    paths: &BTreeSet<&[u8]>,
    resolution: &mut Resolution,
) -> Option<()> {
    let mut search = Search {
        sight,
        repository,
        changes,
        made: made_objects(repository, changes),
        packed: BTreeMap::new(),
        resolution,
    };
    for path in paths {
        search.path(path)?;
    }
    search.rewrite_packed()
}

/// The names of the objects that the commits have made.
fn made_objects(repository: &[u8], changes: &Changes) -> HashSet<Vec<u8>> {
    let added = changes
        .iter()
        .filter(|(_, change)| **change == Change::Added);
    let name = |path: &Vec<u8>| {
        let within = path.strip_prefix(repository)?.strip_prefix(b"objects/")?;
        object_name(within)
    };
    added.filter_map(|(path, _)| name(path)).collect()
}

/// The name of the object in the file `xx/yyy...`.
fn object_name(within: &[u8]) -> Option<Vec<u8>> {
    let (directory, file) = (within.get(..2)?, within.get(3..)?);
    let name = [directory, file].concat();
    (within[2] == b'/' && git_log::is_name(&name)).then_some(name)
}

struct Search<'a, S: Sight> {
    sight: &'a S,
    repository: &'a [u8],
    changes: &'a Changes,
    made: HashSet<Vec<u8>>,
    /// The packed references that get another value, by name: the present one and the one before.
    packed: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
    resolution: &'a mut Resolution,
}

impl<S: Sight> Search<'_, S> {
    fn path(&mut self, path: &[u8]) -> Option<()> {
        let within = path.strip_prefix(self.repository)?;
        match Place::of(within)? {
            Place::Objects(object) => self.object(path, object),
            Place::References(_) | Place::Logs => self.tree(path),
        }
    }

    fn object(&mut self, path: &[u8], object: &[u8]) -> Option<()> {
        let now = self.sight.now(path);
        let is_pack = object.starts_with(b"pack/");
        let is_file = is_pack || object_name(object).is_some();
        let is_directory = object.len() == 2 && object.iter().all(u8::is_ascii_hexdigit);
        let is_known = match (self.changes.get(path), &now) {
            (Some(Change::Added), Object::Nothing) => is_file || is_directory,
            (Some(Change::Added), _) => is_directory || is_file && !is_pack,
            // Nobody writes to one, so the commits have changed its times.
            (Some(Change::Modified), Object::Nothing) => is_file,
            (Some(Change::Modified), Object::File(now)) => match self.sight.instead(path) {
                Object::File(before) => is_file && before.contents == now.contents,
                _ => false,
            },
            // Others have put it there.
            (None, Object::File(_)) => is_file && !is_pack,
            _ => false,
        };
        // Other objects that the commits removed must come back, perhaps into a directory that stays.
        let objects = [self.repository, b"objects/"].concat();
        let is_removed = |change| !matches!(change, Change::Added | Change::Modified);
        let has_removed = self.below(&objects).any(|(_, change)| is_removed(change));
        if !is_known || has_removed {
            return None;
        }
        self.leave(path);
        Some(())
    }

    fn leave(&mut self, path: &[u8]) {
        if !self.resolution.leaves(path) {
            self.resolution.leave.push(path.to_vec());
        }
    }

    /// The changes of the commits at paths with this beginning.
    fn below<'b>(
        &self,
        start: &'b [u8],
    ) -> impl Iterator<Item = (&Vec<u8>, Change)> + use<'_, 'b, S> {
        let from_start = self.changes.range(start.to_vec()..);
        let below = from_start.take_while(move |(path, _)| path.starts_with(start));
        below.map(|(path, change)| (path, *change))
    }

    /// A reference or a log, or a directory of such that came with the commits.
    fn tree(&mut self, path: &[u8]) -> Option<()> {
        if self.resolution.leaves(path) {
            return Some(());
        }
        let change = self.changes.get(path).copied()?;
        let start = [path, b"/"].concat();
        let within: Vec<Vec<u8>> = self.below(&start).map(|(path, _)| path.clone()).collect();
        let now = self.sight.now(path);
        if within.is_empty() && !matches!(now, Object::Directory) {
            return self.file(path, (change, now));
        }
        if change != Change::Added || !matches!(now, Object::Directory | Object::Nothing) {
            return None;
        }
        for path in within {
            self.tree(&path)?;
        }
        self.leave(path);
        self.resolution.emptied.push(path.to_vec());
        Some(())
    }

    fn file(&mut self, path: &[u8], (change, now): (Change, Object)) -> Option<()> {
        if !matches!(change, Change::Added | Change::Modified) {
            return None;
        }
        let within = path.strip_prefix(self.repository)?;
        match (Place::of(within)?, now) {
            (Place::References(name), Object::Nothing) => {
                let values = self.values(name, change)?;
                self.packed.insert(name.to_vec(), values);
            }
            (Place::Logs, Object::Nothing) if change == Change::Added => {}
            (Place::Logs, Object::File(file)) => {
                let before = self.log_before(path, change)?;
                let moves = git_log::moves(&before, &file.contents, &self.made)?;
                let goes = moves.left.is_empty() && change == Change::Added;
                self.resolution.rewrites.push(Rewrite {
                    path: path.to_vec(),
                    found: file.contents,
                    contents: (!goes).then_some(moves.left),
                });
            }
            _ => return None,
        }
        self.leave(path);
        Some(())
    }

    fn log_before(&self, path: &[u8], change: Change) -> Option<Vec<u8>> {
        match (change, self.sight.instead(path)) {
            (Change::Added, _) => Some(Vec::new()),
            (_, Object::File(before)) => Some(before.contents),
            _ => None,
        }
    }

    /// The value that a reference must have among the packed ones, and the one before the commits.
    fn values(&self, name: &[u8], change: Change) -> Option<(Vec<u8>, Vec<u8>)> {
        let path = [self.repository, b"logs/", name].concat();
        let Object::File(log) = self.sight.now(&path) else {
            return None;
        };
        let before = self.log_before(&path, self.changes.get(&path).copied()?)?;
        let moves = git_log::moves(&before, &log.contents, &self.made)?;
        let added = moves.added.filter(|added| added.is_last)?;
        let reference = [self.repository, name].concat();
        let value = match (change, self.sight.instead(&reference)) {
            (Change::Modified, Object::File(file)) => file.contents.trim_ascii_end().to_vec(),
            (Change::Added, _) => match git_log::end(&before) {
                Some(end) => end,
                None => b"0".repeat(added.to.len()),
            },
            _ => return None,
        };
        (value == added.from).then_some((added.to, value))
    }

    fn rewrite_packed(&mut self) -> Option<()> {
        if self.packed.is_empty() {
            return Some(());
        }
        let path = [self.repository, b"packed-refs"].concat();
        let Object::File(file) = self.sight.now(&path) else {
            return None;
        };
        if self.changes.contains_key(&path) {
            return None;
        }
        let contents = with_values(&file.contents, std::mem::take(&mut self.packed))?;
        self.resolution.rewrites.push(Rewrite {
            path,
            found: file.contents,
            contents: Some(contents),
        });
        Some(())
    }
}

/// Packed references with other values. A reference that was nothing before goes. `None` if one has
/// another value than is expected.
fn with_values(
    packed: &[u8],
    mut values: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
) -> Option<Vec<u8>> {
    let mut lines = packed.split_inclusive(|byte| *byte == b'\n').peekable();
    let mut contents = Vec::new();
    while let Some(line) = lines.next() {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let space = text.iter().position(|byte| *byte == b' ');
        let parts = space.map(|at| (&text[..at], &text[at + 1..]));
        let wanted = parts.and_then(|(value, name)| Some((value, name, values.remove(name)?)));
        let Some((value, name, (now, before))) = wanted else {
            contents.extend_from_slice(line);
            continue;
        };
        // The next line may say to which object a tag leads.
        let is_tag = lines.peek().is_some_and(|next| next.starts_with(b"^"));
        if value != now || is_tag {
            return None;
        }
        if before.iter().any(|digit| *digit != b'0') {
            contents.extend([&before, &b" "[..], name, b"\n"].concat());
        }
    }
    values.is_empty().then_some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_of_a_path_is_found() {
        let found = |path: &'static [u8]| repository_of(path);
        assert_eq!(found(b".git/refs/heads/x"), Some(&b".git/"[..]));
        assert_eq!(found(b"a/.git/logs/HEAD"), Some(&b"a/.git/"[..]));
        assert_eq!(found(b"a.git/logs/HEAD"), None);
        assert_eq!(found(b".gitignore"), None);
        assert_eq!(found(b".git"), None);
    }

    #[test]
    fn packed_references_get_other_values_or_go() {
        let packed =
            b"# pack-refs with: peeled\nbb refs/heads/a\ncc refs/tags/t\n^dd\nbb refs/heads/z\n";
        let value = |name: &str, now: &str, before: &str| {
            BTreeMap::from([(name.into(), (now.into(), before.into()))])
        };
        let changed = with_values(packed, value("refs/heads/a", "bb", "aa")).expect("it is there");
        assert!(changed.ends_with(b"aa refs/heads/a\ncc refs/tags/t\n^dd\nbb refs/heads/z\n"));
        let gone = with_values(packed, value("refs/heads/z", "bb", "00")).expect("it is there");
        assert!(gone.ends_with(b"bb refs/heads/a\ncc refs/tags/t\n^dd\n"));
        assert_eq!(with_values(packed, value("refs/heads/a", "cc", "aa")), None);
        assert_eq!(with_values(packed, value("refs/tags/t", "cc", "aa")), None);
        assert_eq!(with_values(packed, value("refs/heads/b", "bb", "aa")), None);
    }
}
