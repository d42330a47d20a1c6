//! Reads overlayfs's index, which holds a copy of each changed file that has
//! several names.

use atomdir_disk::{Access, Disk, Errno, Kind, Result};

use super::overlay_attributes::inode_of;
use super::walk::{InUpper, is_whiteout};
use super::{InLayer, LayerDirectory, Reading};
use crate::names;

impl<D: Disk> Reading<'_, D> {
    /// A copied file with several names is in the index as well. If all names
    /// through which it was changed are gone and others are left, this is the only
    /// copy.
    pub(super) fn take_index(&mut self) -> Result<()> {
        if !self.add_index_to_layer()? {
            return Ok(());
        }
        let handle = self.open(LayerDirectory::Index)?;
        let by_inode = self.is_over_base().then(|| self.by_inode());
        for entry in self.new.core.disk.list(&handle)? {
            let opened = self.new.core.disk.open(&handle, &entry.name, Access::Path);
            let Some(object) = self.unless_gone(opened)? else {
                continue;
            };
            let stat = self.new.core.disk.stat(&object)?;
            // The index also has entries for directories, which are not needed. A device of
            // number 0 stands for a file whose names are all gone.
            if stat.kind == Kind::Directory || is_whiteout(&stat) {
                continue;
            }
            let overlay = self.overlay_attributes(&object)?;
            let of_base = overlay
                .origin
                .as_deref()
                .and_then(|origin| match &by_inode {
                    Some(by_inode) => by_inode.get(&inode_of(origin)?).cloned(),
                    None => self.of_origin(origin),
                });
            let known = of_base.and_then(|base| self.new.nodes.by_base.get(&base.serial).copied());
            if let Some(id) = known {
                let copy = InUpper {
                    directory: LayerDirectory::Index,
                    name: &entry.name,
                    stat: &stat,
                };
                self.take_changes(id, copy, overlay)?;
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
        let (work, work_name) = (disk.stat(&work)?, names::fixed(names::WORK));
        let places = [
            (LayerDirectory::Work, None, work_name, work),
            (
                LayerDirectory::Index,
                Some(LayerDirectory::Work),
                name,
                index,
            ),
        ];
        for (directory, parent, name, stat) in places {
            let identity = stat.identity;
            let place = InLayer {
                parent,
                name,
                identity,
            };
            self.moves.layer.insert(directory, place);
        }
        Ok(true)
    }
}
