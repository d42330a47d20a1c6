//! Joins the changes of a nested transaction with the changes in its outer one since the nested one
//! began.
//!
//! There are three states of one tree: the fork, which is the outer view when the nested
//! transaction began, and the outer and the nested view of now. If one side has changed something
//! since the fork, that side's state is taken. If both have, it is a clash, and nothing is joined. A
//! directory is compared name by name, and its mode, owner and extended attributes together; any
//! other object as a whole, with the number of its names.
//!
//! Invariants
//! 1. An object of the outer and of the nested view has the same node id in both (`same_ids`). In the
//!    fork it has that id too, or holds no changes there.
//! 2. The outer and the nested view keep each node that holds changes and is in the fork. So if a
//!    view lacks a node of the fork, it has not changed that object, nor has the fork.
//! 3. An operation that renames an object, adds a name or removes one also changes the object's
//!    node. So an object that only one side has changed has its names from that side.
//! 4. In the joined nodes the counts, the indexes and the places agree with the entries, every
//!    entry names a node, and every directory is below the root.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Kind, Name};

use crate::ids::NodeId;
use crate::view::node::{DirectoryDelta, Dress, Node, Own, OwnBody};
use crate::view::nodes::Nodes;

/// An object that both sides have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Clash {
    Node(NodeId),
    Entry(NodeId, Name),
}

pub(super) struct JoinStates<'a> {
    pub fork: &'a Nodes,
    pub outer: &'a Nodes,
    pub nested: &'a Nodes,
}

/// Returns which nodes of a state need another id, so that each object of the base has the id that
/// it has in the reference.
pub(super) fn same_ids(state: &Nodes, reference: &Nodes) -> HashMap<NodeId, NodeId> {
    let known = state.by_base.iter().filter_map(|(serial, id)| {
        let there = reference.by_base.get(serial)?;
        (there != id).then_some((*id, *there))
    });
    known.collect()
}

impl JoinStates<'_> {
    pub fn join(&self) -> Result<Nodes, Vec<Clash>> {
        let mut clashes = Vec::new();
        let mut joined = self.outer.clone();
        joined.unlogged = None;
        for id in self.nested.ids() {
            if let (None, Some(node)) = (joined.get(id), self.nested.shared(id)) {
                joined.put(id, node.clone());
            }
        }
        let changed = self.nested.changed.union(&self.fork.changed);
        for id in changed {
            match self.join_own(*id) {
                Ok(own) => set_own(&mut joined, *id, own),
                Err(found) => clashes.extend(found),
            }
        }
        if clashes.is_empty() {
            self.join_places(&mut joined);
            self.join_dying(&mut joined);
            clashes.extend(find_stray(&joined));
        }
        if !clashes.is_empty() {
            clashes.sort();
            clashes.dedup();
            return Err(clashes);
        }
        count(&mut joined);
        Ok(joined)
    }

    /// The changes of a node that the joined view has.
    fn join_own(&self, id: NodeId) -> Result<Option<Arc<Own>>, Vec<Clash>> {
        let (fork, outer) = (self.fork.own(id), self.outer.own(id));
        let Some(node) = self.nested.get(id) else {
            // By the second invariant this does not happen.
            return Err(vec![Clash::Node(id)]);
        };
        let nested = node.own.as_ref();
        if is_same(nested, fork) {
            return Ok(outer.or(nested).cloned());
        }
        if is_same(outer, fork) {
            return Ok(nested.cloned());
        }
        match (outer, nested) {
            (Some(outer), Some(nested)) if node.kind == Kind::Directory => {
                let fork = fork.map(|own| &**own);
                let directory = Directory {
                    id,
                    nested_nodes: self.nested,
                    fork,
                    outer,
                    nested,
                };
                directory.join().map(|own| Some(Arc::new(own)))
            }
            _ => Err(vec![Clash::Node(id)]),
        }
    }

    /// Gives each node a place that it has in the joined tree. An object without any name keeps
    /// its last place.
    fn join_places(&self, joined: &mut Nodes) {
        let mut named = HashMap::new();
        for id in changed_in(joined) {
            let delta = joined.get(id).and_then(Node::directory_delta);
            for (name, entry) in delta.into_iter().flat_map(|delta| &delta.entries) {
                if let Some(now) = entry.now {
                    named.entry(now).or_insert((id, name.clone()));
                }
            }
        }
        let ids: Vec<NodeId> = joined.ids().filter(|id| *id != NodeId::ROOT).collect();
        for id in ids {
            let by_side = self.places(id);
            let by_entry = named.get(&id).cloned();
            let mut all = by_side.iter().cloned().chain(by_entry);
            let valid = all.find(|place| is_valid(joined, id, place));
            let is_there = |(parent, _): &(NodeId, Name)| joined.get(*parent).is_some();
            let last = || by_side.into_iter().find(is_there);
            let Some((parent, name)) = valid.or_else(last) else {
                continue;
            };
            let is_there = joined
                .get(id)
                .is_some_and(|node| node.parent == parent && node.name.as_ref() == Some(&name));
            if !is_there && let Some(node) = joined.get_mut(id) {
                (node.parent, node.name) = (parent, Some(name));
            }
        }
    }

    /// The places that the sides know, first that of the side that has moved the node.
    fn places(&self, id: NodeId) -> Vec<(NodeId, Name)> {
        let place = |nodes: &Nodes| {
            let node = nodes.get(id)?;
            Some((node.parent, node.name.clone()?))
        };
        let (fork, outer, nested) = (place(self.fork), place(self.outer), place(self.nested));
        let is_moved = fork.is_some() && fork != nested;
        match is_moved {
            true => [nested, outer].into_iter().flatten().collect(),
            false => [outer, nested].into_iter().flatten().collect(),
        }
    }

    fn join_dying(&self, joined: &mut Nodes) {
        let (fork, nested) = (&self.fork.dying, &self.nested.dying);
        joined
            .dying
            .retain(|serial, _| nested.contains_key(serial) || !fork.contains_key(serial));
        for (serial, base) in nested {
            if !fork.contains_key(serial) {
                joined.dying.insert(*serial, base.clone());
            }
        }
    }
}

