//! A second view with the state of this one, for a transaction that is independent of it.
//!
//! It has the same snapshot and the same changes. Unlike a nested view it shares no staged file with
//! the first, since the commit of either moves its own to the base: they are copied, on Btrfs and XFS
//! without their contents. Other staged objects are not copied, since the commit makes each anew from
//! its node.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Kind, Result};

use super::Forks;
use crate::base::Xattrs;
use crate::base::rights::open_closed;
use crate::ids::{NodeId, TransactionId};
use crate::names;
use crate::view::View;
use crate::view::node::{Dress, Staged};
use crate::view::numbers::Numbers;
use crate::view::staging::{PRIVATE_FILE, copy_contents};
use crate::view::xattrs::set_all;

impl<D: Disk> View<D> {
    /// Begins such a view. If this fails, nothing of it is left.
    pub(crate) fn fork(&mut self, id: TransactionId) -> Result<View<D>> {
        let mut fork = View {
            nodes: self.unlogged_nodes(),
            generations: self.generations.clone(),
            numbers: Numbers::from(self.numbers.fork_point()).into(),
            reads: self.reads.clone(),
            has_declared_reads: self.has_declared_reads,
            ..self.beside(id)
        };
        fork.remember_as(self);
        let copied = self.copy_all_staged(&mut fork);
        match copied {
            Ok(()) => Ok(fork),
            Err(errno) => {
                self.core.drop_stage(id);
                Err(errno)
            }
        }
    }

    /// For a view by [`View::copy_upper`], which is to be no nested one: `lower` is the view that the
    /// overlay has been read over.
    pub(crate) fn be_apart_from(&mut self, lower: &View<D>) {
        self.forks = Forks::default();
        self.remember_as(lower);
        self.reads.clone_from(&lower.reads);
    }

    /// What the other one remembers of the snapshot. It goes on without this one: what it lands, and a
    /// refresh, change that.
    fn remember_as(&mut self, other: &View<D>) {
        self.resolved = Arc::new(other.resolved.copy());
        self.leans_on = Arc::new(other.leans_on.copy());
        self.old_texts = other.old_texts.copy();
    }

    fn copy_all_staged(&mut self, fork: &mut View<D>) -> Result<()> {
        let has_staged = |id: &NodeId| self.nodes.own(*id).is_some_and(|own| own.staged.is_some());
        let staged: Vec<NodeId> = self.changed_nodes().filter(has_staged).collect();
        for id in &staged {
            fork.own_in_place(*id)?.staged = None;
        }
        // Files without a name that programs of this view still have open.
        fork.drop_unneeded();
        for id in staged {
            let Some(staged) = self.staged(id)?.filter(|_| fork.nodes.get(id).is_some()) else {
                continue;
            };
            // What is only on the staged object must be on the node.
            let xattrs = match self.node(id)?.base {
                None => Some(self.all_xattrs(id)?),
                Some(_) => None,
            };
            let copy = match self.node(id)?.kind {
                Kind::File => Some(self.copy_staged_into(fork, &staged)?),
                _ => None,
            };
            fork.take_copy(id, copy, xattrs)?;
        }
        Ok(())
    }

    fn copy_staged_into(&mut self, fork: &mut View<D>, staged: &Staged) -> Result<Staged> {
        let above = self.staged_parent(staged.parent)?;
        let (stage, name) = (fork.stage()?, names::slot(fork.new_slot()));
        let disk = &self.core.disk;
        let from = open_closed(disk, &above, &staged.name, Access::Read)?;
        let to = disk.create(&stage, &name, PRIVATE_FILE)?;
        copy_contents(disk, &from, &to, u64::MAX)?;
        Ok(Staged::in_slot(name, None))
    }

    /// The node's staged object is this copy, if it needs one before the commit. `xattrs` are all that
    /// a new object has.
    pub(in crate::view) fn take_copy(
        &mut self,
        id: NodeId,
        copy: Option<Staged>,
        xattrs: Option<Xattrs>,
    ) -> Result<()> {
        let own = self.own_in_place(id)?;
        own.dress = Dress::Bare;
        own.staged = copy;
        if let Some(xattrs) = xattrs {
            own.xattrs = set_all(xattrs);
        }
        Ok(())
    }
}
