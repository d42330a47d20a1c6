//! Finds the changes that are at and below some paths.
//!
//! A path is any name of an object. Changes are known by one name of each object. So a path without
//! a change may still be another name of a changed file. Only such paths are looked up.

use atomdir_disk::{Disk, Errno};
use atomdir_types::path::is_at_or_below;

use super::{Item, Needs, NoPart};
use crate::ids::NodeId;
use crate::view::View;
use crate::view::node::Node;

impl<D: Disk> View<D> {
    pub(super) fn chosen(&mut self, needs: &Needs, paths: &[Vec<u8>]) -> Result<Vec<Item>, NoPart> {
        let mut is_met = vec![false; paths.len()];
        let mut chosen = Vec::new();
        for item in &needs.all {
            let mut is_chosen = false;
            for known in self.paths_of(item) {
                for (path, is_met) in paths.iter().zip(&mut is_met) {
                    if is_at_or_below(&known, path) {
                        *is_met = true;
                        is_chosen = true;
                    }
                }
            }
            if is_chosen {
                chosen.push(item.clone());
            }
        }
        // Everything was asked for, and nothing has changed.
        let unmet = paths
            .iter()
            .zip(is_met)
            .filter(|(path, is_met)| !is_met && !path.is_empty());
        for (path, _) in unmet {
            chosen.extend(self.changes_of_object_at(needs, path)?);
        }
        Ok(chosen)
    }

    /// The changes of the object that has this name in the view.
    fn changes_of_object_at(&mut self, needs: &Needs, path: &[u8]) -> Result<Vec<Item>, NoPart> {
        let unchanged = || NoPart::Unchanged { path: path.into() };
        let object = match self.resolve(path) {
            Ok(found) => found.ok_or_else(unchanged)?,
            Err(Errno::NOENT | Errno::INVAL | Errno::NAMETOOLONG) => return Err(unchanged()),
            Err(errno) => {
                let path = path.into();
                return Err(NoPart::Unknown { path, errno });
            }
        };
        let is_its = |item: &&Item| self.is_of_object(item, object);
        let changes: Vec<Item> = needs.all.iter().filter(is_its).cloned().collect();
        self.drop_if_unneeded(object);
        match changes.is_empty() {
            true => Err(unchanged()),
            false => Ok(changes),
        }
    }

    /// Whether it changes the object itself, or one of its names.
    fn is_of_object(&self, item: &Item, object: NodeId) -> bool {
        match item {
            Item::Node(id) => *id == object,
            Item::Entry(directory, name) => {
                let delta = self.node(*directory).ok().and_then(Node::directory_delta);
                let entry = delta.and_then(|delta| delta.entries.get(name));
                let base = self.node(object).ok().and_then(|node| node.base.as_ref());
                entry.is_some_and(|entry| {
                    let before = entry.before.as_ref().map(|before| before.serial);
                    entry.now == Some(object)
                        || before.is_some() && before == base.map(|base| base.serial)
                })
            }
            Item::Base(_) => false,
        }
    }

    /// The path in the view, and the one in the snapshot.
    fn paths_of(&self, item: &Item) -> Vec<Vec<u8>> {
        match item {
            Item::Node(id) => vec![self.path(*id)],
            Item::Entry(directory, name) => {
                let mut paths = vec![self.path_of_entry(*directory, name)];
                let delta = self.node(*directory).ok().and_then(Node::directory_delta);
                let before = delta.and_then(|delta| delta.entries.get(name)?.before.as_ref());
                paths.extend(before.map(|before| self.old_path(before, *directory, name)));
                paths
            }
            Item::Base(_) => Vec::new(),
        }
    }
}
