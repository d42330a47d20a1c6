//! The outer transaction's tree after a nested one was committed into it, possibly after others.
//! The engine compares nodes; here whole trees are compared by object.

use std::collections::{BTreeMap, BTreeSet};

use super::{Model, Object};

type Entries = BTreeMap<Vec<u8>, usize>;

impl Model {
    /// The same tree, for another transaction, whose new objects get numbers from here on.
    pub fn forked(&self, next: usize) -> Model {
        Model {
            next,
            ..self.clone()
        }
    }

    /// The same tree after a commit to the base: all its objects count as unchanged.
    pub fn committed(&self) -> Model {
        Model {
            stamps: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// The same tree, in which what is as in `fork` counts as unchanged, though it may have been changed
    /// and changed back.
    pub fn since(&self, fork: &Model) -> Model {
        let mut since = self.clone();
        let is_changed = |id: &usize| self.objects.get(id) != fork.objects.get(id);
        since.stamps.retain(|id, _| is_changed(id));
        since
    }

    /// Goes back to a former state. Numbers are not used again.
    pub fn back_to(&mut self, saved: &Model) {
        *self = saved.forked(self.next);
    }

    /// Joins a nested transaction's tree with this one. Returns what both have changed, if
    /// anything, since the nested one began with the tree `fork`.
    pub fn join(&self, fork: &Model, nested: &Model) -> Result<Model, String> {
        let mut joined = self.clone();
        let removed = (fork.removed_in(self), fork.removed_in(nested));
        for (id, theirs) in &nested.objects {
            let (Some(mine), Some(_)) = (self.objects.get(id), fork.objects.get(id)) else {
                assert!(!fork.objects.contains_key(id) && !self.objects.contains_key(id));
                joined.take(*id, nested);
                continue;
            };
            let is_touched = (self.differs(fork, *id), nested.differs(fork, *id));
            let Object::Directory { .. } = mine else {
                match is_touched {
                    (true, true) => return Err(format!("both changed {mine:?} and {theirs:?}")),
                    (false, true) => joined.take(*id, nested),
                    _ => {}
                }
                continue;
            };
            let names = (
                changed_names(fork.entries(*id), self.entries(*id)),
                changed_names(fork.entries(*id), nested.entries(*id)),
            );
            if names.0.intersection(&names.1).next().is_some() || is_touched == (true, true) {
                return Err(format!("both changed directory {id}: {names:?}"));
            }
            let is_removed = (removed.0.contains(id), removed.1.contains(id));
            if is_removed.0 && (is_removed.1 || is_touched.1 || !names.1.is_empty())
                || is_removed.1 && (is_touched.0 || !names.0.is_empty())
            {
                return Err(format!("one removed directory {id}"));
            }
            let mut entries = self.entries(*id).clone();
            for name in names.1 {
                match nested.entries(*id).get(&name) {
                    Some(now) => entries.insert(name, *now),
                    None => entries.remove(&name),
                };
            }
            if is_touched.1 {
                joined.take(*id, nested);
            }
            *joined.entries_mut(*id) = entries;
        }
        let reachable = joined.directories_by_number();
        let mut all = self.directories_by_number();
        all.extend(nested.directories_by_number());
        let is_lost = |id: &&usize| {
            !reachable.contains(*id) && !removed.0.contains(*id) && !removed.1.contains(*id)
        };
        match all.iter().find(is_lost) {
            Some(id) => Err(format!("directory {id} is below itself")),
            None => Ok(joined),
        }
    }

    fn take(&mut self, id: usize, other: &Model) {
        self.objects.insert(id, other.objects[&id].clone());
        if let Some(stamp) = other.stamps.get(&id) {
            self.stamps.insert(id, *stamp);
        }
    }

    fn differs(&self, fork: &Model, id: usize) -> bool {
        self.stamps.get(&id) != fork.stamps.get(&id)
    }

    fn directories_by_number(&self) -> BTreeSet<usize> {
        self.directories().into_iter().map(|(_, id)| id).collect()
    }

    fn removed_in(&self, later: &Model) -> BTreeSet<usize> {
        let (before, after) = (self.directories_by_number(), later.directories_by_number());
        before.difference(&after).copied().collect()
    }

    /// How many files and directories the tree has, each counted once.
    pub fn number_of_files(&self) -> usize {
        let files = self.directories().into_iter().flat_map(|(_, directory)| {
            let entries = self.entries(directory).values().copied();
            entries.filter(|id| matches!(self.objects[id], Object::File { .. }))
        });
        files.collect::<BTreeSet<usize>>().len()
    }
}

fn changed_names(before: &Entries, after: &Entries) -> BTreeSet<Vec<u8>> {
    let names = before.keys().chain(after.keys());
    let differs = |name: &&Vec<u8>| before.get(*name) != after.get(*name);
    names.filter(differs).cloned().collect()
}
