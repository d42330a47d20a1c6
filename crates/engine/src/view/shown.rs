//! What the lower layer of a native view has shown of the base.
//!
//! Overlayfs acts on what it has looked up and cached of the lower layer. What programs did to that
//! is read from the upper layer only when they have ended. Until then an outside writer may have
//! changed the base. So the present base cannot say what a program has removed, replaced or
//! changed: only what the lower layer has shown can.
//!
//! Invariants
//! 1. Once a name was looked up, it leads to the same object, or to none, for the life of the
//!    overlay. Listings agree with that. An object that has gone since answers `ESTALE`.
//! 2. The attributes and extended attributes of an object stay those that were shown first, as
//!    long as the kernel knows the object. If it has listed the extended attributes, they stay so
//!    for the life of the overlay: overlayfs lists them when it copies an object up.
//! 3. An upper layer is compared with what was shown, and never with the present base. So an
//!    object is changed by the transaction only if it differs from what overlayfs has copied, and a
//!    name is replaced only if it led to another object in the view.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use atomdir_disk::{Attributes, Disk, Errno, Kind, Name, Owner, Result, Stat, Times, Timestamp};

use super::View;
use crate::base::snapshot::Found;
use crate::base::{Base, Stamp, Xattrs};
use crate::ids::NodeId;
use crate::lock;

/// Shared by the view that is the lower layer and those that read the upper layer. Nothing is
/// locked under it.
#[derive(Clone, Default)]
pub(crate) struct Shown(Arc<Mutex<ShownState>>);

/// The keys are serials of base objects, all of which are kept alive here.
#[derive(Default)]
struct ShownState {
    directories: HashMap<u64, ShownNames>,
    objects: HashMap<u64, ShownObject>,
    /// Set if the lower layer is the base: when the transaction began.
    of_base_since: Option<Timestamp>,
}

struct ShownNames {
    _directory: Arc<Base>,
    names: BTreeMap<Name, Option<Arc<Base>>>,
}

struct ShownObject {
    _base: Arc<Base>,
    stat: Stat,
    xattrs: Option<Xattrs>,
    /// Overlayfs may have copied it.
    may_be_copied: bool,
}

impl Shown {
    /// For a lower layer that is the base itself. What it has shown is found out by
    /// [`View::entry_at_begin`].
    pub(super) fn of_base_since(began: Timestamp) -> Shown {
        let shown = Shown::default();
        lock(&shown.0).of_base_since = Some(began);
        shown
    }

    pub(super) fn replace_name(&self, directory: &Arc<Base>, name: &Name, by: Arc<Base>) {
        self.add_name(directory, name, None);
        if let Some(shown) = lock(&self.0).directories.get_mut(&directory.serial) {
            shown.names.insert(name.clone(), Some(by));
        }
    }

    fn name(&self, directory: &Base, name: &Name) -> Option<Option<Arc<Base>>> {
        let state = lock(&self.0);
        let names = &state.directories.get(&directory.serial)?.names;
        names.get(name).cloned()
    }

    fn add_name(&self, directory: &Arc<Base>, name: &Name, found: Option<Arc<Base>>) {
        let mut state = lock(&self.0);
        let shown = state.directories.entry(directory.serial);
        let shown = shown.or_insert_with(|| ShownNames {
            _directory: directory.clone(),
            names: BTreeMap::new(),
        });
        shown.names.entry(name.clone()).or_insert(found);
    }

    fn stat(&self, base: &Base) -> Option<Stat> {
        Some(lock(&self.0).objects.get(&base.serial)?.stat)
    }

    /// Returns the attributes that the object keeps: those given, if it has shown none yet.
    fn add_stat(&self, base: &Arc<Base>, stat: &Stat) -> Stat {
        let mut state = lock(&self.0);
        let shown = state.objects.entry(base.serial);
        let shown = shown.or_insert_with(|| ShownObject {
            _base: base.clone(),
            stat: *stat,
            xattrs: None,
            may_be_copied: false,
        });
        shown.stat
    }

    fn xattrs(&self, base: &Base) -> Option<Xattrs> {
        lock(&self.0).objects.get(&base.serial)?.xattrs.clone()
    }

    /// The extended attributes, if they were shown and the object has looked like this since.
    pub(super) fn xattrs_beside(&self, base: &Base, present: &Stat) -> Option<Xattrs> {
        let state = lock(&self.0);
        let shown = state.objects.get(&base.serial)?;
        let is_same = Stamp::of(&shown.stat) == Stamp::of(present);
        shown.xattrs.clone().filter(|_| is_same)
    }

    fn add_xattrs(&self, base: &Base, xattrs: &Xattrs) {
        if let Some(shown) = lock(&self.0).objects.get_mut(&base.serial) {
            shown.xattrs.get_or_insert_with(|| xattrs.clone());
        }
    }

