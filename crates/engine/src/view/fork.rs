//! Other states of a view: its savepoints, and the views of transactions that
//! are nested in it.
//!
//! A state is a value ([`Nodes`]) together with staged files. Saving a state or
//! beginning a nested transaction clones the value. The states share staged files, and
//! one that changes a shared file first copies it. So nesting costs time for each node
//! of the view, but none for contents.
//!
//! While a nested view is open, names in the outer one do not change. Contents and
//! attributes of files may, since a command's output may be redirected to one. The
//! commit of the nested view puts its nodes in place of the outer one's; nothing on
//! disk moves.
//!
//! Invariants
//! 1. While there is another state, no node id and no slot is used again: a node that
//!    two states have is the same object in both.
//! 2. A staged file that another state may need is neither changed nor removed.
//! 3. A nested view keeps each node that holds changes and that the outer view may
//!    know, since its nodes may replace the outer view's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Name, Result};

use super::View;
use super::node::{DirectoryDelta, Node, Staged, StagedParent};
use super::nodes::Nodes;
use super::numbers::ForkPoint;
use crate::ids::{NodeId, TransactionId};
use crate::view::read_set::ReadSet;

/// In a savepoint, this many unchanged nodes count as one changed object.
const KNOWN_PER_OBJECT: usize = 32;
/// This many objects, names and runs of pages that were read also count as one.
const READS_PER_OBJECT: usize = 4;

struct State {
    nodes: Nodes,
    point: ForkPoint,
}

/// The other states, from the oldest to the newest: the outer view when this one began,
/// savepoints, and this view when the nested one began.
#[derive(Default)]
pub(super) struct Forks {
    outer: Option<ForkPoint>,
    savepoints: Vec<(Vec<u8>, State)>,
    nested: Option<(TransactionId, State)>,
}

impl Forks {
    fn newest(&self) -> Option<ForkPoint> {
        let nested = self.nested.as_ref().map(|(_, state)| state.point);
        let saved = || self.savepoints.last().map(|(_, state)| state.point);
        nested.or_else(saved).or(self.outer)
    }

    /// What the savepoints keep, counted in changed objects.
    fn kept_objects(&self) -> u64 {
        let kept = |nodes: &Nodes| 1 + nodes.changed.len() + nodes.len() / KNOWN_PER_OBJECT;
        let saved = self.savepoints.iter().map(|(_, state)| kept(&state.nodes));
        saved.sum::<usize>() as u64
    }

    fn states(&self) -> impl Iterator<Item = &Nodes> {
        let saved = self.savepoints.iter().map(|(_, state)| &state.nodes);
        saved.chain(self.nested.iter().map(|(_, state)| &state.nodes))
    }
}

/// What caches of a view must drop, since a rollback or a nested commit changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outdated {
    /// A node's attributes, contents or listing.
    Node(NodeId),
    /// The node that a name leads to.
    Entry(NodeId, Name),
}

impl<D: Disk> View<D> {
    /// What the view makes the engine remember, counted in changed objects.
    pub fn kept_objects(&self) -> u64 {
        let reads = self.reads.as_ref().map_or(0, ReadSet::size);
        let changed = self.nodes.changed.len() + reads / READS_PER_OBJECT;
        changed as u64 + self.forks.kept_objects()
    }

    pub fn nested(&self) -> Option<TransactionId> {
        let over_upper = self.begun_over.as_ref().map(|begun| begun.nested);
        let nested = self.forks.nested.as_ref().map(|(id, _)| *id);
        nested.or(over_upper)
    }

    /// Fails while a nested transaction is open: names must not change then.
    pub fn refuse_while_nested(&self) -> Result<()> {
        match self.nested() {
            Some(_) => Err(Errno::BUSY),
            None => Ok(()),
        }
    }

    pub(super) fn is_forked(&self) -> bool {
        self.forks.newest().is_some()
    }

    pub(super) fn new_id(&mut self) -> NodeId {
        let reused = if self.is_forked() {
            None
        } else {
            self.free.pop()
        };
        reused.unwrap_or_else(|| self.numbers.new_node())
    }

    /// See the second invariant.
    pub(super) fn is_shared(&self, staged: &Staged) -> bool {
        let newest = self.forks.newest();
        newest.is_some_and(|point| point.is_after(staged))
    }

