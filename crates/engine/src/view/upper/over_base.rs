//! An upper layer whose lower layer is the base itself. The transaction holds a lock on the whole
//! store from its begin to its end, so only outside writers change the base meanwhile.
//!
//! Nobody has noted what the lower layer has shown. So the layer is compared with the base as it
//! is when the layer is read, and what an outside writer may have changed since the begin is found by
//! change times. These come from the file system's own clock, as the begin does, and every
//! change of an object or of a directory's names moves one.
//!
//! Invariants
//! 1. A name of the base counts as unchanged since the begin if the object that it leads to, or its
//!    directory, has not changed since. An object that is made, linked or moved changes, and so does the
//!    directory. In any other case a stand-in takes the object's place (`base::gone`), and what the
//!    transaction changes there conflicts. That is so too if both have only changed otherwise: nothing
//!    can tell.
//! 2. If the layer shows that a name led to an object, and the base has none there, a stand-in takes
//!    its place: for a whiteout, a directory that is a copy, and a file whose original is
//!    nowhere.
//! 3. A new name, where the base has none, conflicts if its directory has changed since the begin. The
//!    transaction may have replaced something that an outside writer has removed since, or overlayfs
//!    may have copied it when it was removed: it then records no original.
//! 4. A directory that is removed conflicts if it has changed since the begin in any way. Programs
//!    have removed what they saw in it, and nothing tells what that was.
//! 5. If a directory has changed since the begin, and its mode, owner or extended attributes differ
//!    from its copy's, that conflicts: the transaction may have changed them, or an outside writer.
//! 6. What an outside writer keeps the transaction's user from looking at counts as changed. A name
//!    in a directory that may not be searched leads to a stand-in.
//! 7. A file's contents and attributes conflict if it has changed since the begin, as in every view
//!    (`commit::validate`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Owner, Result, Stat, Timestamp};
use atomdir_types::{Deviation, DeviationKind};

use super::Reading;
use super::overlay_attributes::{OverlayAttributes, inode_of};
use super::walk::{Item, is_whiteout};
use crate::base::Base;
use crate::base::snapshot::Found;
use crate::control::PRIVATE_FILE;
use crate::ids::NodeId;
use crate::view::View;
use crate::view::shown::{is_taken, unknown};

/// No object has this mode, so what the view has reported differs from the base.
const NO_MODE: u32 = u32::MAX;

/// The base objects by inode number.
type ByInode = HashMap<u64, Arc<Base>>;

/// Copies whose originals are in other places, by their present directories, until all lost names
/// are known.
#[derive(Default)]
pub(super) struct Unmatched {
    copies: HashMap<NodeId, Vec<(Item, OverlayAttributes)>>,
    /// Their directories, of which only these have been read.
    unfinished: Vec<(NodeId, Stat, OverlayAttributes)>,
    /// Stand-ins for the originals of copies.
    gone: ByInode,
}

/// What an object of the layer is.
pub(super) enum Matched {
    CopyOf(Found),
    /// Its original will be looked for when all lost names are known.
    Later,
    New,
}

impl<D: Disk> View<D> {
    /// Hides the control directory in the overlay.
    pub(super) fn hide_control(&self, upper: &D::Handle) -> Result<()> {
        let Some(name) = &self.core.hidden else {
            return Ok(());
        };
        let whiteout = atomdir_disk::NewNode::CharacterDevice(0);
        self.core.disk.make(upper, name, &whiteout, PRIVATE_FILE)
    }

    /// What a name of the base led to at the begin: a stand-in if that is not certain.
    pub(in crate::view) fn entry_at_begin(
        &self,
        directory: &Arc<Base>,
        name: &Name,
        began: Timestamp,
    ) -> Result<Option<Found>> {
        if directory.is_stand_in() {
            return Ok(None);
        }
        let found = match self.snapshot().lookup(directory, name) {
            // An outside writer has just taken the directory away.
            Err(Errno::STALE) => None,
            // Nobody can tell what the name leads to.
            Err(Errno::ACCESS) => return Ok(Some(self.stand_in(directory, name, Kind::File))),
            found => found?,
        };
        let Some(found) = found else {
            return Ok(None);
        };
        // overlayfs hides a device of number 0, so no program has seen it.
        if !is_whiteout(&found.stat) && self.was_there(directory, &found.stat, began)? {
            return Ok(Some(found));
        }
        Ok(Some(self.stand_in(directory, name, found.base.kind)))
    }