fn set_own(joined: &mut Nodes, id: NodeId, own: Option<Arc<Own>>) {
    let is_same = match (joined.own(id), &own) {
        (None, None) => true,
        (Some(one), Some(two)) => Arc::ptr_eq(one, two),
        _ => false,
    };
    if !is_same && let Some(node) = joined.get_mut(id) {
        node.own = own;
    }
}

fn changed_in(nodes: &Nodes) -> Vec<NodeId> {
    let has_own = |id: &NodeId| nodes.own(*id).is_some();
    nodes.ids().filter(has_own).collect()
}

/// Whether a place's name leads to the node. An entry of the base that has not changed does, as the
/// node was found there.
fn is_valid(nodes: &Nodes, id: NodeId, (parent, name): &(NodeId, Name)) -> bool {
    let Some(parent) = nodes.get(*parent) else {
        return false;
    };
    let delta = parent.directory_delta();
    match delta.and_then(|delta| delta.entries.get(name)) {
        Some(entry) => entry.now == Some(id),
        None => parent.base.is_some(),
    }
}

/// Finds entries that name no node, and directories that are below themselves.
fn find_stray(nodes: &Nodes) -> Vec<Clash> {
    let mut stray = Vec::new();
    for id in changed_in(nodes) {
        let delta = nodes.get(id).and_then(Node::directory_delta);
        for (name, entry) in delta.into_iter().flat_map(|delta| &delta.entries) {
            if entry.now.is_some_and(|now| nodes.get(now).is_none()) {
                stray.push(Clash::Entry(id, name.clone()));
            }
        }
    }
    let mut rooted = HashSet::from([NodeId::ROOT]);
    for id in nodes.ids() {
        let (mut at, mut way) = (id, Vec::new());
        while !rooted.contains(&at) {
            way.push(at);
            let is_new = way.len() <= nodes.len();
            match nodes.get(at) {
                Some(node) if is_new => at = node.parent,
                _ => return vec![Clash::Node(id)],
            }
        }
        rooted.extend(way);
    }
    stray
}

