//! The index, in which overlayfs keeps a copy of each changed file that has several
//! names.

use atomdir_disk::{Access, Disk, Errno, Kind, Result};

use super::walk::{Item, is_whiteout};
use super::{InLayer, Reading};
use crate::ids::NodeId;
use crate::names;

/// Stand for overlayfs's own directories where the view's are numbered; node 0
/// is never used, nor is the last.
const WORK: NodeId = NodeId(0);
const INDEX: NodeId = NodeId(u64::MAX);

impl<D: Disk> Reading<'_, D> {
    /// Files of several names have a copy in the index as well. It is the only
    /// one if all names by which they were changed are gone, and others left.
    pub(super) fn take_index(&mut self) -> Result<()> {
        if !self.add_index_to_layer()? {
            return Ok(());
        }
        let handle = self.open(INDEX)?;
        for entry in self.new.core.disk.list(&handle)? {
            let object = match self.new.core.disk.open(&handle, &entry.name, Access::Path) {
                Ok(object) => object,
                // Only when programs are still at work.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            let stat = self.new.core.disk.stat(&object)?;
            // Of directories the index tells nothing; a device of number 0 stands
            // for a file whose names are all gone.
            if stat.kind == Kind::Directory || is_whiteout(&stat) {
                continue;
            }
            let marks = self.marks(&object)?;
            let of_base = marks
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
                self.take_changes(id, item, marks)?;
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
            // None of the options that need it was used.
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
