//! Changes to make on disk once the upper layer has been read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Name, RenameMode, Result, reason};

use super::{InLayer, LayerDirectory, holes, open_in_layer};
use crate::base::Base;
use crate::base::handles::HandleKey;
use crate::base::rights::with_rights;
use crate::ids::NodeId;
use crate::names;
use crate::view::View;
use crate::view::node::StagedParent;

#[derive(Default)]
pub(super) struct Moves {
    /// Moves from a directory of the layer to a slot.
    to_slots: Vec<(LayerDirectory, Name, Name)>,
    dropped_slots: HashSet<Name>,
    unlinks: Vec<(NodeId, Name)>,
    touched: HashSet<LayerDirectory>,
    /// Copies of files of the base, whose holes the kernel may have filled.
    copies: Vec<(NodeId, Arc<Base>)>,
    /// Overlay attributes to remove from new objects.
    strips: Vec<(NodeId, Vec<Vec<u8>>)>,
    /// Directories that were closed to their owner, with their modes. They stay
    /// open until all changes are made.
    pub opened: Vec<(NodeId, u32)>,
    /// The places, before any move, of the directories that objects are moved from.
    pub layer: HashMap<LayerDirectory, InLayer>,
}

/// A name of the layer, and the slot to which its object is moved.
struct Step {
    directory: LayerDirectory,
    name: Name,
    slot: Name,
    is_needed: bool,
}

/// The disk may have been full, for example.
pub(super) struct CarryOutError {
    pub errno: Errno,
    /// The layer is as it was before.
    pub is_undone: bool,
}

impl Moves {
    pub fn move_to_slot(&mut self, directory: LayerDirectory, name: Name, slot: Name) {
        self.touched.insert(directory);
        self.to_slots.push((directory, name, slot));
    }

    /// Where in the layer the objects are that are to be moved to slots, by slot.
    pub fn places(&self) -> HashMap<Name, (LayerDirectory, Name)> {
        let places = self.to_slots.iter();
        let places = places.map(|(at, name, slot)| (slot.clone(), (*at, name.clone())));
        places.collect()
    }

    /// Gives up a move to a slot, as the object stays elsewhere.
    pub fn drop_slot(&mut self, slot: &Name) {
        self.dropped_slots.insert(slot.clone());
    }

    /// Whether an object is taken out of the directory.
    pub fn is_touched(&self, directory: NodeId) -> bool {
        self.touched.contains(&directory.into())
    }

    pub fn unlink(&mut self, directory: NodeId, name: Name) {
        self.touched.insert(directory.into());
        self.unlinks.push((directory, name));
    }

    pub fn dig(&mut self, id: NodeId, base: Arc<Base>) {
        self.copies.push((id, base));
    }

    pub fn strip(&mut self, id: NodeId, names: Vec<Vec<u8>>) {
        if !names.is_empty() {
            self.strips.push((id, names));
        }
    }

    /// Closes the handles of the layer's directories, which nobody needs any more.
    pub fn close_layer<D: Disk>(&self, view: &View<D>) {
        for place in self.layer.values() {
            let key = HandleKey::Directory(place.identity);
            view.core.handles.remove(key);
        }
    }

    pub fn carry_out<D: Disk>(&self, view: &mut View<D>) -> std::result::Result<(), CarryOutError> {
        let steps = self.steps(view);
        for (done, step) in steps.iter().enumerate() {
            if let Err(errno) = self.to_slot(view, step) {
                // From the last to the first, so each directory is back before its entries.
                let back = steps[..done].iter().rev();
                let is_undone = back
                    .map(|step| self.back_from_slot(view, step))
                    .all(|one| one.is_ok());
                return Err(CarryOutError { errno, is_undone });
            }
        }
        self.finish(view, &steps).map_err(|errno| CarryOutError {
            errno,
            is_undone: false,
        })
    }

    /// What becomes of the layer's names. Those that nobody needs go to slots as well, since a
    /// removal could not be undone.
    fn steps<D: Disk>(&self, view: &mut View<D>) -> Vec<Step> {
        let mut steps = Vec::new();
        for (directory, name) in &self.unlinks {
            steps.push(Step {
                directory: (*directory).into(),
                name: name.clone(),
                slot: names::slot(view.new_slot()),
                is_needed: false,
            });
        }
        // From the bottom up, while the directories are still in their places.
        for (directory, name, slot) in self.to_slots.iter().rev() {
            steps.push(Step {
                directory: *directory,
                name: name.clone(),
                slot: slot.clone(),
                is_needed: !self.dropped_slots.contains(slot),
            });
        }
        steps
    }

    fn to_slot<D: Disk>(&self, view: &mut View<D>, step: &Step) -> Result<()> {
        let stage = view.stage()?;
        let above = open_in_layer(view, &self.layer, step.directory)?;
        let (from, to) = ((&*above, &step.name), (&*stage, &step.slot));
        view.core.disk.rename(from, to, RenameMode::NoReplace)
    }

    fn back_from_slot<D: Disk>(&self, view: &mut View<D>, step: &Step) -> Result<()> {
        let stage = view.stage()?;
        let above = open_in_layer(view, &self.layer, step.directory)?;
        let (from, to) = ((&*stage, &step.slot), (&*above, &step.name));
        view.core.disk.rename(from, to, RenameMode::NoReplace)
    }

    fn finish<D: Disk>(&self, view: &mut View<D>, steps: &[Step]) -> Result<()> {
        let stage = view.stage()?;
        let core = view.core.clone();
        for step in steps.iter().filter(|step| !step.is_needed) {
            core.disk.unlink(&stage, &step.slot)?;
        }
        for (id, base) in &self.copies {
            match holes::dig(view, *id, base) {
                // On a full disk the holes stay filled.
                Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => {}
                Err(errno) => return Err(errno),
            }
        }
        for (id, names) in &self.strips {
            let staged = view.staged(*id)?.ok_or(Errno::STALE)?;
            let object = view.open_staged(&staged)?;
            for name in names {
                with_rights(&core.disk, &[&object], || {
                    core.disk.remove_xattr(&object, name)
                })?;
            }
        }
        self.close_up(view)
    }

    /// Closes the opened directories in the layer, which stays.
    pub fn close_again<D: Disk>(&self, view: &View<D>) {
        for (id, mode) in self.opened.iter().rev() {
            let opened = open_in_layer(view, &self.layer, (*id).into());
            let closed = opened.and_then(|directory| view.core.disk.set_mode(&directory, *mode));
            if let Err(errno) = closed {
                tracing::warn!(errno = %reason(errno), "a directory of an overlay stays open");
            }
        }
    }

    /// Closes the opened directories from the bottom up. Those left in the layer no
    /// longer matter.
    fn close_up<D: Disk>(&self, view: &mut View<D>) -> Result<()> {
        for (id, mode) in self.opened.iter().rev() {
            if view.staged(*id)?.is_some() {
                let directory = view.staged_parent(StagedParent::Node(*id))?;
                view.core.disk.set_mode(&directory, *mode)?;
            }
        }
        Ok(())
    }
}
