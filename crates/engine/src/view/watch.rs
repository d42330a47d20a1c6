//! Stores of other programs through shared mappings.

use atomdir_disk::{Disk, Kind, Stat};

use super::View;
use crate::ids::NodeId;

/// The kernel writes a changed page after 30 seconds, unless an administrator has changed that. A
/// file that was modified earlier than this has no page whose store leaves no trace.
const UNWRITTEN_SECONDS_MAX: i64 = 600;

impl<D: Disk> View<D> {
    /// If other programs may have mapped the file for writing, makes their stores change its times
    /// from now on. Otherwise a store to a page that was changed before leaves no trace, and a commit
    /// would overwrite it. Call it before the first read and the first change.
    pub(super) fn watch_stores(&mut self, id: NodeId, present: &Stat) {
        let Ok(node) = self.node(id) else { return };
        let Some(base) = node.base.clone().filter(|_| !node.is_watched) else {
            return;
        };
        if base.kind != Kind::File {
            return;
        }
        if let Ok(node) = self.node_mut(id) {
            node.is_watched = true;
        }
        let modified = present.attributes.times.modified.seconds;
        if self.now().seconds.saturating_sub(modified) > UNWRITTEN_SECONDS_MAX {
            return;
        }
        let (identity, place) = base.identity_and_place();
        // No program can have opened what only a commit has staged.
        if !self.core.ahead.has_made(identity)
            && let Ok(file) = self.core.contents(identity, &place)
            && self.core.is_open_for_writing(&file).unwrap_or(true)
        {
            // If this fails, only the detection of such stores does.
            let _ = self.core.disk.write_back(&file);
        }
    }
}
