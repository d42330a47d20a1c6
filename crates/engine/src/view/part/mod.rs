//! A part of a view's changes: to commit it and keep the rest open, or to drop it.
//!
//! A part is chosen by paths. Some changes make no sense without others, so the part grows
//! until nothing in it lacks what it needs (a path is any name of an object, see `choose`):
//!
//! - All entries that an object loses or gets go together, and with them the object's own changes:
//!   the two ends of a rename, the names of a file, the object that a name leads to now and the one
//!   before. The two inodes of a file that an undo gives another one count as one object.
//! - A SQLite database and its logs go together.
//! - A removed directory goes with everything that was taken out of it.
//! - A change needs every entry of the difference on its path: the new or renamed
//!   directories above it.
//!
//! A committed part is closed under these needs. If a part is dropped, the changes that stay are
//! closed: every change that needs something in the part is dropped, too.
//!
//! Invariant: both the part and the rest are differences by themselves. Over the base, the
//! rest is the same tree as before, once the part is in the base.

mod choose;
mod drop;
mod land;
pub(crate) use land::LandedPart;
mod unlink;

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Disk, Errno, Kind, Name};

use super::View;
use super::node::Node;
use crate::database;
use crate::ids::NodeId;

/// One change, as far as it can be separated from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item {
    /// What an object itself is: its contents and attributes, and whether it exists.
    Node(NodeId),
    Entry(NodeId, Name),
    /// The names of an object of the base, by its serial.
    Base(u64),
}

/// Changes of a view that go together.
#[derive(Debug, Default)]
pub(crate) struct Part {
    items: HashSet<Item>,
}

impl Part {
    /// Leaves out new objects that nothing else in the part needs.
    pub fn leave_out<'a, D: Disk>(
        &mut self,
        paths: impl Iterator<Item = &'a Vec<u8>>,
        view: &View<D>,
    ) {
        let paths: HashSet<&Vec<u8>> = paths.collect();
        if paths.is_empty() {
            return;
        }
        self.items.retain(|item| match item {
            Item::Node(id) => !paths.contains(&view.path(*id)),
            Item::Entry(directory, name) => !paths.contains(&view.path_of_entry(*directory, name)),
            Item::Base(_) => true,
        });
    }

    pub fn has_node(&self, id: NodeId) -> bool {
        self.items.contains(&Item::Node(id))
    }

    pub fn has_entry(&self, directory: NodeId, name: &Name) -> bool {
        self.items.contains(&Item::Entry(directory, name.clone()))
    }

    pub fn has_base(&self, serial: u64) -> bool {
        self.items.contains(&Item::Base(serial))
    }

    pub fn nodes(&self) -> Vec<NodeId> {
        let nodes = self.items.iter().filter_map(|item| match item {
            Item::Node(id) => Some(*id),
            _ => None,
        });
        let mut nodes: Vec<NodeId> = nodes.collect();
        nodes.sort();
        nodes
    }

    fn entries(&self) -> impl Iterator<Item = (NodeId, &Name)> {
        self.items.iter().filter_map(|item| match item {
            Item::Entry(directory, name) => Some((*directory, name)),
            _ => None,
        })
    }
}

/// Why there is no part at a path.
#[derive(Debug)]
pub(crate) enum NoPart {
    /// Nothing has changed there.
    Unchanged { path: Vec<u8> },
    /// The object there cannot be looked at.
    Unknown { path: Vec<u8>, errno: Errno },
}

/// The needs: which change needs which others.
#[derive(Default)]
struct Needs {
    all: Vec<Item>,
    needs: HashMap<Item, Vec<Item>>,
}

impl Needs {
    fn add(&mut self, item: &Item, needed: Item) {
        self.needs.entry(item.clone()).or_default().push(needed);
    }

    fn tie(&mut self, one: &Item, other: &Item) {
        self.add(one, other.clone());
        self.add(other, one.clone());
    }

    fn reversed(self) -> Needs {
        let mut reversed = Needs::default();
        for (item, needed) in self.needs {
            for one in needed {
                reversed.add(&one, item.clone());
            }
        }
        reversed.all = self.all;
        reversed
    }

    fn closure(&self, mut to_visit: Vec<Item>) -> Part {
        let mut part = Part::default();
        while let Some(item) = to_visit.pop() {
            if part.items.insert(item.clone()) {
                to_visit.extend(self.needs.get(&item).into_iter().flatten().cloned());
            }
        }
        part
    }
}