    /// See the third invariant.
    pub(super) fn is_kept_for_outer(&self, id: NodeId, node: &Node) -> bool {
        self.forks.outer.is_some_and(|point| {
            node.own.is_some() && (node.base.is_some() || id.0 < point.next_node)
        })
    }

    fn state(&self) -> State {
        State {
            nodes: self.unlogged_nodes(),
            point: self.numbers.fork_point(),
        }
    }

    /// Makes what the view has now that of its outer transaction.
    pub(super) fn fork_from_here(&mut self) {
        self.forks.outer = Some(self.numbers.fork_point());
    }

    /// The nodes, for a state that has no view log.
    pub(super) fn unlogged_nodes(&self) -> Nodes {
        let mut nodes = self.nodes.clone();
        nodes.unlogged = None;
        nodes
    }

    /// Begins a view over this one.
    pub fn begin_nested(&mut self, id: TransactionId) -> View<D> {
        let state = self.state();
        let nested = View {
            core: self.core.clone(),
            id,
            at: self.at,
            landed: self.landed.clone(),
            nodes: self.unlogged_nodes(),
            lookups: Vec::new(),
            holes_read: Default::default(),
            generations: Vec::new(),
            lower: false,
            begun_over: None,
            frozen: false,
            restricted_to: self.restricted_to.clone(),
            restored: self.restored.clone(),
            free: Vec::new(),
            reusable_from: self.reusable_from,
            has_placed: self.has_placed,
            numbers: self.numbers.clone(),
            forks: Forks {
                outer: Some(state.point),
                ..Forks::default()
            },
            reads: self.reads.as_ref().map(|_| ReadSet::default()),
            stage_of: self.stage_of,
            has_stage: self.has_stage,
            is_written_ahead: false,
            log: None,
            next_inode: self.next_inode,
        };
        self.forks.nested = Some((id, state));
        nested
    }

    /// Returns the paths that have changed both here and in the nested view since it
    /// began.
    pub fn conflicts_with_nested(&self, nested: &View<D>) -> Vec<Vec<u8>> {
        let Some((_, begun)) = &self.forks.nested else {
            return Vec::new();
        };
        let changed = self.changed_since(&begun.nodes);
        let is_conflict = |id: &NodeId| {
            let base = self.nodes.get(*id).and_then(|node| node.base.as_ref());
            let known = base.and_then(|base| nested.nodes.by_base.get(&base.serial));
            let there = known.copied().unwrap_or(*id);
            !nested.nodes.is_same_own(&begun.nodes, there)
        };
        let conflicts = changed.into_iter().filter(is_conflict);
        conflicts.map(|id| self.path(id)).collect()
    }

    fn changed_since(&self, begun: &Nodes) -> Vec<NodeId> {
        let changed = self.changed_nodes();
        changed
            .filter(|id| !self.nodes.is_same_own(begun, *id))
            .collect()
    }

    /// Makes the nested view's changes this view's own.
    pub fn take_nested(&mut self, nested: View<D>) -> Vec<Outdated> {
        let Some((_, begun)) = self.forks.nested.take() else {
            return Vec::new();
        };
        let changed_here = self.changed_since(&begun.nodes);
        self.take_reads(nested.reads);
        self.has_stage |= nested.has_stage;
        self.next_inode = nested.next_inode;
        let left: Vec<Nodes> = nested.forks.into_states();
        let old = self.replace(nested.nodes, &changed_here, &HashMap::new());
        let outdated = self.outdated(&old);
        self.discard_unneeded(left.iter().chain([&old, &begun.nodes]));
        self.drop_unneeded();
        outdated
    }

    /// Drops the nested view.
    pub fn drop_nested(&mut self, nested: View<D>) {
        if self.begun_over.take().is_some() {
            self.take_reads(nested.reads);
            return;
        }
        let begun = self.forks.nested.take();
        // A program may act on how the nested transaction ended, and so on what it
        // read.
        self.take_reads(nested.reads);
        self.has_stage |= nested.has_stage;
        let left = nested.forks.into_states();
        let begun = begun.iter().map(|(_, state)| &state.nodes);
        self.discard_unneeded(left.iter().chain([&nested.nodes]).chain(begun));
        self.drop_unneeded();
    }

    /// Saves the present state under a name. Replaces an older savepoint of that name.
    pub fn set_savepoint(&mut self, name: &[u8]) {
        self.release_savepoint(name);
        let state = self.state();
        self.forks.savepoints.push((name.to_vec(), state));
    }

