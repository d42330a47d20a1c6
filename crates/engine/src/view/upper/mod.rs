//! Takes over what overlayfs has gathered above a snapshot: its upper layer
//! becomes a view's difference.
//!
//! A transaction with a native view works in an overlay of the kernel's: the
//! lower layer is the snapshot, served read-only, and the upper layer a
//! directory of the staging area. When its programs have ended, the upper
//! layer is read (`walk`), what has lost its names is found (`lost`), and only
//! then is anything moved (`moves`). The result is a view like any other, with
//! the upper layer's new objects as its staged ones.
//!
//! Invariants
//! 1. Reading for a look changes nothing on disk, so that it may be done while
//!    programs still work in the overlay, and given up when it fails. Only when the
//!    layer is taken over are directories opened up that are closed to their owner.
//! 2. An object of the upper layer with an origin is the object of the base
//!    that it is a copy of; its contents count as written whole, unless they
//!    are still the lower file's (metacopy).
//! 3. A new directory stays as it is, with all that is new in it: what it
//!    holds has its place below it, so the commit moves it by one rename.
//! 4. What is new or copied in a directory of the base gets a slot of the
//!    staging directory.

mod barred;
mod holes;
mod index;
mod lost;
mod marks;
mod moves;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Name, NewNode, Result, Stat, Timestamp};

use super::View;
use super::dress::dress;
use super::node::Node;
use crate::base::handles::HandleKey;
use crate::ids::NodeId;
use crate::names;
pub use marks::Marking;
use marks::Marks;
use moves::Moves;

const PRIVATE_DIRECTORY: u32 = 0o700;

impl<D: Disk> View<D> {
    /// Makes the directories that the overlay is mounted with.
    pub(crate) fn prepare_upper(&mut self) -> Result<()> {
        let stage = self.stage()?;
        let disk = &self.core.disk;
        for name in [names::UPPER, names::WORK] {
            let name = names::fixed(name);
            disk.make(&stage, &name, &NewNode::Directory, PRIVATE_DIRECTORY)?;
        }
        // The overlay's root looks like its upper layer's.
        let root = self.snapshot_stat(&self.core.root_base)?;
        let xattrs = self.snapshot().xattrs(&self.core.root_base)?;
        let upper = disk.open(&stage, &names::fixed(names::UPPER), Access::Directory)?;
        dress(&self.core, &upper, root.kind, root.attributes, &xattrs)
    }

    /// The view as its upper layer now has it; nothing is changed by a look.
    pub(crate) fn look_at_upper(&mut self, began: Timestamp) -> Result<View<D>> {
        let (view, moves) = self.read_upper(began, false)?;
        moves.close_layer(&view);
        Ok(view)
    }

    /// The view that goes on from here, without an overlay.
    /// `began`: when the transaction did.
    pub(crate) fn take_over_upper(&mut self, began: Timestamp) -> Result<View<D>> {
        self.write_ahead_what_is_found();
        let opens_up = !self.core.options.privileges.all;
        let (mut view, moves) = self.read_upper(began, opens_up)?;
        view.is_written_ahead = self.is_written_ahead;
        moves.carry_out(&mut view)?;
        moves.close_layer(&view);
        view.reads = self.reads.take();
        Ok(view)
    }

    fn read_upper(&mut self, began: Timestamp, opens_up: bool) -> Result<(View<D>, Moves)> {
        let stage = self.stage()?;
        let upper = names::fixed(names::UPPER);
        let stat = self.core.disk.stat_at(&stage, &upper)?;
        let mut view = View::new(self.core.clone(), self.id, self.at);
        view.has_stage = true;
        let mut reading = Reading {
            old: self,
            marking: Marking::of(&view.core.options.privileges),
            new: view,
            began,
            opens_up,
            moves: Moves::default(),
            with_names: HashMap::new(),
            to_visit: Vec::new(),
        };
        reading.moves.layer.insert(
            NodeId::ROOT,
            InLayer {
                parent: None,
                name: upper,
                identity: stat.identity,
            },
        );
        reading.walk(stat)?;
        reading.drop_lost_names()?;
        reading.take_index()?;
        Ok((reading.new, reading.moves))
    }
}

/// The upper layer on its way to a view.
struct Reading<'a, D: Disk> {
    /// The view that served as the lower layer.
    old: &'a View<D>,
    new: View<D>,
    marking: Marking,
    began: Timestamp,
    /// Nobody works in the layer any more, and some of it may be closed to its owner.
    opens_up: bool,
    moves: Moves,
    /// New files with several names, by inode.
    with_names: HashMap<u64, NodeId>,
    /// Directories still to be read, and what was noted on them.
    to_visit: Vec<(NodeId, Stat, Marks)>,
}

/// A directory's place in the upper layer; the layer itself has no parent.
struct InLayer {
    parent: Option<NodeId>,
    name: Name,
    identity: Identity,
}

impl<D: Disk> Reading<'_, D> {
    fn open(&self, directory: NodeId) -> Result<Arc<D::Handle>> {
        open_in_layer(&self.new, &self.moves.layer, directory)
    }

    fn is_new(&self, id: NodeId) -> Result<bool> {
        Ok(self.new.node(id)?.base.is_none())
    }

    /// What the old view remembers of the same object.
    fn old_node(&self, serial: u64) -> Option<&Node> {
        let id = self.old.nodes.by_base.get(&serial)?;
        self.old.node(*id).ok()
    }
}

fn open_in_layer<D: Disk>(
    view: &View<D>,
    layer: &HashMap<NodeId, InLayer>,
    directory: NodeId,
) -> Result<Arc<D::Handle>> {
    let at = layer.get(&directory).ok_or(Errno::STALE)?;
    let key = HandleKey::Directory(at.identity);
    if let Some(handle) = view.core.handles.get(key) {
        return Ok(handle);
    }
    let above = match at.parent {
        Some(parent) => open_in_layer(view, layer, parent)?,
        None => view.open_stage()?,
    };
    let handle = view.core.disk.open(&above, &at.name, Access::Directory)?;
    let handle = Arc::new(handle);
    view.core.handles.insert(key, handle.clone());
    Ok(handle)
}
