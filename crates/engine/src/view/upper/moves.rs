//! Changes to make on disk once the upper layer has been read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Name, RenameMode, Result};

use super::{InLayer, LayerDirectory, holes, open_in_layer};
use crate::base::Base;
use crate::base::handles::HandleKey;
use crate::base::rights::with_rights;
use crate::ids::NodeId;
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

    pub fn carry_out<D: Disk>(&self, view: &mut View<D>) -> Result<()> {
        let stage = view.stage()?;
        let core = view.core.clone();
        for (directory, name) in &self.unlinks {
            let above = open_in_layer(view, &self.layer, (*directory).into())?;
            core.disk.unlink(&above, name)?;
        }
        // From the bottom up, while the directories are still in their places.
        for (directory, name, slot) in self.to_slots.iter().rev() {
            let above = open_in_layer(view, &self.layer, *directory)?;
            if self.dropped_slots.contains(slot) {
                core.disk.unlink(&above, name)?;
                continue;
            }
            let mode = RenameMode::NoReplace;
            core.disk.rename((&above, name), (&stage, slot), mode)?;
        }
        for (id, base) in &self.copies {
            holes::dig(view, *id, base)?;
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
