//! Reads overlayfs's index, which holds a copy of each changed file that has
//! several names.

use atomdir_disk::{Access, Disk, Errno, Kind, Result};

use super::walk::{Item, is_whiteout};
use super::{InLayer, Reading};
use crate::ids::NodeId;
use crate::names;

/// These stand for overlayfs's own directories where directories are numbered as
/// nodes. The view uses neither node 0 nor the last one.
const WORK: NodeId = NodeId(0);
const INDEX: NodeId = NodeId(u64::MAX);

impl<D: Disk> Reading<'_, D> {
    /// A copied file with several names is in the index as well. If all names
    /// through which it was changed are gone and others are left, this is the only
    /// copy.
    pub(super) fn take_index(&mut self) -> Result<()> {
        if !self.add_index_to_layer()? {
            return Ok(());
        }
        let handle = self.open(INDEX)?;
        for entry in self.new.core.disk.list(&handle)? {
            let opened = self.new.core.disk.open(&handle, &entry.name, Access::Path);
            let Some(object) = self.unless_gone(opened)? else {
                continue;
            };
            let stat = self.new.core.disk.stat(&object)?;
            // What the index has of directories is not needed. A device of number 0
            // stands for a file whose names are all gone.
            if stat.kind == Kind::Directory || is_whiteout(&stat) {
                continue;
            }
            let overlay = self.overlay_attributes(&object)?;
            let of_base = overlay
                .origin
                .flatten()
                .and_then(|origin| self.of_origin(origin));
            let known = of_base.and_then(|base| self.new.nodes.by_base.get(&base.serial).copied());
            if let Some(id) = known {
                let item = Item {
                    parent: INDEX,
                    name: entry.name,
                    stat,
                };
                self.take_changes(id, item, overlay)?;
            }
        }
        Ok(())
    }

    fn add_index_to_layer(&mut self) -> Result<bool> {
        let stage = self.new.stage()?;
        let disk = &self.new.core.disk;
        let work = disk.open(&stage, &names::fixed(names::WORK), Access::Directory)?;
        let name = names::fixed(names::WORK_INDEX);
        let index = match disk.stat_at(&work, &name) {
            // The overlay was mounted without the options that need an index.
            Err(Errno::NOENT) => return Ok(false),
            index => index?,
        };
        let places = [
            (WORK, None, names::fixed(names::WORK), disk.stat(&work)?),
            (INDEX, Some(WORK), name, index),
        ];
        for (id, parent, name, stat) in places {
            let identity = stat.identity;
            let place = InLayer {
                parent,
                name,
                identity,
            };
            self.moves.layer.insert(id, place);
        }
        Ok(true)
    }
}