/// Computes the counts and indexes anew from the nodes and entries.
fn count(nodes: &mut Nodes) {
    let ids: Vec<NodeId> = nodes.ids().collect();
    let mut children: HashMap<NodeId, u64> = HashMap::new();
    let mut listed: HashMap<NodeId, u32> = HashMap::new();
    let (mut by_base, mut changed) = (HashMap::new(), BTreeSet::new());
    for id in &ids {
        let Some(node) = nodes.get(*id) else { continue };
        if *id != NodeId::ROOT {
            *children.entry(node.parent).or_default() += 1;
        }
        if let Some(base) = &node.base {
            by_base.insert(base.serial, *id);
        }
        if node.own.is_some() {
            changed.insert(*id);
        }
        let entries = node.directory_delta().map(|delta| delta.entries.values());
        for now in entries.into_iter().flatten().filter_map(|entry| entry.now) {
            *listed.entry(now).or_default() += 1;
        }
    }
    for id in ids {
        let wanted = (
            children.get(&id).copied().unwrap_or(0),
            listed.get(&id).copied().unwrap_or(0),
        );
        let is_right = |node: &Node| (node.children, node.listed) == wanted;
        if !nodes.get(id).is_some_and(is_right)
            && let Some(node) = nodes.get_mut(id)
        {
            (node.children, node.listed) = wanted;
        }
    }
    (nodes.by_base, nodes.changed) = (by_base, changed);
}

/// Whether both are the same changes. Where a staged file is says which contents it has, since one
/// that two states share does not change; its identity may have been found out meanwhile.
fn is_same(one: Option<&Arc<Own>>, two: Option<&Arc<Own>>) -> bool {
    let (one, two) = match (one, two) {
        (None, None) => return true,
        (Some(one), Some(two)) if Arc::ptr_eq(one, two) => return true,
        (Some(one), Some(two)) => (one, two),
        _ => return false,
    };
    let staged = |own: &Own| {
        let staged = own.staged.as_ref();
        staged.map(|staged| (staged.parent, staged.name.clone()))
    };
    let is_same_body = match (&one.body, &two.body) {
        (OwnBody::Unchanged, OwnBody::Unchanged) | (OwnBody::Special, OwnBody::Special) => true,
        (OwnBody::File(one), OwnBody::File(two)) => one == two,
        (OwnBody::Symlink(one), OwnBody::Symlink(two)) => one == two,
        // These are compared by their entries.
        _ => false,
    };
    is_same_body
        && one.attributes == two.attributes
        && one.touched == two.touched
        && one.xattrs == two.xattrs
        && staged(one) == staged(two)
}

/// A directory that both sides have changed.
struct Directory<'a> {
    id: NodeId,
    nested_nodes: &'a Nodes,
    fork: Option<&'a Own>,
    outer: &'a Own,
    nested: &'a Own,
}