    pub fn savepoints(&self) -> Vec<Vec<u8>> {
        let savepoints = self.forks.savepoints.iter();
        savepoints.map(|(name, _)| name.clone()).collect()
    }

    fn release_savepoint(&mut self, name: &[u8]) {
        let mut all = std::mem::take(&mut self.forks.savepoints);
        let found = all.iter().position(|(known, _)| known == name);
        let released = found.map(|place| all.remove(place));
        self.forks.savepoints = all;
        self.discard_unneeded(released.iter().map(|(_, state)| &state.nodes));
    }

    pub fn release_savepoints(&mut self) {
        let released = std::mem::take(&mut self.forks.savepoints);
        if released.is_empty() {
            return;
        }
        self.discard_unneeded(released.iter().map(|(_, state)| &state.nodes));
        self.drop_unneeded();
    }

    /// Goes back to a savepoint. It stays; later ones are dropped. Returns `None` if
    /// there is no savepoint of that name.
    pub fn roll_back(&mut self, name: &[u8]) -> Option<Vec<Outdated>> {
        let mut savepoints = self.forks.savepoints.iter();
        let place = savepoints.position(|(known, _)| known == name)?;
        let later = self.forks.savepoints.split_off(place + 1);
        let revived = self.revived(&self.forks.savepoints[place].1.nodes);
        for (_, state) in &mut self.forks.savepoints {
            state.nodes.renumber(&revived);
        }
        let saved = self.forks.savepoints[place].1.nodes.clone();
        let old = self.replace(saved, &[], &revived);
        let outdated = self.outdated(&old);
        let later = later.iter().map(|(_, state)| &state.nodes);
        self.discard_unneeded(later.chain([&old]));
        self.drop_unneeded();
        Some(outdated)
    }

    /// Returns new ids for removed directories that come back. While a process is in a
    /// directory that the kernel has removed, the kernel lets nothing into it.
    pub(super) fn revived(&self, saved: &Nodes) -> HashMap<NodeId, NodeId> {
        let is_removed = |id: &NodeId| {
            let node = self.nodes.get(*id);
            node.is_some_and(Node::is_removed_directory)
        };
        let is_back = |id: &NodeId| {
            let node = saved.get(*id);
            node.is_some_and(|node| !node.is_removed_directory())
        };
        let removed = self.changed_nodes().filter(is_removed);
        let back = removed.filter(is_back);
        back.map(|id| (id, self.numbers.new_node())).collect()
    }

    /// Replaces the present nodes. Nodes that the kernel knows keep their ids, except
    /// those in `revived`, which get new ones. The present nodes in `kept` keep their
    /// changes.
    pub(super) fn replace(
        &mut self,
        mut new: Nodes,
        kept: &[NodeId],
        revived: &HashMap<NodeId, NodeId>,
    ) -> Nodes {
        self.core.handles.remove_transaction(self.id);
        let known = self.known_nodes().into_iter().chain(kept.to_vec());
        let is_missing = |id: &NodeId| new.get(*id).is_none() && !revived.contains_key(id);
        let missing: Vec<NodeId> = known.filter(is_missing).collect();
        let mut new_ids = HashMap::new();
        for id in &missing {
            let base = self.nodes.get(*id).and_then(|node| node.base.as_ref());
            if let Some(there) = base.and_then(|base| new.by_base.get(&base.serial)) {
                new_ids.insert(*there, *id);
            }
        }
        new.renumber(&new_ids);
        // A state of the view may have been saved before the view had a log.
        new.unlogged = self.nodes.unlogged.take();
        new.note_everything();
        let old = std::mem::replace(&mut self.nodes, new);
        let origins = old.origins();
        for id in missing {
            self.restore(&old, id, &origins);
        }
        for id in kept {
            if let (Some(own), Some(node)) = (old.own(*id), self.nodes.get_mut(*id)) {
                node.own = Some(own.clone());
                self.nodes.changed.insert(*id);
            }
        }
        old
    }