impl<D: Disk> View<D> {
    /// The part that can be committed without the rest: the changes at and below the paths, and the
    /// changes that these need. Fails if nothing has changed at one of the paths.
    pub fn part_to_land(&mut self, paths: &[Vec<u8>]) -> Result<Part, NoPart> {
        let needs = self.needs();
        let chosen = self.chosen(&needs, paths)?;
        Ok(needs.closure(chosen))
    }

    /// The part without which the rest can be: the changes at and below the paths, and what
    /// needs them. Fails if nothing has changed at one of the paths.
    pub fn part_to_drop(&mut self, paths: &[Vec<u8>]) -> Result<Part, NoPart> {
        let needs = self.needs();
        let chosen = self.chosen(&needs, paths)?;
        Ok(needs.reversed().closure(chosen))
    }

    /// Everything without the changes at and below the paths and without what needs them,
    /// and those changes.
    pub fn part_without(&mut self, paths: &[Vec<u8>]) -> Result<(Part, Part), NoPart> {
        let dropped = self.part_to_drop(paths)?;
        let needs = self.needs();
        let mut left = needs.closure(needs.needs.keys().chain(&needs.all).cloned().collect());
        left.items.retain(|item| !dropped.items.contains(item));
        Ok((left, dropped))
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for id in self.changed_nodes() {
            let Ok(node) = self.node(id) else { continue };
            let item = Item::Node(id);
            if let Some(base) = &node.base {
                needs.tie(&item, &Item::Base(base.serial));
            }
            if let Some(above) = self.entry_above(id) {
                needs.add(&item, above);
            }
            for (name, entry) in node.directory_delta().into_iter().flat_map(|d| &d.entries) {
                let of_entry = Item::Entry(id, name.clone());
                if let Some(now) = entry.now {
                    needs.tie(&of_entry, &Item::Node(now));
                    if let Some(base) = self.node(now).ok().and_then(|node| node.base.as_ref()) {
                        needs.tie(&of_entry, &Item::Base(base.serial));
                    }
                }
                if let Some(before) = &entry.before {
                    needs.tie(&of_entry, &Item::Base(before.serial));
                }
                if node.is_removed_directory() {
                    needs.tie(&of_entry, &item);
                } else if let Some(above) = self.placed_by(id) {
                    needs.add(&of_entry, above);
                }
                needs.all.push(of_entry);
            }
            if node.is_modified() {
                needs.all.push(item);
            }
        }
        for (before, after) in &self.successions {
            needs.tie(&Item::Base(before.serial), &Item::Base(after.serial));
        }
        self.tie_databases(&mut needs);
        needs
    }

    /// Ties the files of a SQLite database to each other.
    fn tie_databases(&self, needs: &mut Needs) {
        let mut first_of: HashMap<(NodeId, Vec<u8>), &Item> = HashMap::new();
        let mut tied = Vec::new();
        for item in &needs.all {
            let (directory, name) = match item {
                Item::Entry(directory, name) => (*directory, name.clone()),
                Item::Node(id) => match self.node(*id) {
                    Ok(Node {
                        parent,
                        name: Some(name),
                        kind: Kind::File,
                        ..
                    }) => (*parent, name.clone()),
                    _ => continue,
                },
                Item::Base(_) => continue,
            };
            let database = database::database(name.as_bytes()).to_vec();
            let first = *first_of.entry((directory, database)).or_insert(item);
            if first != item {
                tied.push((first.clone(), item.clone()));
            }
        }
        for (one, other) in tied {
            needs.tie(&one, &other);
        }
    }

    /// The nearest entry of the difference on the path to a directory, its own included.
    fn placed_by(&self, directory: NodeId) -> Option<Item> {
        let mut at = directory;
        while at != NodeId::ROOT {
            let Node { parent, name, .. } = self.node(at).ok()?;
            let name = name.as_ref()?;
            let delta = self.node(*parent).ok().and_then(Node::directory_delta);
            let entry = delta.and_then(|delta| delta.entries.get(name));
            if entry.is_some_and(|entry| entry.now == Some(at)) {
                return Some(Item::Entry(*parent, name.clone()));
            }
            at = *parent;
        }
        None
    }

    /// The same for the directories above a node.
    fn entry_above(&self, id: NodeId) -> Option<Item> {
        match self.node(id) {
            Ok(node) if id != NodeId::ROOT => self.placed_by(node.parent),
            _ => None,
        }
    }
}
