//! Changes to objects that stay themselves: attributes and contents in place.

use atomdir_disk::{Access, Disk, Errno, Extent, Identity, Kind, Owner, Times};
use atomdir_format::record::{AttributesChange, ContentChange, Update};

use super::{Apply, CANNOT_BE_SET, Outcome, Parent, Place};
use crate::ids::TransactionId;
use crate::names;

const COPY_CHUNK: u64 = 1 << 30;

impl<D: Disk> Apply<'_, D> {
    /// Changes the files that might not be found once they have lost a name.
    pub(super) fn update_leaving(&mut self) -> Outcome<()> {
        self.run_updates(true)
    }

    pub(super) fn update_staying(&mut self) -> Outcome<()> {
        self.run_updates(false)
    }

    fn run_updates(&mut self, leaving: bool) -> Outcome<()> {
        let desired = self.desired;
        for (identity, transaction, update) in &desired.updates {
            if desired.is_leaving(*identity) == leaving {
                self.update(*identity, *transaction, update)?;
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        identity: Identity,
        transaction: TransactionId,
        update: &Update,
    ) -> Outcome<()> {
        if identity == self.core.root_base.identity() {
            let root = self.core.root.clone();
            return self.set(&root, b".", Kind::Directory, update);
        }
        let Some(place) = self.find(identity)? else {
            let name = names::limbo(identity);
            return self.missing(identity, &name, "the object to be changed");
        };
        let access = if update.content.is_some() {
            Access::ReadWrite
        } else {
            Access::Path
        };
        let Some(handle) = self.open(&place, access)? else {
            return Ok(());
        };
        if let Some(content) = &update.content {
            self.copy_content(&handle, &place, transaction, content)?;
        }
        if let Some(mode) = update.attributes.mode {
            self.note_mode(identity, mode);
        }
        let kind = self.desired.kind(identity).unwrap_or(Kind::File);
        self.set(&handle, place.name.as_bytes(), kind, update)
    }

    fn set(&self, handle: &D::Handle, name: &[u8], kind: Kind, update: &Update) -> Outcome<()> {
        self.try_set(handle, kind, update)
            .map_err(|errno| self.failure(name, CANNOT_BE_SET, Some(errno)))
    }

    fn try_set(&self, handle: &D::Handle, kind: Kind, update: &Update) -> Result<(), Errno> {
        let disk = &self.core.disk;
        let AttributesChange {
            mode,
            user,
            group,
            accessed,
            modified,
        } = update.attributes;
        let present = disk.stat(handle)?.attributes;
        let owner = Owner {
            user: user.unwrap_or(present.owner.user),
            group: group.unwrap_or(present.owner.group),
        };
        if owner != present.owner {
            disk.set_owner(handle, owner)?;
        }
        for (name, value) in &update.xattrs {
            match value {
                Some(value) => disk.set_xattr(handle, name, value)?,
                None => match disk.remove_xattr(handle, name) {
                    Ok(()) | Err(Errno::NODATA) => {}
                    Err(errno) => return Err(errno),
                },
            }
        }
        if let (Some(mode), true) = (mode, kind != Kind::Symlink) {
            disk.set_mode(handle, mode)?;
        } else if owner != present.owner && kind != Kind::Symlink {
            // Giving it away took set-id bits that the transaction kept.
            disk.set_mode(handle, present.mode)?;
        }
        if accessed.is_some() || modified.is_some() {
            let times = Times {
                accessed: accessed.unwrap_or(present.times.accessed),
                modified: modified.unwrap_or(present.times.modified),
            };
            disk.set_times(handle, times)?;
        }
        Ok(())
    }

    fn copy_content(
        &mut self,
        file: &D::Handle,
        place: &Place,
        transaction: TransactionId,
        content: &ContentChange,
    ) -> Outcome<()> {
        let slot = names::slot(content.slot);
        let staged = Place {
            parent: Parent::Stage(transaction),
            name: slot,
        };
        let Some(source) = self.open(&staged, Access::Read)? else {
            return Err(self.failure(&staged.told(), "the staged contents are missing", None));
        };
        copy_content(&self.core.disk, &source, file, content).map_err(|errno| {
            self.failure(&place.told(), "its contents cannot be written", Some(errno))
        })
    }
}

fn copy_content<D: Disk>(
    disk: &D,
    source: &D::Handle,
    file: &D::Handle,
    content: &ContentChange,
) -> Result<(), Errno> {
    let present = disk.stat(file)?.length;
    if content.keep < present {
        disk.set_length(file, content.keep)?;
    }
    if content.length != present.min(content.keep) {
        disk.set_length(file, content.length)?;
    }
    for extent in &content.extents {
        let end = extent.offset + extent.length;
        let mut at = extent.offset;
        while at < end {
            let data = disk.next_data(source, at)?;
            let none = Extent {
                offset: end,
                length: 0,
            };
            let run = data.filter(|run| run.offset < end).unwrap_or(none);
            if run.offset > at {
                disk.punch_hole(file, at, run.offset - at)?;
                at = run.offset;
            }
            let stop = run.offset.saturating_add(run.length).min(end);
            while at < stop {
                let length = (stop - at).min(COPY_CHUNK);
                let copied = disk.copy_range((source, at), (file, at), length)?;
                if copied == 0 {
                    return Err(Errno::IO);
                }
                at += copied;
            }
        }
    }
    Ok(())
}