    /// Keeps a node of the base that the kernel knows, with the snapshot's state.
    fn restore(&mut self, old: &Nodes, id: NodeId, origins: &HashMap<u64, (NodeId, Name)>) {
        let Some(node) = old.get(id) else { return };
        let Some(base) = &node.base else { return };
        if self.nodes.get(id).is_some() {
            return;
        }
        let here = || Some((node.parent, node.name.clone()?));
        let original = origins.get(&base.serial).cloned();
        let place = node.own().and(original).or_else(here);
        let parent = match &place {
            Some((parent, _)) => self.restored_parent(old, *parent, origins),
            None => NodeId::ROOT,
        };
        self.nodes.by_base.insert(base.serial, id);
        let restored = Node {
            kind: node.kind,
            base: Some(base.clone()),
            parent,
            name: place.map(|(_, name)| name),
            reported: node.reported,
            children: 0,
            listed: 0,
            own: None,
        };
        self.nodes.put(id, Arc::new(restored));
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children += 1;
        }
    }

    fn restored_parent(
        &mut self,
        old: &Nodes,
        id: NodeId,
        origins: &HashMap<u64, (NodeId, Name)>,
    ) -> NodeId {
        if self.nodes.get(id).is_some() {
            return id;
        }
        let base = old.get(id).and_then(|node| node.base.as_ref());
        let by_base = base.and_then(|base| self.nodes.by_base.get(&base.serial));
        if let Some(known) = by_base {
            return *known;
        }
        self.restore(old, id, origins);
        self.nodes.get(id).map_or(NodeId::ROOT, |_| id)
    }

    /// What differs from the old nodes, as far as the kernel knows it.
    pub(super) fn outdated(&self, old: &Nodes) -> Vec<Outdated> {
        let mut outdated = Vec::new();
        for id in self.known_nodes() {
            if self.nodes.get(id).is_some() && self.nodes.is_same_own(old, id) {
                continue;
            }
            outdated.push(Outdated::Node(id));
            let before = old.get(id).and_then(Node::directory_delta);
            let after = self.nodes.get(id).and_then(Node::directory_delta);
            let names = changed_names(before, after).into_iter();
            outdated.extend(names.map(|name| Outdated::Entry(id, name)));
        }
        outdated
    }

    /// Removes the staged objects of states that are gone, except those that a
    /// remaining state needs.
    pub(super) fn discard_unneeded<'a>(&mut self, gone: impl Iterator<Item = &'a Nodes>) {
        let gone: HashSet<(Staged, atomdir_disk::Kind)> = gone
            .flat_map(Nodes::staged)
            .map(|(staged, kind)| (staged.clone(), kind))
            .collect();
        if gone.is_empty() {
            return;
        }
        let place = |staged: &Staged| (staged.parent, staged.name.clone());
        let states = self.forks.states().chain([&self.nodes]);
        let needed: HashSet<(StagedParent, Name)> = states
            .flat_map(Nodes::staged)
            .map(|(staged, _)| place(staged))
            .collect();
        for (staged, kind) in gone {
            let is_outer = self
                .forks
                .outer
                .is_some_and(|point| point.is_after(&staged));
            if !needed.contains(&place(&staged)) && !is_outer {
                self.remove_staged(&staged, kind);
            }
        }
    }

    /// Drops all nodes that are not needed, and frees their ids if there is no other
    /// state.
    pub(super) fn drop_unneeded(&mut self) {
        let ids: Vec<NodeId> = self.nodes.ids().collect();
        for id in ids {
            self.drop_if_unneeded(id);
        }
        if self.is_forked() {
            return;
        }
        let end = self.numbers.fork_point().next_node;
        let is_free = |id: &NodeId| self.nodes.get(*id).is_none() && !self.is_known(*id);
        self.free = (self.reusable_from.0..end)
            .map(NodeId)
            .filter(is_free)
            .collect();
    }
}

impl Forks {
    fn into_states(self) -> Vec<Nodes> {
        let saved = self.savepoints.into_iter().map(|(_, state)| state.nodes);
        saved.collect()
    }
}

fn changed_names(before: Option<&DirectoryDelta>, after: Option<&DirectoryDelta>) -> Vec<Name> {
    let named = |delta: Option<&DirectoryDelta>, name: &Name| {
        delta.and_then(|delta| delta.entries.get(name).map(|entry| entry.now))
    };
    let all = [before, after].into_iter().flatten();
    let names: HashSet<&Name> = all.flat_map(|delta| delta.entries.keys()).collect();
    let differs = |name: &&Name| named(before, name) != named(after, name);
    names.into_iter().filter(differs).cloned().collect()
}
