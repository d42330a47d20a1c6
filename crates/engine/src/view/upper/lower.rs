//! Finds the object of the snapshot that an object of the upper layer stands for.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};

use super::Reading;
use super::overlay_attributes::{Origin, OverlayAttributes, OverlayPrefix};
use super::walk::Item;
use crate::base::Base;
use crate::base::snapshot::Found;

impl<D: Disk> Reading<'_, D> {
    /// The directory of the snapshot that shows through this one.
    pub(super) fn lower_directory(
        &self,
        item: &Item,
        overlay: &OverlayAttributes,
    ) -> Result<Option<Found>> {
        let found = match &overlay.redirect {
            Some(path) => self.at_lower_path(item, path)?,
            None if overlay.opaque => None,
            None => self.at_same_place(item)?,
        };
        if self.is_over_base() {
            return self.merged_with(item, overlay, found);
        }
        Ok(found.filter(|found| found.base.kind == Kind::Directory))
    }

    /// The object of the snapshot that this is a copy of.
    pub(super) fn copied_from(
        &self,
        item: &Item,
        overlay: &OverlayAttributes,
    ) -> Result<Option<Found>> {
        let Some(origin) = &overlay.origin else {
            return Ok(None);
        };
        if self.overlay_prefix == OverlayPrefix::User && item.stat.links > 1 {
            // overlayfs does not record for which of its names it was copied.
            return Ok(None);
        }
        let of_node = self.of_origin(origin);
        let found = match (of_node, &overlay.redirect) {
            (Some(base), _) => {
                let stat = self.new.shown_stat(&base)?;
                Some(Found { base, stat })
            }
            (None, Some(path)) => self.at_lower_path(item, path)?,
            // The kernel has forgotten the node, so the file has one name only; or
            // the overlay is an ordinary user's and records no names. The object
            // with this name will do: it is the original, or the original is gone. A
            // file's contents are compared with it. Other objects count as new.
            (None, None) => self
                .at_same_place(item)?
                .filter(|found| found.base.kind == Kind::File && found.stat.links == 1),
        };
        Ok(found.filter(|found| found.base.kind == item.stat.kind))
    }

    pub(super) fn at_same_place(&self, item: &Item) -> Result<Option<Found>> {
        match &self.new.node(item.parent)?.base {
            Some(base) => self.new.shown_entry(base, &item.name),
            None => Ok(None),
        }
    }

    /// Finds a path from the layer's root, or a name in the lower directory.
    fn at_lower_path(&self, item: &Item, path: &[u8]) -> Result<Option<Found>> {
        if path.starts_with(b"/") {
            return self.new.shown_path(path);
        }
        let name = Name::new(path).map_err(|_| Errno::INVAL)?;
        match &self.new.node(item.parent)?.base {
            Some(base) => self.new.shown_entry(base, &name),
            None => Ok(None),
        }
    }

    pub(super) fn of_origin(&self, origin: &[u8]) -> Option<Arc<Base>> {
        let origin = Origin::decode(origin)?;
        let mut found = None;
        self.lower.look(&mut |lower| {
            let is_it = lower.generation(origin.node) == origin.generation;
            let node = lower.node(origin.node).ok().filter(|_| is_it);
            found = node.and_then(|node| node.base.clone());
        });
        found
    }
}
