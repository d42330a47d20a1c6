//! The list of changed paths, for the history.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use atomdir_disk::{Disk, Name};
use atomdir_types::{Change, ChangeLine, TreePath};

use super::found::{Entry, Finder};
use crate::base::{Base, Place};

type Key = (Arc<Base>, Name);

struct Paths {
    /// Where objects were, by serial, as far as their names have changed.
    old: HashMap<u64, Key>,
    known: HashMap<(u64, bool), TreePath>,
}

/// `in_place`: the objects that have changed and not only their names.
pub(super) fn of<'a, D: Disk>(
    finder: &Finder<'_, D>,
    in_place: impl Iterator<Item = &'a Arc<Base>>,
) -> Vec<ChangeLine<TreePath>> {
    let entries = &finder.entries;
    let key = |entry: &Entry| (entry.directory.clone(), entry.name.clone());
    let old = entries
        .iter()
        .filter_map(|entry| Some((entry.old.as_ref()?.serial, key(entry))));
    let mut paths = Paths {
        old: old.collect(),
        known: HashMap::new(),
    };
    let now = entries.iter().filter_map(|entry| entry.now.as_ref());
    let now: Vec<u64> = now.map(|base| base.serial).collect();
    let mut lines: BTreeMap<Vec<u8>, ChangeLine<TreePath>> = BTreeMap::new();
    let mut add = |change, path: TreePath, from| {
        let line = ChangeLine { change, path, from };
        lines.entry(line.path.to_bytes()).or_insert(line);
    };
    for entry in entries {
        let here = (&entry.directory, &entry.name);
        let (Some(present), old) = (&entry.now, &entry.old) else {
            let has_moved = entry
                .old
                .as_ref()
                .is_some_and(|old| now.contains(&old.serial));
            if entry.old.is_some() && !has_moved {
                add(Change::Deleted, paths.of_entry(here, true), None);
            }
            continue;
        };
        let path = paths.of_entry(here, false);
        let came_from = paths.old.get(&present.serial).cloned();
        let came_from = came_from.filter(|_| !finder.is_new(present));
        match (came_from, old) {
            (Some(from), _) => {
                let from = paths.of_entry((&from.0, &from.1), true);
                add(Change::Renamed, path, Some(from));
            }
            (None, None) => add(Change::Added, path, None),
            (None, Some(old)) if old.kind != present.kind => add(Change::TypeChanged, path, None),
            (None, Some(_)) => add(Change::Modified, path, None),
        }
    }
    for base in in_place {
        let place = base.state().place.clone();
        match place {
            Place::Root => add(Change::Modified, TreePath::default(), None),
            Place::Entry { parent, name } => {
                add(
                    Change::Modified,
                    paths.of_entry((&parent, &name), false),
                    None,
                );
            }
            Place::Limbo(_) | Place::Held => {}
        }
    }
    lines.into_values().collect()
}

impl Paths {
    fn of_entry(&mut self, (directory, name): (&Arc<Base>, &Name), is_old: bool) -> TreePath {
        self.of(directory, is_old).join(name.as_bytes())
    }

    fn of(&mut self, directory: &Arc<Base>, is_old: bool) -> TreePath {
        let key = (directory.serial, is_old);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let former = self.old.get(&directory.serial).filter(|_| is_old).cloned();
        let place = directory.state().place.clone();
        let path = match (former, place) {
            (Some((parent, name)), _) | (None, Place::Entry { parent, name }) => {
                self.of_entry((&parent, &name), is_old)
            }
            (None, _) => TreePath::default(),
        };
        self.known.insert(key, path.clone());
        path
    }
}
