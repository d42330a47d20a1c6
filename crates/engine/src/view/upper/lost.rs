//! Finds the objects of the base that have lost names. A whiteout names only
//! the topmost object, and everything in a removed directory is gone with it.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, Result};

use super::Reading;
use crate::base::Base;
use crate::base::snapshot::Found;
use crate::ids::NodeId;
use crate::view::NodeAttributes;

/// An entry of the view that the base does not have.
struct Gained {
    directory: NodeId,
    id: NodeId,
}

/// An entry of the base that the view no longer has.
struct Lost {
    directory: NodeId,
    name: Name,
    base: Arc<Base>,
}

impl<D: Disk> Reading<'_, D> {
    pub(super) fn drop_lost_names(&mut self) -> Result<()> {
        let (gained, mut lost) = self.changed_names()?;
        let mut moved = HashSet::new();
        // Count the gained names first, so that no link count falls to zero in
        // between.
        for Gained { directory, id } in gained {
            let node = self.new.node(id)?;
            let Some(base) = node.base.clone() else {
                if node.kind == Kind::Directory {
                    self.attributes_mut(directory)?.count_subdirectory(true);
                }
                continue;
            };
            if base.kind == Kind::Directory {
                moved.insert(base.serial);
                self.attributes_mut(directory)?.count_subdirectory(true);
            } else {
                self.attributes_mut(id)?.links += 1;
            }
        }
        while let Some(entry) = lost.pop() {
            self.drop_name(entry, &moved, &mut lost)?;
        }
        Ok(())
    }

    fn attributes_mut(&mut self, id: NodeId) -> Result<&mut NodeAttributes> {
        if self.new.node(id)?.own().is_none() {
            self.new.own_mut(id)?;
        }
        Ok(&mut self.new.own_in_place(id)?.attributes)
    }

    fn changed_names(&self) -> Result<(Vec<Gained>, Vec<Lost>)> {
        let (mut gained, mut lost) = (Vec::new(), Vec::new());
        for directory in self.new.changed_nodes() {
            let delta = self.new.node(directory)?.directory_delta();
            for (name, entry) in delta.into_iter().flat_map(|delta| &delta.entries) {
                gained.extend(entry.now.map(|id| Gained { directory, id }));
                lost.extend(entry.before.clone().map(|base| Lost {
                    directory,
                    name: name.clone(),
                    base,
                }));
            }
        }
        Ok((gained, lost))
    }

    fn drop_name(&mut self, entry: Lost, moved: &HashSet<u64>, more: &mut Vec<Lost>) -> Result<()> {
        let Lost {
            directory,
            name,
            base,
        } = entry;
        if base.is_mount_point() {
            // overlayfs allows this removal. The commit will be refused and
            // name the path.
            self.new.nodes.dying.insert(base.serial, base);
            return Ok(());
        }
        if base.kind == Kind::Directory {
            if !self.new.node(directory)?.is_removed_directory() {
                self.attributes_mut(directory)?.count_subdirectory(false);
            }
            if !moved.contains(&base.serial) {
                self.remove_directory(base, directory, &name, more)?;
            }
            return Ok(());
        }
        let stat = self.new.shown_stat(&base)?;
        if self.new.node(directory)?.is_removed_directory() {
            self.note_removed((&base, &stat), &name);
        }
        let id = self
            .new
            .node_of_base(Found { base, stat }, directory, &name);
        self.new.drop_link(id)?;
        self.new.drop_if_unneeded(id);
        Ok(())
    }

    /// Removes a directory with all that the view showed in it. What an outside writer has put there
    /// since is left to validation.
    fn remove_directory(
        &mut self,
        base: Arc<Base>,
        directory: NodeId,
        name: &Name,
        more: &mut Vec<Lost>,
    ) -> Result<()> {
        let stat = self.new.shown_stat(&base)?;
        self.note_removed((&base, &stat), name);
        let found = Found {
            base: base.clone(),
            stat,
        };
        let id = self.new.node_of_base(found, directory, name);
        let (mode, owner) = (stat.attributes.mode, stat.attributes.owner);
        self.new.node_mut(id)?.reported.get_or_insert((mode, owner));
        if self.is_over_base() {
            self.show_children(&base)?;
            self.doubt_removed(id, &base)?;
        }
        for (name, child) in self.new.shown_children(&base) {
            self.new.set_entry(id, &name, None)?;
            more.push(Lost {
                directory: id,
                name,
                base: child,
            });
        }
        self.new.delta_mut(id)?.removed = true;
        self.new.own_mut(id)?.attributes.links = 0;
        self.new.set_dying(id)
    }
}