    fn was_there(&self, directory: &Arc<Base>, stat: &Stat, began: Timestamp) -> Result<bool> {
        if stat.changed < began {
            return Ok(true);
        }
        // Only after the object was looked up.
        match self.core.stat_now(directory) {
            Ok(above) => Ok(above.changed < began),
            Err(errno) if is_taken(errno) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn stand_in(&self, directory: &Arc<Base>, name: &Name, kind: Kind) -> Found {
        let base = self.core.make_stand_in(kind, directory, name);
        let stat = unknown(&base);
        Found { base, stat }
    }
}

impl<D: Disk> Reading<'_, D> {
    pub(super) fn is_over_base(&self) -> bool {
        self.new.over_base
    }

    /// A whiteout hides the control directory, but programs can make something in its place.
    pub(super) fn leave_control_name(&mut self, item: &Item) {
        if !is_whiteout(&item.stat) {
            self.deviations.push(Deviation {
                path: item.name.as_bytes().to_vec(),
                kind: DeviationKind::ControlNameTaken,
            });
        }
    }

    /// A whiteout shows that its name led to something.
    pub(super) fn expect_something(&mut self, item: &Item) -> Result<()> {
        let Some(directory) = self.new.node(item.parent)?.base.clone() else {
            return Ok(());
        };
        if self.new.shown_entry(&directory, &item.name)?.is_none() {
            self.gone(item, Kind::File)?;
        }
        Ok(())
    }

    /// A stand-in for the original of a copy, which the base does not have any more at its place.
    pub(super) fn gone(&self, item: &Item, kind: Kind) -> Result<Found> {
        let directory = self.new.node(item.parent)?.base.clone();
        let above = directory.as_ref().unwrap_or(&self.new.core.root_base);
        let found = self.new.stand_in(above, &item.name, kind);
        if let (Some(directory), Some(shown)) = (&directory, &self.new.shown) {
            shown.replace_name(directory, &item.name, found.base.clone());
        }
        Ok(found)
    }

    /// The directory of the base that shows through a copied one.
    pub(super) fn merged_with(
        &self,
        item: &Item,
        overlay: &OverlayAttributes,
        found: Option<Found>,
    ) -> Result<Option<Found>> {
        if overlay.origin.is_none() {
            // The directory is new. That of the base is an outside writer's, or was removed.
            return Ok(None);
        }
        match found {
            Some(found) if found.base.kind == Kind::Directory => Ok(Some(found)),
            _ => self.gone(item, Kind::Directory).map(Some),
        }
    }

    /// The object of the base that a file, link or special file of the layer was copied from.
    pub(super) fn matched(&mut self, item: &Item, overlay: &OverlayAttributes) -> Result<Matched> {
        let Some(origin) = &overlay.origin else {
            return Ok(Matched::New);
        };
        let inode = inode_of(origin);
        let here = self.at_same_place(item)?;
        let kind = item.stat.kind;
        let is_gone = here.as_ref().is_some_and(|here| here.base.is_stand_in());
        Ok(match (here, inode) {
            (Some(here), Some(inode)) if is_gone => {
                Matched::CopyOf(self.gone_of(item, inode, here)?)
            }
            (Some(here), Some(inode)) if here.stat.identity.inode == inode => Matched::CopyOf(here),
            (_, Some(_)) => Matched::Later,
            // An ordinary user's overlay does not record which object it has copied: see `lower`. Of
            // several names each would be another copy.
            (Some(_), None) if item.stat.links > 1 => Matched::New,
            (Some(here), None) if is_gone && here.base.kind != kind => {
                Matched::CopyOf(self.gone(item, kind)?)
            }
            (Some(here), None) => {
                let is_it = kind == Kind::File && here.base.kind == kind && here.stat.links == 1;
                match is_gone || is_it {
                    true => Matched::CopyOf(here),
                    false => Matched::New,
                }
            }
            (None, None) => Matched::New,
        })
    }

    /// The stand-in for an object of which an outside writer has taken a name. Other names of its copy
    /// get the same one.
    fn gone_of(&mut self, item: &Item, inode: u64, here: Found) -> Result<Found> {
        if let Some(base) = self.unmatched.gone.get(&inode) {
            let (base, stat) = (base.clone(), unknown(base));
            return Ok(Found { base, stat });
        }
        let found = match here.base.kind == item.stat.kind {
            true => here,
            false => self.gone(item, item.stat.kind)?,
        };
        self.unmatched.gone.insert(inode, found.base.clone());
        Ok(found)
    }

    /// Whether names of the directory may have been removed since the begin.
    fn has_lost_names(&self, directory: NodeId) -> Result<bool> {
        let Some(base) = &self.new.node(directory)?.base else {
            return Ok(false);
        };
        match self.new.core.stat_now(base) {
            Ok(stat) => Ok(stat.changed >= self.began),
            Err(errno) if is_taken(errno) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn match_later(&mut self, item: Item, overlay: OverlayAttributes) {
        let copies = self.unmatched.copies.entry(item.parent).or_default();
        copies.push((item, overlay));
    }

    /// If copies in the directory are to be matched later, so is its end.
    pub(super) fn finish_later(
        &mut self,
        id: NodeId,
        stat: Stat,
        overlay: OverlayAttributes,
    ) -> Option<(Stat, OverlayAttributes)> {
        if !self.unmatched.copies.contains_key(&id) {
            return Some((stat, overlay));
        }
        self.unmatched.unfinished.push((id, stat, overlay));
        None
    }

    /// Finds the originals of the copies that are left. They have lost their names, or have another
    /// one that was copied in its place.
    pub(super) fn match_left(&mut self) -> Result<()> {
        let Unmatched {
            copies,
            unfinished,
            gone,
        } = std::mem::take(&mut self.unmatched);
        if copies.is_empty() {
            return Ok(());
        }
        let mut originals = self.originals(copies.values().flatten())?;
        originals.extend(gone);
        for (item, overlay) in copies.into_values().flatten() {
            let inode = inode_of(overlay.origin.as_deref().unwrap_or_default());
            let original = inode.and_then(|inode| originals.get(&inode).cloned());
            let found = match original.filter(|base| base.kind == item.stat.kind) {
                Some(base) => Found {
                    stat: self.new.shown_stat(&base)?,
                    base,
                },
                None => self.gone(&item, item.stat.kind)?,
            };
            originals.extend(inode.map(|inode| (inode, found.base.clone())));
            self.take_copy(item, found, overlay)?;
        }
        for (id, stat, overlay) in unfinished {
            self.finish(id, &stat, overlay)?;
        }
        Ok(())
    }

    /// Makes new names conflict that may have been something else's since the begin.
    pub(super) fn doubt_new_names(&mut self) -> Result<()> {
        let changed: Vec<NodeId> = self.new.changed_nodes().collect();
        for directory in changed {
            let node = self.new.node(directory)?;
            let (Some(base), Some(delta)) = (node.base.clone(), node.directory_delta()) else {
                continue;
            };
            let new = delta.entries.iter();
            let new = new.filter(|(_, entry)| entry.before.is_none());
            let names: Vec<Name> = new.map(|(name, _)| name.clone()).collect();
            if names.is_empty() || !self.has_lost_names(directory)? {
                continue;
            }
            for name in names {
                let before = self.new.stand_in(&base, &name, Kind::File).base;
                let delta = self.new.delta_mut(directory)?;
                if let Some(entry) = delta.entries.get_mut(&name) {
                    entry.before = Some(before);
                }
            }
        }
        Ok(())
    }

    fn originals<'a>(
        &mut self,
        unmatched: impl Iterator<Item = &'a (Item, OverlayAttributes)>,
    ) -> Result<ByInode> {
        let mut originals = self.by_inode();
        let (mut lost, mut moved) = (Vec::new(), HashSet::new());
        for (item, _) in unmatched {
            lost.extend(self.at_same_place(item)?.map(|found| found.base));
        }
        for directory in self.new.changed_nodes() {
            let delta = self.new.node(directory)?.directory_delta();
            for entry in delta.into_iter().flat_map(|delta| delta.entries.values()) {
                lost.extend(entry.before.clone());
                let now = entry.now.and_then(|id| self.new.node(id).ok());
                moved.extend(now.and_then(|node| Some(node.base.as_ref()?.serial)));
            }
        }
        while let Some(base) = lost.pop() {
            if base.kind == Kind::Directory && !moved.contains(&base.serial) {
                self.show_children(&base)?;
                let children = self.new.shown_children(&base).into_iter();
                lost.extend(children.map(|(_, child)| child));
            }
            originals.insert(base.identity().inode, base);
        }
        Ok(originals)
    }

    /// The base objects that the view has nodes of.
    pub(super) fn by_inode(&self) -> ByInode {
        let nodes = self.new.nodes.by_base.values();
        let bases = nodes.filter_map(|id| self.new.node(*id).ok()?.base.clone());
        bases.map(|base| (base.identity().inode, base)).collect()
    }

    /// Looks up all that a removed directory holds.
    pub(super) fn show_children(&self, directory: &Arc<Base>) -> Result<()> {
        if directory.is_stand_in() {
            return Ok(());
        }
        let listed = match self.new.snapshot().list(directory) {
            Err(errno) if is_taken(errno) || errno == Errno::NOENT => return Ok(()),
            listed => listed?,
        };
        for (name, ..) in listed {
            self.new.shown_entry(directory, &name)?;
        }
        Ok(())
    }

    /// Makes the removal of a directory conflict if that has changed since the begin. Call it when
    /// its names have been looked up.
    pub(super) fn doubt_removed(&mut self, id: NodeId, base: &Arc<Base>) -> Result<()> {
        match self.new.core.stat_now(base) {
            Ok(stat) if stat.changed < self.began => Ok(()),
            // The check of its entry reports that it is gone.
            Ok(_) => self.doubt(id),
            Err(errno) if is_taken(errno) => self.doubt(id),
            Err(errno) => Err(errno),
        }
    }

    /// Makes every change of a directory's attributes conflict.
    pub(super) fn doubt(&mut self, id: NodeId) -> Result<()> {
        let nobody = Owner {
            user: u32::MAX,
            group: u32::MAX,
        };
        self.new.node_mut(id)?.reported = Some((NO_MODE, nobody));
        Ok(())
    }
}
