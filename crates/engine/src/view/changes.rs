//! Lists the view's changes by path.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, Result};
use atomdir_types::{Change, ChangeLine};

use super::View;
use super::node::{EntryDelta, Node, OwnBody, Touched};
use super::part::Part;
use crate::base::Base;
use crate::ids::NodeId;

/// The old names that objects of the base have lost, by the object's serial, each
/// with whether another object has that name now.
type Vacated = HashMap<u64, Vec<(Vec<u8>, bool)>>;

impl<D: Disk> View<D> {
    /// The node's path in the view, or its last path.
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = id;
        while let Ok(Node {
            parent,
            name: Some(name),
            ..
        }) = self.node(at)
        {
            names.push(name.as_bytes());
            at = *parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    pub fn path_of_entry(&self, directory: NodeId, name: &Name) -> Vec<u8> {
        join(&self.path(directory), name)
    }

    /// The changes that a commit would land, sorted by path.
    pub fn changes(&mut self) -> Result<Vec<ChangeLine>> {
        let put_back = self.put_back()?;
        self.changes_but(&put_back, None)
    }

    /// The changes in a part.
    pub fn changes_in(&mut self, part: &Part) -> Result<Vec<ChangeLine>> {
        let put_back = self.put_back()?;
        self.changes_but(&put_back, Some(part))
    }

    /// Like [`changes`](Self::changes), without the objects that were put back, and perhaps
    /// only those of a part.
    pub fn changes_but(
        &self,
        put_back: &BTreeSet<NodeId>,
        part: Option<&Part>,
    ) -> Result<Vec<ChangeLine>> {
        let mut lines = Vec::new();
        let mut vacated = self.vacated(part)?;
        for (directory, name, entry) in self.entry_deltas(part)? {
            if let Some(now) = entry.now {
                let path = self.path_of_entry(directory, name);
                lines.push(self.entry_line(path, entry, now, &mut vacated)?);
            }
        }
        for (_, paths) in vacated {
            let removed = paths.into_iter().filter(|(_, replaced)| !replaced);
            lines.extend(removed.map(|(path, _)| line(Change::Deleted, path)));
        }
        for id in self.changed_nodes() {
            let is_meant = part.is_none_or(|part| part.has_node(id));
            if is_meant && self.node(id)?.is_modified() && !put_back.contains(&id) {
                lines.push(line(Change::Modified, self.path(id)));
            }
        }
        lines.sort_by(|a, b| (&a.path, a.change).cmp(&(&b.path, b.change)));
        Ok(lines)
    }

    fn entry_deltas(&self, part: Option<&Part>) -> Result<Vec<(NodeId, &Name, &EntryDelta)>> {
        let mut deltas = Vec::new();
        for id in self.changed_nodes() {
            if let Some(delta) = self.node(id)?.directory_delta() {
                let entries = delta.entries.iter();
                let meant =
                    entries.filter(|(name, _)| part.is_none_or(|part| part.has_entry(id, name)));
                deltas.extend(meant.map(|(name, entry)| (id, name, entry)));
            }
        }
        Ok(deltas)
    }

    fn vacated(&self, part: Option<&Part>) -> Result<Vacated> {
        let mut vacated = Vacated::new();
        for (directory, name, entry) in self.entry_deltas(part)? {
            if let Some(before) = &entry.before {
                let path = self.old_path(before, directory, name);
                vacated
                    .entry(before.serial)
                    .or_default()
                    .push((path, entry.now.is_some()));
            }
        }
        Ok(vacated)
    }

    /// The old path of a name in a directory that may itself have been moved in the
    /// view.
    pub(super) fn old_path(&self, before: &Arc<Base>, directory: NodeId, name: &Name) -> Vec<u8> {
        let above = self
            .node(directory)
            .ok()
            .and_then(|node| node.base.as_ref());
        match above.and_then(|above| above.path()) {
            Some(above) => join(&above, name),
            None => before
                .path()
                .unwrap_or_else(|| self.path_of_entry(directory, name)),
        }
    }

    fn entry_line(
        &self,
        path: Vec<u8>,
        entry: &EntryDelta,
        now: NodeId,
        vacated: &mut Vacated,
    ) -> Result<ChangeLine> {
        let node = self.node(now)?;
        let moved_from = node
            .base
            .as_ref()
            .and_then(|base| vacated.get_mut(&base.serial)?.pop());
        if let Some((from, _)) = moved_from {
            return Ok(ChangeLine {
                change: Change::Renamed,
                path,
                from: Some(from),
            });
        }
        let change = match &entry.before {
            None => Change::Added,
            Some(before) if before.kind == node.kind => Change::Modified,
            Some(_) => Change::TypeChanged,
        };
        Ok(line(change, path))
    }
}

impl Node {
    /// Whether this is an object of the base whose contents or attributes were
    /// changed, even if they were put back since.
    pub(crate) fn is_modified(&self) -> bool {
        let (Some(own), Some(_)) = (&self.own, &self.base) else {
            return false;
        };
        let contents = self.kind == Kind::File && !matches!(own.body, OwnBody::Unchanged);
        let attributes = own.touched != Touched::default() || !own.xattrs.is_empty();
        own.attributes.links > 0 && (contents || attributes)
    }
}

fn line(change: Change, path: Vec<u8>) -> ChangeLine {
    ChangeLine {
        change,
        path,
        from: None,
    }
}

fn join(above: &[u8], name: &Name) -> Vec<u8> {
    if above.is_empty() {
        name.as_bytes().to_vec()
    } else {
        [above, name.as_bytes()].join(&b'/')
    }
}
