//! Trees of numbered objects, and their description as text.

use std::collections::{BTreeMap, BTreeSet};

use super::super::script::describe;
use super::{ROOT, Tree};

impl Tree {
    pub(super) fn entries(&self, directory: usize) -> &BTreeMap<String, usize> {
        let entries = self.0[&directory].entries.as_ref();
        entries.expect("it is a directory")
    }

    pub(super) fn find(&self, path: &str) -> Option<usize> {
        let mut parts = path.split('/').filter(|part| *part != ".");
        parts.try_fold(ROOT, |at, part| {
            self.0[&at].entries.as_ref()?.get(part).copied()
        })
    }

    pub(super) fn split<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        match path.rsplit_once('/') {
            Some((above, name)) => Some((self.find(above)?, name)),
            None => Some((ROOT, path)),
        }
    }

    pub(super) fn set(&mut self, (directory, name): (usize, &str), object: Option<usize>) {
        let directory = self.0.get_mut(&directory).expect("it is there");
        let entries = directory.entries.as_mut().expect("it is a directory");
        match object {
            Some(object) => entries.insert(name.to_owned(), object),
            None => entries.remove(name),
        };
    }

    /// Every entry that can be reached from the root. Moves by two transactions may form a ring of
    /// directories, which cannot be reached.
    pub(super) fn all_entries(&self) -> BTreeMap<(usize, String), usize> {
        let mut all = BTreeMap::new();
        let mut pending = vec![ROOT];
        let mut seen = BTreeSet::from([ROOT]);
        while let Some(directory) = pending.pop() {
            for (name, object) in self.entries(directory) {
                all.insert((directory, name.clone()), *object);
                if self.0[object].entries.is_some() && seen.insert(*object) {
                    pending.push(*object);
                }
            }
        }
        all
    }

    pub(super) fn names(&self, object: usize) -> BTreeSet<(usize, String)> {
        let all = self.all_entries().into_iter();
        let of_it = all.filter(|(_, named)| *named == object);
        of_it.map(|(entry, _)| entry).collect()
    }

    /// All paths, and which of them are directories.
    pub fn paths(&self) -> Vec<(String, bool)> {
        let mut paths = Vec::new();
        self.walk(ROOT, "", &mut |path, object| {
            paths.push((path.to_owned(), self.0[&object].entries.is_some()));
        });
        paths
    }

    pub(super) fn walk(&self, directory: usize, above: &str, visit: &mut dyn FnMut(&str, usize)) {
        for (name, object) in self.entries(directory) {
            let path = format!("{above}{name}");
            visit(&path, *object);
            if self.0[object].entries.is_some() {
                self.walk(*object, &format!("{path}/"), visit);
            }
        }
    }

    /// Describes the tree as `script::tree` describes one on disk.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut firsts: BTreeMap<usize, String> = BTreeMap::new();
        self.walk(ROOT, "", &mut |path, id| {
            let object = &self.0[&id];
            let usual = if object.entries.is_some() {
                0o755
            } else {
                0o644
            };
            let mode = match object.mode {
                mode if mode == usual => String::new(),
                mode => format!(" {mode:o}"),
            };
            let first = firsts.entry(id).or_insert_with(|| path.to_owned());
            lines.push(if object.entries.is_some() {
                format!("{path}/{mode}")
            } else if first != path {
                format!("{path} is {first}")
            } else {
                format!("{path} {}{mode}{}", describe(&object.contents), object.k)
            });
        });
        lines
    }
}
