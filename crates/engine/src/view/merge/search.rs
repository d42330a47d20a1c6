//! Finds files by their identity when the view has not met any of their names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, Result};

use super::plan::{PlannedObject, join};
use crate::base::Base;
use crate::view::View;

impl<D: Disk> View<D> {
    /// Looks everywhere for a path to each of these files of the base.
    pub(super) fn search(&self, wanted: Vec<Arc<Base>>) -> Result<HashMap<PlannedObject, Vec<u8>>> {
        let mut inodes = HashSet::new();
        for base in &wanted {
            inodes.insert(self.snapshot_stat(base)?.identity.inode);
        }
        let wanted: HashSet<u64> = wanted.iter().map(|base| base.serial).collect();
        let mut found = HashMap::new();
        let mut to_visit = vec![(self.core.root_base.clone(), Vec::new())];
        while found.len() < wanted.len()
            && let Some((directory, path)) = to_visit.pop()
        {
            for (name, base) in self.children(&directory, &inodes)? {
                let path = join(&path, &name);
                if base.kind == Kind::Directory {
                    to_visit.push((base, path));
                } else if wanted.contains(&base.serial) {
                    found
                        .entry(PlannedObject::Base(base.serial))
                        .or_insert(path);
                }
            }
        }
        Ok(found)
    }

    /// What a directory of the base holds of the base now: directories, and files with these
    /// inodes.
    fn children(
        &self,
        directory: &Arc<Base>,
        inodes: &HashSet<u64>,
    ) -> Result<Vec<(Name, Arc<Base>)>> {
        let known = self.nodes.by_base.get(&directory.serial);
        let delta = known.and_then(|id| self.nodes.get(*id)?.directory_delta());
        let changed = delta.into_iter().flat_map(|delta| &delta.entries);
        let now = changed.filter_map(|(name, entry)| {
            Some((name.clone(), self.nodes.get(entry.now?)?.base.clone()?))
        });
        let mut children: Vec<_> = now.collect();
        for (name, inode, kind) in self.snapshot().list(directory)? {
            let is_changed = delta.is_some_and(|delta| delta.entries.contains_key(&name));
            if !is_changed
                && (kind == Kind::Directory || inodes.contains(&inode))
                && let Some(there) = self.snapshot().lookup(directory, &name)?
            {
                children.push((name, there.base));
            }
        }
        Ok(children)
    }
}
