//! Which attributes of an old object the overlay's programs have set.

use atomdir_disk::{Disk, Errno, Kind, Result, Stat, Timestamp};

use super::Reading;
use super::overlay_attributes::OverlayPrefix;
use crate::base::Xattrs;
use crate::ids::NodeId;
use crate::view::node::Touched;
use crate::view::xattrs::{XattrChanges, set_all};

impl<D: Disk> Reading<'_, D> {
    /// Compares the attributes of a base object with those that it has now.
    pub(super) fn compare(&mut self, id: NodeId, stat: &Stat, xattrs: Xattrs) -> Result<()> {
        let base = self.new.node(id)?.base.clone().ok_or(Errno::STALE)?;
        let before = self.new.shown_stat(&base)?;
        let xattrs_before = self.new.shown_xattrs(&base)?;
        let changed_xattrs = difference(&xattrs_before, xattrs, self.overlay_prefix);
        let (old, now) = (before.attributes, stat.attributes);
        let is_changed = self.is_over_base() && before.changed >= self.began;
        let modified = match base.kind {
            // An outside writer's new entry has given the base's directory another time.
            Kind::Directory if is_changed && old.times.modified >= self.began => false,
            Kind::Directory => self.is_set(old.times.modified, now.times.modified),
            _ => old.times.modified != now.times.modified,
        };
        let (read, new_read) = (old.times.accessed, now.times.accessed);
        // Watchers, indexers and backups read the layer itself, which changes the access time only. A
        // program in the view changes it by setting it, and with it the change time.
        let is_set_now = read != new_read && (modified || new_read == stat.changed);
        // Programs outside read the base itself.
        let is_read_since = self.is_over_base() && read >= self.began;
        let touched = Touched {
            mode: base.kind != Kind::Symlink && old.mode != now.mode,
            owner: old.owner != now.owner,
            accessed: is_set_now || !is_read_since && self.is_set(read, new_read),
            modified,
        };
        let differs = touched.mode || touched.owner || modified || !changed_xattrs.is_empty();
        if base.kind == Kind::Directory && is_changed && differs {
            self.doubt(id)?;
        }
        if touched == Touched::default() && changed_xattrs.is_empty() {
            return Ok(());
        }
        let own = self.new.own_mut(id)?;
        own.touched = touched;
        own.xattrs = changed_xattrs;
        own.attributes.mode = now.mode;
        own.attributes.owner = now.owner;
        own.attributes.accessed = now.times.accessed;
        own.attributes.modified = now.times.modified;
        own.attributes.changed = stat.changed;
        Ok(())
    }

    /// Whether a program set the time. A time that follows from another call is
    /// neither before the transaction's begin nor after now.
    fn is_set(&self, old: Timestamp, now: Timestamp) -> bool {
        let clock = self.new.core.options.clock.now();
        old != now && (now < self.began || now > clock)
    }
}

fn difference(before: &Xattrs, now: Xattrs, overlay_prefix: OverlayPrefix) -> XattrChanges {
    let mut changes = set_all(now);
    // Programs in the overlay do not see overlay attributes of base objects.
    let visible = before
        .iter()
        .filter(|(name, _)| !overlay_prefix.covers(name));
    for (name, value) in visible {
        match changes.get(name) {
            Some(Some(new)) if new == value => {
                changes.remove(name);
            }
            Some(_) => {}
            None => {
                changes.insert(name.clone(), None);
            }
        }
    }
    changes
}