    /// Returns whether it was noted before.
    fn note_copied(&self, base: &Base) -> bool {
        let mut state = lock(&self.0);
        let shown = state.objects.get_mut(&base.serial);
        shown.is_none_or(|shown| std::mem::replace(&mut shown.may_be_copied, true))
    }

    /// The kernel has forgotten the object, and will ask again.
    pub(super) fn forget(&self, base: &Base) {
        let mut state = lock(&self.0);
        let shown = state.objects.get(&base.serial);
        if shown.is_some_and(|shown| !shown.may_be_copied) {
            state.objects.remove(&base.serial);
        }
    }

    /// The names that were found in the directory.
    fn children(&self, directory: &Base) -> Vec<(Name, Arc<Base>)> {
        let state = lock(&self.0);
        let shown = state.directories.get(&directory.serial);
        let names = shown.into_iter().flat_map(|shown| &shown.names);
        names
            .filter_map(|(name, found)| Some((name.clone(), found.clone()?)))
            .collect()
    }

    /// Makes a listing of the present directory agree with the names that were looked up.
    fn correct(&self, directory: &Base, listing: &mut Vec<(Name, u64, Kind)>) {
        let state = lock(&self.0);
        let Some(shown) = state.directories.get(&directory.serial) else {
            return;
        };
        listing.retain_mut(|(name, inode, kind)| match shown.names.get(name) {
            Some(Some(base)) => {
                if let Some(object) = state.objects.get(&base.serial) {
                    *inode = object.stat.identity.inode;
                }
                *kind = base.kind;
                true
            }
            Some(None) => false,
            None => true,
        });
        let listed: HashSet<Name> = listing.iter().map(|(name, ..)| name.clone()).collect();
        let names = shown.names.iter();
        let found = names.filter_map(|(name, found)| Some((name, found.clone()?)));
        let gone = found.filter(|(name, _)| !listed.contains(*name));
        let gone: Vec<_> = gone.map(|(name, base)| (name.clone(), base)).collect();
        drop(state);
        for (name, base) in gone {
            listing.push((name, base.identity().inode, base.kind));
        }
    }
}

/// For the lower layer.
impl<D: Disk> View<D> {
    /// Begins to remember what is shown. The upper layer's root was made like the snapshot's.
    pub(super) fn begin_to_show(&mut self, stat: &Stat, xattrs: &Xattrs) {
        let (shown, root) = (Shown::default(), &self.core.root_base);
        shown.add_stat(root, stat);
        shown.add_xattrs(root, xattrs);
        shown.note_copied(root);
        self.shown = Some(shown);
    }

