//! Lists the view's changes by path.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, Result};
use atomdir_types::path::{PathTable, sort_by_path};
use atomdir_types::{Change, ChangeLine, TreePath};

use super::View;
use super::node::{EntryDelta, Node, OwnBody, Touched};
use super::part::Part;
use super::paths::Paths;
use crate::base::Base;
use crate::ids::NodeId;

/// The old names that objects of the base have lost, by the object's serial.
type Vacated = HashMap<u64, Vec<LostName>>;

struct LostName {
    path: TreePath,
    base: Arc<Base>,
    /// Whether another object has the name in the same directory now.
    is_replaced: bool,
}

/// The line of a name that an object has now.
struct NamedLine {
    line: ChangeLine<TreePath>,
    now: NodeId,
    kind: Kind,
    /// The object of the base that had the name.
    before: Option<Arc<Base>>,
}

#[derive(Default)]
struct NamedLines {
    all: Vec<NamedLine>,
    paths: PathTable,
    /// Places in `all`, by the numbers of the paths.
    places: HashMap<u32, usize>,
    /// Whether the path with this number is in a renamed directory, where that is known.
    in_renamed: HashMap<u32, bool>,
}

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
    pub fn changes(&mut self) -> Result<Vec<ChangeLine<TreePath>>> {
        let put_back = self.put_back()?;
        self.changes_but(&put_back, None)
    }

    /// The changes in a part.
    pub fn changes_in(&mut self, part: &Part) -> Result<Vec<ChangeLine<TreePath>>> {
        let put_back = self.put_back()?;
        self.changes_but(&put_back, Some(part))
    }

    /// Like [`changes`](Self::changes), without the objects that were put back, and perhaps
    /// only those of a part.
    pub fn changes_but(
        &mut self,
        put_back: &BTreeSet<NodeId>,
        part: Option<&Part>,
    ) -> Result<Vec<ChangeLine<TreePath>>> {
        let mut paths = Paths::default();
        let mut named = NamedLines::default();
        let mut vacated = self.vacated(&mut paths, part)?;
        for (directory, name, entry) in self.entry_deltas(part)? {
            if let Some(now) = entry.now {
                let path = paths.entry(self, directory, name);
                let line = self.entry_line(path, entry, now, &mut vacated)?;
                // In a directory that was made again an object may have its old path.
                if line.from.as_ref() != Some(&line.path) {
                    named.push(NamedLine {
                        line,
                        now,
                        kind: self.node(now)?.kind,
                        before: entry.before.clone(),
                    });
                }
            }
        }
        let lost = vacated.into_values().flatten();
        let lost = lost.filter(|lost| !lost.is_replaced);
        let mut lines: Vec<_> = lost.filter_map(|lost| named.lose(lost)).collect();
        for NamedLine {
            line, now, before, ..
        } in named.all
        {
            let is_alike = match (line.change, before) {
                (Change::Modified, Some(before)) => self.is_alike(now, &before)?,
                _ => false,
            };
            if !is_alike {
                lines.push(line);
            }
        }
        for id in self.changed_nodes() {
            let is_meant = part.is_none_or(|part| part.has_node(id));
            if is_meant && self.node(id)?.is_modified() && !put_back.contains(&id) {
                lines.push(line(Change::Modified, paths.node(self, id)));
            }
        }
        sort_by_path(&mut lines, |line| &line.path, |line| line.change);
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

    fn vacated(&self, paths: &mut Paths, part: Option<&Part>) -> Result<Vacated> {
        let mut vacated = Vacated::new();
        for (directory, name, entry) in self.entry_deltas(part)? {
            if let Some(before) = &entry.before {
                let path = paths.old(self, before, directory, name);
                vacated.entry(before.serial).or_default().push(LostName {
                    path,
                    base: before.clone(),
                    is_replaced: entry.now.is_some(),
                });
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
        path: TreePath,
        entry: &EntryDelta,
        now: NodeId,
        vacated: &mut Vacated,
    ) -> Result<ChangeLine<TreePath>> {
        let node = self.node(now)?;
        let moved_from = node
            .base
            .as_ref()
            .and_then(|base| vacated.get_mut(&base.serial)?.pop());
        if let Some(LostName { path: from, .. }) = moved_from {
            return Ok(ChangeLine {
                change: Change::Renamed,
                path,
                from: Some(from),
            });
        }
        let change = match &entry.before {
            None => Change::Added,
            Some(before) => replacement(before.kind, node.kind),
        };
        Ok(line(change, path))
    }
}

impl NamedLines {
    fn push(&mut self, named: NamedLine) {
        if let Some(path) = self.paths.add(&named.line.path) {
            self.places.insert(path, self.all.len());
        }
        self.all.push(named);
    }

    /// Returns the line of an object that has lost its name. If the path has a new object, since
    /// its directory was removed and made again, that is one change.
    fn lose(&mut self, lost: LostName) -> Option<ChangeLine<TreePath>> {
        let path = self.paths.add(&lost.path)?;
        let Some(&place) = self.places.get(&path) else {
            return Some(line(Change::Deleted, lost.path));
        };
        // What is new in a renamed directory is known by the directory's old path.
        if !self.is_in_renamed(path) {
            let named = &mut self.all[place];
            if named.line.change == Change::Added {
                named.line.change = replacement(lost.base.kind, named.kind);
                named.before = Some(lost.base);
            }
        }
        None
    }

    fn is_in_renamed(&mut self, path: u32) -> bool {
        let mut asked = Vec::new();
        let mut at = path;
        let is_in = loop {
            if let Some(known) = self.in_renamed.get(&at) {
                break *known;
            }
            asked.push(at);
            let Some((Some(above), _)) = self.paths.get(at) else {
                break false;
            };
            let place = self.places.get(above);
            if place.is_some_and(|place| self.all[*place].line.change == Change::Renamed) {
                break true;
            }
            at = *above;
        };
        self.in_renamed
            .extend(asked.into_iter().map(|path| (path, is_in)));
        is_in
    }
}

fn replacement(before: Kind, now: Kind) -> Change {
    match before == now {
        true => Change::Modified,
        false => Change::TypeChanged,
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

fn line(change: Change, path: TreePath) -> ChangeLine<TreePath> {
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
