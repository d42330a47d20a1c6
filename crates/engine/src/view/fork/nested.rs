//! The views that are nested in one: how they begin, and how they end.

use std::collections::HashMap;

use atomdir_disk::{Disk, Errno, Result};

use super::join::{Clash, JoinStates, same_ids};
use super::{Forks, Outdated, State};
use crate::ids::{NodeId, TransactionId};
use crate::view::View;
use crate::view::nodes::Nodes;
use crate::view::read_set::ReadSet;

/// The nodes of the outer view after the commit of a nested one.
pub(crate) struct Joined(Nodes);

impl<D: Disk> View<D> {
    /// The open transactions that are nested in this one, in the order of their begins.
    pub fn all_nested(&self) -> Vec<TransactionId> {
        let over_upper = self.begun_over.keys().copied();
        let nested = self.forks.nested.iter().map(|(id, _)| *id);
        nested.chain(over_upper).collect()
    }

    /// The first of them.
    pub fn nested(&self) -> Option<TransactionId> {
        self.all_nested().first().copied()
    }

    /// Fails while a nested transaction is open: names must not change then.
    pub fn refuse_while_nested(&self) -> Result<()> {
        match self.nested() {
            Some(_) => Err(Errno::BUSY),
            None => Ok(()),
        }
    }

    /// A view of another transaction, with the snapshot of this one and what this one remembers of it,
    /// but not with its changes.
    pub(super) fn beside(&self, id: TransactionId) -> View<D> {
        View {
            landed: self.landed.clone(),
            resolved: self.resolved.clone(),
            leans_on: self.leans_on.clone(),
            old_texts: self.old_texts.clone(),
            restricted_to: self.restricted_to.clone(),
            restored: self.restored.clone(),
            made_of_old: self.made_of_old.clone(),
            successions: self.successions.clone(),
            reusable_from: self.reusable_from,
            ..View::new(self.core.clone(), id, self.at)
        }
    }

    /// Begins a view over this one.
    pub fn begin_nested(&mut self, id: TransactionId) -> View<D> {
        let state = self.state();
        let nested = View {
            nodes: self.unlogged_nodes(),
            has_placed: self.has_placed,
            numbers: self.numbers.clone(),
            forks: Forks {
                outer: Some(state.point),
                ..Forks::default()
            },
            reads: self.reads.as_ref().map(|_| ReadSet::default()),
            stage_of: self.stage_of,
            has_stage: self.has_stage,
            ..self.beside(id)
        };
        self.forks.nested.push((id, state));
        nested
    }

    /// Joins the nested view's changes with this view's. If both have changed the same, returns
    /// the paths.
    pub fn join_nested(&self, nested: &View<D>) -> std::result::Result<Joined, Vec<Vec<u8>>> {
        let mut all = self.forks.nested.iter();
        let Some((_, begun)) = all.find(|(id, _)| *id == nested.id) else {
            return Err(Vec::new());
        };
        let mut changed = nested.nodes.clone();
        changed.renumber(&nested.first_ids(&begun.nodes));
        changed.renumber(&same_ids(&changed, &self.nodes));
        let sides = JoinStates {
            fork: &begun.nodes,
            outer: &self.nodes,
            nested: &changed,
        };
        sides.join().map(Joined).map_err(|clashes| {
            let path = |id| match self.nodes.get(id) {
                Some(_) => self.path(id),
                None => nested.path(id),
            };
            let paths = clashes.into_iter().map(|clash| match clash {
                Clash::Node(id) => path(id),
                Clash::Entry(id, name) if self.nodes.get(id).is_some() => {
                    self.path_of_entry(id, &name)
                }
                Clash::Entry(id, name) => nested.path_of_entry(id, &name),
            });
            paths.collect()
        })
    }

    /// The first ids of directories that a savepoint has brought back, as far as the fork has them.
    fn first_ids(&self, fork: &Nodes) -> HashMap<NodeId, NodeId> {
        let is_back = |(now, first): &(&NodeId, &NodeId)| {
            let has = |id| self.nodes.get(id).is_some();
            has(**now) && !has(**first) && fork.get(**first).is_some()
        };
        let back = self.forks.revived.iter().filter(is_back);
        back.map(|(now, first)| (*now, *first)).collect()
    }

    /// Makes the nested view's changes this view's own.
    pub fn take_nested(&mut self, nested: View<D>, joined: Joined) -> Vec<Outdated> {
        let begun = self.forks.end_nested(nested.id);
        self.take_reads(nested.reads);
        self.has_stage |= nested.has_stage;
        let left = nested.forks.into_states();
        let old = self.put_in_place(joined.0);
        let outdated = self.outdated(&old);
        let begun = begun.iter().map(|state| &state.nodes);
        let gone = left.iter().chain([&old, &nested.nodes]).chain(begun);
        self.discard_unneeded(gone);
        self.drop_unneeded();
        outdated
    }

    /// Drops the nested view.
    pub fn drop_nested(&mut self, nested: View<D>) {
        if self.begun_over.remove(&nested.id).is_some() {
            self.take_reads(nested.reads);
            return;
        }
        let begun = self.forks.end_nested(nested.id);
        // A program may act on how the nested transaction ended, which depends on what that
        // transaction read.
        self.take_reads(nested.reads);
        self.has_stage |= nested.has_stage;
        let left = nested.forks.into_states();
        let begun = begun.iter().map(|state| &state.nodes);
        self.discard_unneeded(left.iter().chain([&nested.nodes]).chain(begun));
        self.drop_unneeded();
    }
}

impl Forks {
    fn end_nested(&mut self, nested: TransactionId) -> Option<State> {
        let place = self.nested.iter().position(|(id, _)| *id == nested)?;
        Some(self.nested.remove(place).1)
    }
}