    /// What a name leads to in the snapshot, for a program.
    pub(super) fn show_name(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Found>> {
        let Some(shown) = &self.shown else {
            return self.look_up(directory, name);
        };
        match shown.name(directory, name) {
            Some(None) => Ok(None),
            Some(Some(base)) => {
                let stat = match shown.stat(&base) {
                    Some(stat) => stat,
                    None => self.settled_stat(&base)?,
                };
                Ok(Some(Found { base, stat }))
            }
            None => {
                let found = self.look_up(directory, name)?;
                if !self.core.is_hidden(directory, name) {
                    let base = found.as_ref().map(|found| found.base.clone());
                    shown.add_name(directory, name, base);
                }
                Ok(found)
            }
        }
    }

    /// What a lower layer has shown at a name, if it has.
    pub(super) fn shown_name(&self, directory: &Base, name: &Name) -> Option<Option<Arc<Base>>> {
        self.shown.as_ref()?.name(directory, name)
    }

    pub(super) fn show_listing(&self, directory: &Arc<Base>) -> Result<Vec<(Name, u64, Kind)>> {
        let mut listing = self.settled_list(directory)?;
        if let Some(shown) = &self.shown {
            shown.correct(directory, &mut listing);
        }
        Ok(listing)
    }

    /// Attributes of the snapshot, for a program.
    pub(super) fn show_stat(&self, base: &Arc<Base>) -> Result<Stat> {
        let shown = self.shown.as_ref().and_then(|shown| shown.stat(base));
        match shown {
            Some(stat) => Ok(stat),
            None => self.settled_stat(base),
        }
    }

    /// Returns the attributes as they were shown first.
    pub(super) fn note_shown(&self, id: NodeId, stat: &Stat) -> Result<Stat> {
        Ok(match (&self.shown, &self.node(id)?.base) {
            (Some(shown), Some(base)) => shown.add_stat(base, stat),
            _ => *stat,
        })
    }

    /// Extended attributes of the snapshot, for a program.
    pub(super) fn show_xattrs(&self, base: &Arc<Base>) -> Result<Xattrs> {
        let shown = self.shown.as_ref().and_then(|shown| shown.xattrs(base));
        if let Some(xattrs) = shown {
            return Ok(xattrs);
        }
        self.settle_object(base)?;
        let xattrs = self.snapshot().xattrs(base)?;
        if let Some(shown) = &self.shown {
            shown.add_xattrs(base, &xattrs);
        }
        Ok(xattrs)
    }

    /// Overlayfs may be about to copy the object up. The copy then names the node.
    pub(super) fn show_before_copy(&mut self, id: NodeId) -> Result<()> {
        let (Some(shown), Some(base)) = (self.shown.clone(), self.node(id)?.base.clone()) else {
            return Ok(());
        };
        let stat = self.show_stat(&base)?;
        shown.add_stat(&base, &stat);
        self.show_xattrs(&base)?;
        self.remember_old(id);
        if !shown.note_copied(&base) {
            // This lookup is never subtracted again.
            self.raise_lookups(id);
        }
        Ok(())
    }
}

/// For reading the upper layer: outside writers may have removed what was shown, or may have
/// replaced it.
impl<D: Disk> View<D> {
    pub(super) fn shown_entry(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Found>> {
        match self.shown_name(directory, name) {
            Some(None) => Ok(None),
            Some(Some(base)) => {
                let stat = self.shown_stat(&base)?;
                Ok(Some(Found { base, stat }))
            }
            None => {
                let shown = self.shown.as_ref();
                match shown.and_then(|shown| lock(&shown.0).of_base_since.zip(Some(shown))) {
                    Some((began, shown)) => self.show_base(shown, (directory, name), began),
                    None => self.snapshot().lookup(directory, name),
                }
            }
        }
    }

    fn show_base(
        &self,
        shown: &Shown,
        (directory, name): (&Arc<Base>, &Name),
        began: Timestamp,
    ) -> Result<Option<Found>> {
        let found = self.entry_at_begin(directory, name, began)?;
        let base = found.as_ref().map(|found| found.base.clone());
        shown.add_name(directory, name, base);
        if let Some(found) = &found {
            shown.add_stat(&found.base, &found.stat);
        }
        Ok(found)
    }

    /// The object that a name led to before the transaction changed it.
    pub(super) fn object_before(
        &self,
        directory: &Arc<Base>,
        name: &Name,
    ) -> Result<Option<Arc<Base>>> {
        match self.shown {
            Some(_) => Ok(self.shown_entry(directory, name)?.map(|found| found.base)),
            None => self.object_at(directory, name),
        }
    }

    /// Finds a path without following symbolic links.
    pub(super) fn shown_path(&self, path: &[u8]) -> Result<Option<Found>> {
        let base = self.core.root_base.clone();
        let stat = self.shown_stat(&base)?;
        let mut found = Found { base, stat };
        let parts = path.split(|byte| *byte == b'/');
        for part in parts.filter(|part| !part.is_empty()) {
            let name = Name::new(part).map_err(|_| Errno::INVAL)?;
            if found.base.kind != Kind::Directory {
                return Ok(None);
            }
            match self.shown_entry(&found.base, &name)? {
                Some(child) => found = child,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// If the object is gone and its attributes were forgotten, they are made up. Its name is then
    /// in a conflict. So is that of an object that may not be looked at any more.
    pub(super) fn shown_stat(&self, base: &Arc<Base>) -> Result<Stat> {
        match self.show_stat(base) {
            Err(errno) if self.shown.is_some() && is_taken(errno) => Ok(unknown(base)),
            stat => stat,
        }
    }

    pub(super) fn shown_xattrs(&self, base: &Arc<Base>) -> Result<Xattrs> {
        let shown = self.shown.as_ref().and_then(|shown| shown.xattrs(base));
        match shown {
            Some(xattrs) => Ok(xattrs),
            None => match self.snapshot().xattrs(base) {
                Err(errno) if self.shown.is_some() && is_taken(errno) => Ok(Xattrs::new()),
                xattrs => xattrs,
            },
        }
    }

    /// The names that a removed directory had. Each of them was looked up to be removed.
    pub(super) fn shown_children(&self, directory: &Base) -> Vec<(Name, Arc<Base>)> {
        let shown = self.shown.as_ref();
        shown.map_or_else(Vec::new, |shown| shown.children(directory))
    }
}

/// Whether an outside writer has taken the object away, or the right to look at it.
pub(super) fn is_taken(errno: Errno) -> bool {
    matches!(errno, Errno::STALE | Errno::ACCESS)
}

pub(super) fn unknown(base: &Base) -> Stat {
    let owner = Owner { user: 0, group: 0 };
    let times = Times {
        accessed: Timestamp::default(),
        modified: Timestamp::default(),
    };
    let mode = 0;
    Stat {
        identity: base.identity(),
        device: 0,
        kind: base.kind,
        attributes: Attributes { mode, owner, times },
        changed: Timestamp::default(),
        links: 1,
        length: 0,
        blocks: 0,
        device_number: 0,
        immutable: false,
        mount_point: false,
    }
}