impl Directory<'_> {
    fn join(&self) -> Result<Own, Vec<Clash>> {
        let here = self.changed_names(self.outer);
        let there = self.changed_names(self.nested);
        let both = here.intersection(&there);
        let entry = |name: &&Name| Clash::Entry(self.id, (*name).clone());
        let mut clashes: Vec<Clash> = both.map(entry).collect();
        let attributes = (
            self.changes_attributes(self.outer),
            self.changes_attributes(self.nested),
        );
        let removed = (self.removes(self.outer), self.removes(self.nested));
        let is_changed = (
            !here.is_empty() || attributes.0 || removed.0,
            !there.is_empty() || attributes.1 || removed.1,
        );
        if attributes == (true, true) || removed.0 && is_changed.1 || removed.1 && is_changed.0 {
            clashes.push(Clash::Node(self.id));
        }
        if !clashes.is_empty() {
            return Err(clashes);
        }
        if removed.1 {
            return Ok(self.nested.clone());
        }
        if !is_changed.1 {
            return Ok(self.with_times(self.outer.clone()));
        }
        let mut own = self.outer.clone();
        if attributes.1 {
            own.attributes.mode = self.nested.attributes.mode;
            own.attributes.owner = self.nested.attributes.owner;
            own.touched.mode = self.nested.touched.mode;
            own.touched.owner = self.nested.touched.owner;
            own.xattrs = self.nested.xattrs.clone();
        }
        if self.nested.dress == Dress::Outdated {
            own.dress = Dress::Outdated;
        }
        own.attributes.links = self.joined_links();
        own.body = OwnBody::Directory(self.joined_delta(&there));
        Ok(self.with_times(own))
    }

    fn changed_names<'a>(&'a self, side: &'a Own) -> BTreeSet<&'a Name> {
        let all = [self.fork, Some(side)].into_iter().flatten();
        let names = all.filter_map(delta).flat_map(|delta| delta.entries.keys());
        let differs = |name: &&Name| self.fork.and_then(|own| now(own, name)) != now(side, name);
        names.filter(differs).collect()
    }

    fn changes_attributes(&self, side: &Own) -> bool {
        let known = |own: &Own| {
            let (touched, attributes) = (own.touched, &own.attributes);
            let mode = touched.mode.then_some(attributes.mode);
            (mode, touched.owner.then_some(attributes.owner))
        };
        match self.fork {
            Some(fork) => known(fork) != known(side) || fork.xattrs != side.xattrs,
            None => known(side) != (None, None) || !side.xattrs.is_empty(),
        }
    }

    fn removes(&self, side: &Own) -> bool {
        let is_removed = |own: &Own| delta(own).is_some_and(|delta| delta.removed);
        is_removed(side) && !self.fork.is_some_and(is_removed)
    }

    fn joined_delta(&self, changed: &BTreeSet<&Name>) -> DirectoryDelta {
        let mut joined = delta(self.outer).cloned().unwrap_or_default();
        for name in changed {
            match delta(self.nested).and_then(|delta| delta.entries.get(*name)) {
                Some(entry) => joined.entries.insert((*name).clone(), entry.clone()),
                None => joined.entries.remove(*name),
            };
        }
        joined.is_touched |= delta(self.nested).is_some_and(|delta| delta.is_touched);
        // It is read anew when it is needed.
        joined.default_acl = None;
        joined
    }

    /// A directory has a link from each subdirectory, if the file system counts them.
    fn joined_links(&self) -> u32 {
        let (outer, nested) = (self.outer.attributes.links, self.nested.attributes.links);
        if outer <= 1 {
            return outer;
        }
        let gained = match self.fork {
            Some(fork) => i64::from(nested) - i64::from(fork.attributes.links),
            None => self.subdirectories_gained(),
        };
        u32::try_from(i64::from(outer) + gained).unwrap_or(outer)
    }

    /// How many more subdirectories the nested view has than the snapshot.
    fn subdirectories_gained(&self) -> i64 {
        let is_directory = |id| {
            let node = self.nested_nodes.get(id);
            node.is_some_and(|node| node.kind == Kind::Directory)
        };
        let entries = delta(self.nested).map(|delta| delta.entries.values());
        let gained = entries.into_iter().flatten().map(|entry| {
            let before = entry.before.as_ref();
            let had_one = before.is_some_and(|base| base.kind == Kind::Directory);
            i64::from(entry.now.is_some_and(is_directory)) - i64::from(had_one)
        });
        gained.sum()
    }

    /// Times never clash. The later change counts, unless the nested transaction has set a time.
    fn with_times(&self, mut own: Own) -> Own {
        let (outer, nested) = (&self.outer.attributes, &self.nested.attributes);
        let stamp = self.nested.stamp.map(|stamp| stamp.modified());
        let before = self.fork.map(|own| own.attributes.modified).or(stamp);
        own.attributes.modified = if Some(nested.modified) == before {
            outer.modified
        } else if Some(outer.modified) == before || self.nested.touched.modified {
            nested.modified
        } else {
            outer.modified.max(nested.modified)
        };
        let is_read = |own: &Own| own.touched.accessed.then_some(own.attributes.accessed);
        if is_read(self.nested).is_some() && is_read(self.nested) != self.fork.and_then(is_read) {
            own.attributes.accessed = nested.accessed;
        }
        own.attributes.changed = outer.changed.max(nested.changed);
        own.touched.modified |= self.nested.touched.modified;
        own.touched.accessed |= self.nested.touched.accessed;
        own
    }
}

fn delta(own: &Own) -> Option<&DirectoryDelta> {
    match &own.body {
        OwnBody::Directory(delta) => Some(delta),
        _ => None,
    }
}

/// The object that a name leads to; `None`: the same as in the snapshot.
fn now(own: &Own, name: &Name) -> Option<Option<NodeId>> {
    Some(delta(own)?.entries.get(name)?.now)
}
