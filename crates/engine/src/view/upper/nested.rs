//! A view for a transaction that is nested in one with a native view.
//!
//! It shows the state of the overlay when it begins: the engine reads the upper layer and copies
//! its objects into the staging directory of the nested transaction, since programs go on changing
//! the layer. So nothing that happens in the overlay later shows in the nested view, and an abort
//! of the nested transaction has nothing to take back. `view::merge` says how its commit reaches
//! the overlay.

use std::collections::BTreeSet;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Result, Timestamp};

use super::moves::Moves;
use super::overlay_attributes::{OverlayAttributes, OverlayPrefix};
use super::seen::UpperState;
use super::{LayerDirectory, LowerView, Purpose, Read, is_gone, open_in_layer};
use crate::base::Xattrs;
use crate::ids::{NodeId, TransactionId};
use crate::view::View;
use crate::view::merge::Begun;
use crate::view::node::{Staged, StagedParent};
use crate::view::staging::{PRIVATE_FILE, copy_contents};

/// A copy of a node's object in the upper layer.
struct Copied {
    node: NodeId,
    /// Set for a file, with its length.
    contents: Option<(Name, u64)>,
    xattrs: Xattrs,
}

impl<D: Disk> View<D> {
    /// For a [reader](View::reader_of_upper): returns a view over the overlay's present tree, for a
    /// nested transaction, and what the outer one notes of it.
    pub(crate) fn copy_upper(
        &self,
        lower: &dyn LowerView<D>,
        id: TransactionId,
        began: Timestamp,
    ) -> Result<(View<D>, Begun)> {
        let seen = Some(UpperState::default());
        let Read {
            view, moves, seen, ..
        } = self.read_upper(lower, began, Purpose::Look, seen)?;
        let nested = self.copy_layer(id, view, &moves);
        moves.close_layer(self);
        let nested = nested.inspect_err(|_| self.core.drop_stage(id))?;
        let begun = Begun {
            nodes: nested.unlogged_nodes(),
            seen: seen.unwrap_or_default(),
        };
        Ok((nested, begun))
    }

    /// Notes that a transaction with a view by [`copy_upper`](View::copy_upper) is nested in this
    /// one.
    pub(crate) fn note_begun_over(&mut self, nested: TransactionId, begun: Begun) {
        self.begun_over.insert(nested, begun);
    }

    pub(crate) fn begun_over(&self, nested: TransactionId) -> Option<&Begun> {
        self.begun_over.get(&nested)
    }

    /// Whether the view has a staging directory of its own.
    pub(crate) fn owns_stage(&self) -> bool {
        self.has_stage && self.stage_of == self.id
    }

    /// For a [reader](View::reader_of_upper): the present state of the overlay's upper layer.
    pub(crate) fn see_upper(
        &self,
        lower: &dyn LowerView<D>,
        began: Timestamp,
    ) -> Result<UpperState> {
        let seen = Some(UpperState::default());
        let read = self.read_upper(lower, began, Purpose::Look, seen)?;
        read.moves.close_layer(&read.view);
        Ok(read.seen.unwrap_or_default())
    }

    fn copy_layer(&self, id: TransactionId, read: View<D>, moves: &Moves) -> Result<View<D>> {
        let mut nested = View {
            // The copies get slots after those of the layer's objects.
            numbers: read.numbers.clone(),
            made_of_old: read.made_of_old.clone(),
            ..View::new(self.core.clone(), id, self.at)
        };
        let (mut copies, mut gone) = (Vec::new(), Vec::new());
        let mut places = moves.places();
        for node in read.changed_nodes() {
            if let Some(staged) = read.staged(node)? {
                let above = match staged.parent {
                    StagedParent::Node(directory) => (directory.into(), staged.name),
                    StagedParent::Slots => places.remove(&staged.name).ok_or(Errno::STALE)?,
                };
                match nested.copy_from_layer(&read, moves, node, above) {
                    Ok(copied) => copies.push(copied),
                    Err(errno) if is_gone(errno) && !read.has_other_names(node)? => {
                        gone.push(node);
                    }
                    Err(errno) => return Err(errno),
                }
            }
        }
        nested.nodes = read.nodes;
        nested.generations = read.generations;
        nested.restricted_to = self.restricted_to.clone();
        nested.reads = self.reads.as_ref().map(|_| Default::default());
        for copied in copies {
            nested.take_copied(copied)?;
        }
        for node in gone {
            nested.leave_out(node)?;
        }
        nested.fork_from_here();
        Ok(nested)
    }

    /// Copies the object at a place of the layer.
    fn copy_from_layer(
        &mut self,
        read: &View<D>,
        moves: &Moves,
        node: NodeId,
        (directory, name): (LayerDirectory, Name),
    ) -> Result<Copied> {
        let above = open_in_layer(read, &moves.layer, directory)?;
        let core = self.core.clone();
        let disk = &core.disk;
        let object = disk.open(&above, &name, Access::Path)?;
        let prefix = OverlayPrefix::of(&core.options.privileges);
        let contents = match read.node(node)?.kind {
            Kind::File => {
                let slot = crate::names::slot(read.numbers.new_slot());
                let from = disk.open(&above, &name, Access::Read)?;
                let to = disk.create(&*self.stage()?, &slot, PRIVATE_FILE)?;
                copy_contents(disk, &from, &to, u64::MAX)?;
                Some((slot, disk.stat(&to)?.length))
            }
            _ => None,
        };
        Ok(Copied {
            node,
            contents,
            xattrs: OverlayAttributes::of(disk.xattrs(&object)?, prefix).xattrs,
        })
    }

    /// Removes an object that was gone before it could be copied. A directory stays, empty: when
    /// it went, so had all that was in it.
    fn leave_out(&mut self, node: NodeId) -> Result<()> {
        let own = self.node_mut(node)?.own.as_mut();
        own.map(Arc::make_mut).ok_or(Errno::STALE)?.staged = None;
        if self.node(node)?.kind == Kind::Directory {
            return Ok(());
        }
        for (directory, name) in self.names_of(node)? {
            self.drop_link(node)?;
            self.set_entry(directory, &name, None)?;
        }
        self.drop_if_unneeded(node);
        Ok(())
    }

    /// Whether the snapshot has the object by several names. Then the index has it as well.
    fn has_other_names(&self, node: NodeId) -> Result<bool> {
        Ok(match &self.node(node)?.base {
            Some(base) => self.shown_stat(base)?.links > 1,
            None => false,
        })
    }

    /// The names that the transaction gave to an object, and its own one.
    fn names_of(&self, node: NodeId) -> Result<BTreeSet<(NodeId, Name)>> {
        let mut names = BTreeSet::new();
        let object = self.node(node)?;
        if object.base.is_some() {
            names.extend(object.name.clone().map(|name| (object.parent, name)));
        }
        for directory in self.changed_nodes() {
            let delta = self.node(directory)?.directory_delta();
            let entries = delta.into_iter().flat_map(|delta| &delta.entries);
            let given = entries.filter(|(_, entry)| entry.now == Some(node));
            names.extend(given.map(|(name, _)| (directory, name.clone())));
        }
        Ok(names)
    }

    fn take_copied(&mut self, copied: Copied) -> Result<()> {
        let is_new = self.node(copied.node)?.base.is_none();
        let staged = match copied.contents {
            Some((name, length)) => {
                self.own_in_place(copied.node)?.attributes.length = length;
                Some(Staged::in_slot(name, None))
            }
            None => None,
        };
        self.take_copy(copied.node, staged, is_new.then_some(copied.xattrs))
    }
}
