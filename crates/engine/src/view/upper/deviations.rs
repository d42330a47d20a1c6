//! Notes properties that the commit cannot carry over, and objects that looked different from those
//! in a plain directory.

use atomdir_disk::{Disk, Kind, Result};
use atomdir_types::{Deviation, DeviationKind};

use super::Reading;
use super::overlay_attributes::{OverlayAttributes, OverlayPrefix};
use super::walk::Item;
use crate::ids::NodeId;

impl<D: Disk> Reading<'_, D> {
    /// Notes what programs have set and overlayfs keeps in attributes of its own.
    pub(super) fn note_lost_attributes(&mut self, id: NodeId, names: &[Vec<u8>]) {
        if self.is_live {
            return;
        }
        let prefix = self.overlay_prefix;
        let kinds = [
            (
                DeviationKind::FlagsLost,
                names.iter().any(|name| prefix.has_flags(name)),
            ),
            (
                DeviationKind::AttributeLost,
                names.iter().any(|name| prefix.is_escaped(name)),
            ),
        ];
        for (kind, _) in kinds.into_iter().filter(|(_, is_there)| *is_there) {
            let path = self.new.path(id);
            self.deviations.push(Deviation { path, kind });
        }
    }

    /// Notes a new name of an old file that an ordinary user has linked. Their overlay has no
    /// index, so the name does not show the file's old inode number as its old names do. It is a
    /// copy (it has an origin, though one without a handle) of what has another name.
    pub(super) fn note_name_apart(
        &mut self,
        item: &Item,
        overlay: &OverlayAttributes,
    ) -> Result<()> {
        let is_copy = overlay.origin.is_some() && item.stat.kind != Kind::Directory;
        let is_users = self.overlay_prefix == OverlayPrefix::User;
        if is_copy && is_users && item.stat.links > 1 && !self.is_live && !self.is_old_name(item)? {
            self.deviations.push(Deviation {
                path: self.new.path_of_entry(item.parent, &item.name),
                kind: DeviationKind::NameLookedApart,
            });
        }
        Ok(())
    }

    fn is_old_name(&self, item: &Item) -> Result<bool> {
        let Some(above) = &self.new.node(item.parent)?.base else {
            return Ok(false);
        };
        let known = self.new.shown_entry(above, &item.name)?;
        Ok(known.is_some())
    }
}
