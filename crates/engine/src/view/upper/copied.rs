//! Finds objects that a program has copied because overlayfs refused to move them.
//!
//! overlayfs refuses to move some old directories (`EXDEV`): all of an ordinary user's, and those
//! whose path is long. `mv` then copies the directory and removes the original, without a message.
//! Files in it that have names elsewhere become separate files, and objects of other owners become
//! the user's. No attribute records this, so copies are found by what `mv` preserves: name,
//! contents and modification time. A program that copies and removes by itself looks the same.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, Owner, Result, Stat, Timestamp};
use atomdir_types::{Deviation, DeviationKind};

use super::Reading;
use super::overlay_attributes::OverlayPrefix;
use crate::base::Base;
use crate::ids::NodeId;

/// overlayfs records a longer path for no directory (OVL_REDIRECT_MAX).
const MOVABLE_PATH_LENGTH_MAX: usize = 250;

/// The properties that a copy shares with its original. Only a directory may have got another name.
type Looks = (Option<Name>, u64, Timestamp);

/// An object of the base, removed together with its directory, whose copy would lack something.
pub(super) struct Removed {
    base: Arc<Base>,
    looks: Looks,
    owner: Owner,
}

/// An object that the transaction has made, by one of its names.
struct Made {
    id: NodeId,
    directory: NodeId,
    name: Name,
    owner: Owner,
}

impl<D: Disk> Reading<'_, D> {
    /// Notes an object that has lost its name in a removed directory, or a removed directory.
    pub(super) fn note_removed(&mut self, (base, stat): (&Arc<Base>, &Stat), name: &Name) {
        let is_users = self.overlay_prefix == OverlayPrefix::User;
        let owner = stat.attributes.owner;
        let has_names = base.kind != Kind::Directory && stat.links > 1;
        // Root's copies keep their owners.
        let is_concerned = has_names || is_users && owner != self.own;
        let is_long = || {
            base.path()
                .is_none_or(|path| path.len() > MOVABLE_PATH_LENGTH_MAX)
        };
        if !self.is_live && is_concerned && (is_users || is_long()) {
            let (length, modified) = (stat.length, stat.attributes.times.modified);
            self.removed.push(Removed {
                base: base.clone(),
                looks: looks(base.kind, name, length, modified),
                owner,
            });
        }
    }

    /// Adds the copies of the noted objects to the deviations. Call it when all lost names are
    /// known.
    pub(super) fn find_copied(&mut self) -> Result<()> {
        if self.removed.is_empty() {
            return Ok(());
        }
        let made = self.made()?;
        let mut found = Vec::new();
        for removed in &self.removed {
            for one in made.get(&removed.looks).into_iter().flatten() {
                if let Some(kind) = self.lacks(removed, one)? {
                    let path = self.new.path(one.id);
                    found.push(Deviation { path, kind });
                }
            }
        }
        self.deviations.append(&mut found);
        Ok(())
    }

    /// The deviation of the new object, if it is a copy of the removed one.
    fn lacks(&self, removed: &Removed, made: &Made) -> Result<Option<DeviationKind>> {
        let is_gone = self.new.nodes.dying.contains_key(&removed.base.serial);
        let lacks = match () {
            () if removed.owner != made.owner => DeviationKind::CopyWithoutOwner,
            () if !is_gone => DeviationKind::CopyWithoutNames,
            () => return Ok(None),
        };
        let (_, length, _) = removed.looks;
        let is_copy = removed.base.kind != Kind::File
            || self.has_contents_of((&removed.base, length), (made.directory, &made.name))?;
        Ok(is_copy.then_some(lacks))
    }

    /// The new objects in new directories, and the new directories.
    fn made(&self) -> Result<HashMap<Looks, Vec<Made>>> {
        let mut made: HashMap<Looks, Vec<Made>> = HashMap::new();
        for directory in self.new.changed_nodes() {
            let above = self.new.node(directory)?;
            let delta = above.directory_delta();
            for (name, entry) in delta.into_iter().flat_map(|delta| &delta.entries) {
                let Some(id) = entry.now else { continue };
                let node = self.new.node(id)?;
                let is_new = node.base.is_none();
                let is_within = above.base.is_none() || node.kind == Kind::Directory;
                if let (true, true, Some(own)) = (is_new, is_within, node.own()) {
                    let own = own.attributes;
                    let looks = looks(node.kind, name, own.length, own.modified);
                    made.entry(looks).or_default().push(Made {
                        id,
                        directory,
                        name: name.clone(),
                        owner: own.owner,
                    });
                }
            }
        }
        Ok(made)
    }
}

fn looks(kind: Kind, name: &Name, length: u64, modified: Timestamp) -> Looks {
    match kind {
        Kind::Directory => (None, 0, modified),
        _ => (Some(name.clone()), length, modified),
    }
}
