//! Other states of a view: its savepoints, and the views of transactions that
//! are nested in it.
//!
//! A state is a value ([`Nodes`]) together with staged files. Saving a state or
//! beginning a nested transaction clones the value. The states share staged files, and
//! one that changes a shared file first copies it. So nesting costs time for each node
//! of the view, but none for contents.
//!
//! Several nested views can be open at the same time. For each the outer view keeps the
//! fork: its own state when the nested one began. The commit of a nested view compares
//! both views with the fork and joins the changes (`join`); nothing on disk moves. Of
//! nested transactions that change the same thing the first to commit wins, and the
//! others have a conflict. `apart` makes a second view of the state that stays independent of it.
//!
//! While a nested view is open, names in the outer one change only by nested commits.
//! Contents and attributes may change, since a command's output may be redirected to a
//! file.
//!
//! Invariants
//! 1. While there is another state, no node id and no slot is used again: a node that
//!    two states have is the same object in both. Views that share a staging directory
//!    take ids, slots and inode numbers from the same counters.
//! 2. A staged file that another state may need is neither changed nor removed. A slot up to that
//!    of the newest fork or savepoint may be shared, a later one is not. An open nested view shares
//!    only staged files that are in its fork.
//! 3. A nested view keeps each node that holds changes and that the outer view may know. An outer
//!    view keeps each node that holds changes while any view is nested in it. So both views show
//!    the later state of every changed object of the fork.
//! 4. A nested commit that has a conflict changes neither view.

mod apart;
mod join;
mod nested;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Name};

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
/// savepoints, and this view when each of the nested ones began.
#[derive(Default)]
pub(super) struct Forks {
    outer: Option<ForkPoint>,
    savepoints: Vec<(Vec<u8>, State)>,
    nested: Vec<(TransactionId, State)>,
    /// Directories that a rollback has given new ids, each with its first id.
    revived: HashMap<NodeId, NodeId>,
}

impl Forks {
    fn newest(&self) -> Option<ForkPoint> {
        let nested = self.nested.last().map(|(_, state)| state.point);
        let saved = || self.savepoints.last().map(|(_, state)| state.point);
        nested.or_else(saved).or(self.outer)
    }

    /// The size of the savepoints, counted in changed objects.
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

/// Data that caches of a view must drop, since a rollback or a nested commit changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outdated {
    /// A node's attributes, contents or listing.
    Node(NodeId),
    /// The node that a name leads to.
    Entry(NodeId, Name),
}

impl<D: Disk> View<D> {
    /// The memory that the view takes, counted in changed objects.
    pub fn kept_objects(&self) -> u64 {
        let reads = self.reads.as_ref().map_or(0, ReadSet::size);
        let changed = self.nodes.changed.len() + reads / READS_PER_OBJECT;
        changed as u64 + self.forks.kept_objects()
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
    pub(super) fn is_kept_for_others(&self, id: NodeId, node: &Node) -> bool {
        let may_know = |point: ForkPoint| node.base.is_some() || id.0 < point.next_node;
        let is_kept = !self.forks.nested.is_empty() || self.forks.outer.is_some_and(may_know);
        is_kept && node.own.is_some()
    }

    fn state(&self) -> State {
        State {
            nodes: self.unlogged_nodes(),
            point: self.numbers.fork_point(),
        }
    }

    /// Makes the view's present state the fork: it counts as the state of the outer transaction.
    pub(super) fn fork_from_here(&mut self) {
        self.forks.outer = Some(self.numbers.fork_point());
    }

    /// The nodes, for a state that has no view log.
    pub(super) fn unlogged_nodes(&self) -> Nodes {
        let mut nodes = self.nodes.clone();
        nodes.unlogged = None;
        nodes
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
        self.forks.note_revived(&revived);
        let saved = self.forks.savepoints[place].1.nodes.clone();
        let old = self.replace(saved, &revived);
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
    /// those in `revived`, which get new ones.
    pub(super) fn replace(&mut self, mut new: Nodes, revived: &HashMap<NodeId, NodeId>) -> Nodes {
        let known = self.known_nodes().into_iter();
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
        let old = self.put_in_place(new);
        let origins = old.origins();
        for id in missing {
            self.restore(&old, id, &origins);
        }
        old
    }

    fn put_in_place(&mut self, mut new: Nodes) -> Nodes {
        self.core.handles.remove_transaction(self.id);
        // A state of the view may have been saved before the view had a log.
        new.unlogged = self.nodes.unlogged.take();
        new.note_everything();
        std::mem::replace(&mut self.nodes, new)
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
            is_watched: node.is_watched,
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

    /// The differences from the old nodes, as far as the kernel knows these objects.
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
    fn note_revived(&mut self, revived: &HashMap<NodeId, NodeId>) {
        for (old, new) in revived {
            let first = self.revived.get(old).copied().unwrap_or(*old);
            self.revived.insert(*new, first);
        }
    }

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
