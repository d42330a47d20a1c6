//! Which directories take objects from elsewhere in the file system.
//!
//! The owner of a directory can give it a project whose number new objects inherit, or encrypt it
//! while it is empty. The kernel then refuses to move or link most objects into it (`EXDEV`). That is
//! known before the record is logged, so that such a commit fails and leaves its transaction open.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Placement};

use crate::base::core::Core;
use crate::base::{Base, Place};
use crate::write_set::{EntryWrite, Object};

pub(crate) struct Placements<'a, D: Disk> {
    core: &'a Core<D>,
    /// By serial.
    directories: HashMap<u64, Placement>,
}

impl<'a, D: Disk> Placements<'a, D> {
    pub fn new(core: &'a Core<D>) -> Self {
        Placements {
            core,
            directories: HashMap::new(),
        }
    }

    /// Whether a new inode can take the file's place.
    pub fn take_staged(&mut self, base: &Base) -> Result<bool, Errno> {
        let place = base.state().place.clone();
        let Place::Entry { parent, .. } = place else {
            return Ok(true);
        };
        match self.of_directory(&parent) {
            Ok(directory) => Ok(self.staged()?.fits(&directory)),
            // An outside writer has just removed it, or closed it to this process.
            Err(Errno::STALE | Errno::ACCESS) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the entry's object can get its new name.
    pub fn allow(&mut self, entry: &EntryWrite) -> Result<bool, Errno> {
        let (Object::Base(directory), Some(after)) = (&entry.directory, &entry.after) else {
            return Ok(true);
        };
        let directory = match self.of_directory(directory) {
            Ok(directory) => directory,
            Err(Errno::STALE | Errno::ACCESS) => return Ok(true),
            Err(errno) => return Err(errno),
        };
        if !directory.inherits_project && directory.encryption.is_none() {
            return Ok(true);
        }
        let object = match after {
            Object::Created(_) => self.staged()?,
            Object::Base(base) => self.of_object(base)?,
        };
        Ok(object.fits(&directory))
    }

    fn of_directory(&mut self, directory: &Arc<Base>) -> Result<Placement, Errno> {
        if let Some(known) = self.directories.get(&directory.serial) {
            return Ok(known.clone());
        }
        let handle = self.core.directory(directory)?;
        let placement = self.core.disk.placement(&handle)?;
        self.directories.insert(directory.serial, placement.clone());
        Ok(placement)
    }

    /// That of objects made in the staging directory.
    fn staged(&self) -> Result<Placement, Errno> {
        let stage = self.core.disk.placement(&self.core.control.stage)?;
        Ok(Placement {
            project: match stage.inherits_project {
                true => stage.project,
                false => 0,
            },
            ..stage
        })
    }

    fn of_object(&mut self, base: &Arc<Base>) -> Result<Placement, Errno> {
        let (identity, place) = base.identity_and_place();
        let opened = match base.kind {
            Kind::Directory => return self.of_directory(base),
            Kind::File => self.core.open_at(&place, identity, Access::Read),
            _ => Err(Errno::NOENT),
        };
        match (opened, place) {
            (Ok(file), _) => self.core.disk.placement(&file),
            // Others cannot be opened. They are encrypted as their directory is.
            (Err(_), Place::Entry { parent, .. }) => {
                let above = self.of_directory(&parent)?;
                Ok(Placement {
                    project: match above.inherits_project {
                        true => above.project,
                        false => 0,
                    },
                    ..above
                })
            }
            (Err(_), _) => self.staged(),
        }
    }
}
