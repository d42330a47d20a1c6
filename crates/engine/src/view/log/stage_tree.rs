//! The staged objects of a view that is made again: where they are, and where they should be.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, RenameMode, Result};

use crate::base::rights::{open_closed, with_rights};
use crate::control;
use crate::ids::NodeId;
use crate::names;
use crate::view::View;
use crate::view::node::{Staged, StagedParent};

/// Everything in a transaction's staging directory, by identity.
pub(super) struct StageTree {
    /// The directory in which it is (`None`: the staging directory itself), and its name there.
    places: HashMap<Identity, (Option<Identity>, Name)>,
    in_slots: HashMap<Name, Identity>,
    /// The highest slot in use.
    pub last_slot: u64,
}

impl StageTree {
    pub fn read<D: Disk>(view: &View<D>) -> Result<StageTree> {
        let disk = &view.core.disk;
        let mut tree = StageTree {
            places: HashMap::new(),
            in_slots: HashMap::new(),
            last_slot: 0,
        };
        let mut open = vec![(None, view.open_stage()?)];
        while let Some((above, directory)) = open.pop() {
            for entry in disk.list(&directory)? {
                let stat = disk.stat_at(&directory, &entry.name)?;
                if above.is_none() {
                    let slot = names::slot_number(&entry.name).unwrap_or(0);
                    tree.last_slot = tree.last_slot.max(slot);
                    tree.in_slots.insert(entry.name.clone(), stat.identity);
                }
                let place = (above, entry.name.clone());
                tree.places.insert(stat.identity, place);
                if stat.kind == Kind::Directory {
                    let handle = open_closed(disk, &directory, &entry.name, Access::Directory)?;
                    open.push((Some(stat.identity), Arc::new(handle)));
                }
            }
        }
        Ok(tree)
    }

    fn open<D: Disk>(&self, view: &View<D>, directory: Option<Identity>) -> Result<Arc<D::Handle>> {
        let Some(identity) = directory else {
            return view.open_stage();
        };
        let (above, name) = self.places.get(&identity).ok_or(Errno::STALE)?;
        let above = self.open(view, *above)?;
        let disk = &view.core.disk;
        Ok(Arc::new(open_closed(
            disk,
            &above,
            name,
            Access::Directory,
        )?))
    }

    /// Sees that every staged object is where its node says, or moves it into a slot.
    pub fn put_right<D: Disk>(&mut self, view: &mut View<D>) -> Result<()> {
        let mut staged = Vec::new();
        for id in view.changed_nodes().collect::<Vec<_>>() {
            let Some(mut of) = view.staged(id)? else {
                continue;
            };
            // An object whose identity the log does not know was never moved.
            let in_slot = self.in_slots.get(&of.name).copied();
            let identity = of.identity.or(in_slot);
            let identity = identity.filter(|identity| self.places.contains_key(identity));
            if identity.is_none() && view.node(id)?.is_unnamed() {
                // Its last name has gone, and its file with the program that had it open.
                view.own_in_place(id)?.staged = None;
                continue;
            }
            of.identity = Some(identity.ok_or(Errno::STALE)?);
            view.set_staged(id, of.clone())?;
            staged.push((id, of));
        }
        let identities: HashMap<NodeId, Option<Identity>> =
            staged.iter().map(|(id, of)| (*id, of.identity)).collect();
        for (id, of) in staged {
            let identity = of.identity.ok_or(Errno::STALE)?;
            let (above, name) = self.places.get(&identity).ok_or(Errno::STALE)?.clone();
            let expected = match of.parent {
                StagedParent::Slots => None,
                StagedParent::Node(directory) => identities.get(&directory).copied().flatten(),
            };
            let is_there = of.parent == StagedParent::Slots || expected.is_some();
            if is_there && above == expected && name == of.name {
                continue;
            }
            let slot = names::slot(view.new_slot());
            self.move_to_slot(view, (above, &name), &slot)?;
            self.places.insert(identity, (None, slot.clone()));
            let placed = Staged::in_slot(slot, Some(identity));
            view.set_staged(id, placed)?;
            if let StagedParent::Node(directory) = of.parent
                && view.node(directory).is_ok()
            {
                view.outdate(directory)?;
            }
        }
        Ok(())
    }

    fn move_to_slot<D: Disk>(
        &self,
        view: &View<D>,
        (above, name): (Option<Identity>, &Name),
        slot: &Name,
    ) -> Result<()> {
        let (from, to) = (self.open(view, above)?, view.open_stage()?);
        let disk = &view.core.disk;
        let object = open_closed(disk, &from, name, Access::Path)?;
        with_rights(disk, &[&from, &to, &object], || {
            disk.rename((&from, name), (&to, slot), RenameMode::NoReplace)
        })
    }

    /// Removes what no node has staged.
    pub fn purge<D: Disk>(&self, view: &View<D>) -> Result<()> {
        let mut needed: HashSet<Identity> = HashSet::new();
        for id in view.changed_nodes() {
            needed.extend(view.staged(id)?.and_then(|staged| staged.identity));
        }
        let unneeded = self.places.iter();
        let unneeded = unneeded.filter(|(identity, _)| !needed.contains(identity));
        for (_, (above, name)) in unneeded {
            let is_log = above.is_none() && *name == names::fixed(names::VIEW);
            // A directory may have gone with one above it.
            if !is_log && let Ok(directory) = self.open(view, *above) {
                control::remove_tree(&view.core.disk, &directory, name)?;
            }
        }
        Ok(())
    }
}
