//! Puts the difference between two states of a view into steps.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Owner, Result, Timestamp};
use atomdir_types::MergeStep;

use super::{Plan, TouchKind, TouchedPath};
use crate::base::Base;
use crate::ids::NodeId;
use crate::view::View;
use crate::view::node::{Contents, DirectoryDelta, Node, Own, OwnBody, Staged};
use crate::view::nodes::Nodes;
use crate::view::xattrs::XattrChanges;

/// An object, whichever node of either state stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PlannedObject {
    Base(u64),
    New(NodeId),
}

/// A name that leads to another object than before.
struct ChangedName {
    directory: PlannedObject,
    name: Name,
    before: Option<PlannedObject>,
    now: Option<PlannedObject>,
}

struct Planning<'a> {
    begun: &'a Nodes,
    now: &'a Nodes,
    /// Entries of the base that differ in the newer state, by object.
    origins: HashMap<u64, (NodeId, Name)>,
    kinds: HashMap<PlannedObject, Kind>,
    plan: Plan,
    /// The places of parked objects.
    parked: HashMap<PlannedObject, Vec<u64>>,
    /// Where objects already are that have got a name.
    placed: HashMap<PlannedObject, Vec<u8>>,
    entries: Vec<ChangedName>,
    changed_names: HashSet<(PlannedObject, Name)>,
    /// Paths of files none of whose names the view knows.
    found: HashMap<PlannedObject, Vec<u8>>,
}

impl<D: Disk> View<D> {
    /// The nested view's changes since it began.
    pub(crate) fn plan_since(&self, begun: &Nodes) -> Result<Plan> {
        let mut planning = Planning {
            begun,
            now: &self.nodes,
            origins: self.nodes.origins(),
            kinds: HashMap::new(),
            plan: Plan::default(),
            parked: HashMap::new(),
            placed: HashMap::new(),
            entries: Vec::new(),
            changed_names: HashSet::new(),
            found: HashMap::new(),
        };
        let objects = planning.changed_objects();
        for object in &objects {
            planning.find_entries(*object);
        }
        planning.found = self.search(planning.nameless(&objects))?;
        planning.clear_the_way()?;
        planning.put_into_place()?;
        for object in &objects {
            planning.dress_file(*object)?;
        }
        planning.dress_directories(&objects)?;
        Ok(planning.plan)
    }
}

fn object(nodes: &Nodes, id: NodeId) -> PlannedObject {
    let base = nodes.get(id).and_then(|node| node.base.as_ref());
    base.map_or(PlannedObject::New(id), |base| {
        PlannedObject::Base(base.serial)
    })
}

fn node(nodes: &Nodes, object: PlannedObject) -> Option<(NodeId, &Node)> {
    let id = match object {
        PlannedObject::Base(serial) => *nodes.by_base.get(&serial)?,
        PlannedObject::New(id) => id,
    };
    nodes.get(id).map(|node| (id, node))
}

fn own(nodes: &Nodes, object: PlannedObject) -> Option<&Own> {
    node(nodes, object)?.1.own()
}

pub(super) fn join(directory: &[u8], name: &Name) -> Vec<u8> {
    match directory {
        b"" => name.as_bytes().to_vec(),
        above => [above, b"/", name.as_bytes()].concat(),
    }
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

impl Planning<'_> {
    /// The objects whose nodes differ.
    fn changed_objects(&self) -> BTreeSet<PlannedObject> {
        let before = self.begun.changed.iter().map(|id| object(self.begun, *id));
        let now = self.now.changed.iter().map(|id| object(self.now, *id));
        let differs = |one: &PlannedObject| match (node(self.begun, *one), node(self.now, *one)) {
            (Some((_, before)), Some((_, now))) => match (&before.own, &now.own) {
                (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
                (before, now) => before.is_some() || now.is_some(),
            },
            _ => true,
        };
        before.chain(now).filter(differs).collect()
    }

    fn was_there(&self, object: PlannedObject) -> bool {
        matches!(object, PlannedObject::Base(_)) || node(self.begun, object).is_some()
    }

    fn kind(&self, object: PlannedObject) -> Result<Kind> {
        let found = node(self.begun, object).or(node(self.now, object));
        let kind = found.map(|(_, node)| node.kind);
        kind.or(self.kinds.get(&object).copied())
            .ok_or(Errno::STALE)
    }

    fn find_entries(&mut self, directory: PlannedObject) {
        fn delta(nodes: &Nodes, directory: PlannedObject) -> Option<&DirectoryDelta> {
            node(nodes, directory)?.1.directory_delta()
        }
        let (before, now) = (delta(self.begun, directory), delta(self.now, directory));
        let both = [before, now].into_iter().flatten();
        let names: BTreeSet<&Name> = both.clone().flat_map(|one| one.entries.keys()).collect();
        for name in names {
            let mut entries = both.clone().filter_map(|delta| delta.entries.get(name));
            let base = entries.find_map(|entry| entry.before.as_ref());
            let base = base.map(|base| {
                self.kinds
                    .insert(PlannedObject::Base(base.serial), base.kind);
                PlannedObject::Base(base.serial)
            });
            let leads_to = |nodes, delta: Option<&DirectoryDelta>| match delta
                .and_then(|delta| delta.entries.get(name))
            {
                Some(entry) => entry.now.map(|id| object(nodes, id)),
                None => base,
            };
            let before = leads_to(self.begun, before);
            let now = leads_to(self.now, now);
            if before != now {
                self.changed_names.insert((directory, name.clone()));
                self.entries.push(ChangedName {
                    directory,
                    name: name.clone(),
                    before,
                    now,
                });
            }
        }
    }

    /// The path of a directory when the nested transaction began.
    fn old_path(&self, directory: PlannedObject) -> Result<Vec<u8>> {
        if let Some((id, found)) = node(self.begun, directory) {
            if id == NodeId::ROOT {
                return Ok(Vec::new());
            }
            let name = found.name.as_ref().ok_or(Errno::STALE)?;
            return Ok(join(
                &self.old_path(object(self.begun, found.parent))?,
                name,
            ));
        }
        let (id, found) = node(self.now, directory).ok_or(Errno::STALE)?;
        let origin = match directory {
            PlannedObject::Base(serial) => self.origins.get(&serial),
            PlannedObject::New(_) => None,
        };
        if id == NodeId::ROOT {
            return Ok(Vec::new());
        }
        let (parent, name) = match origin {
            Some((parent, name)) => (*parent, name),
            None => (found.parent, found.name.as_ref().ok_or(Errno::STALE)?),
        };
        Ok(join(&self.old_path(object(self.now, parent))?, name))
    }

    /// The path of a directory now.
    fn new_path(&self, directory: PlannedObject) -> Result<Vec<u8>> {
        let Some((id, found)) = node(self.now, directory) else {
            return self.old_path(directory);
        };
        if id == NodeId::ROOT {
            return Ok(Vec::new());
        }
        let name = found.name.as_ref().ok_or(Errno::STALE)?;
        Ok(join(&self.new_path(object(self.now, found.parent))?, name))
    }

    fn touch(&mut self, path: Vec<u8>, kind: TouchKind, of: Option<PlannedObject>) {
        let serial = match of {
            Some(PlannedObject::Base(serial))
                if self.kind(PlannedObject::Base(serial)) != Ok(Kind::Directory) =>
            {
                Some(serial)
            }
            _ => None,
        };
        self.plan.touched.push(TouchedPath { path, kind, serial });
    }

    /// The changed files of the base that have a name which this view has not met.
    fn nameless(&self, changed: &BTreeSet<PlannedObject>) -> Vec<Arc<Base>> {
        let named: HashSet<PlannedObject> =
            self.entries.iter().filter_map(|entry| entry.now).collect();
        let nodes = changed
            .iter()
            .filter_map(|one| Some((*one, node(self.now, *one)?.1)));
        let nameless = nodes.filter(|(one, node)| {
            node.kind != Kind::Directory
                && !node.is_unnamed()
                && !named.contains(one)
                && self.kept_name(*one).is_none()
        });
        nameless.filter_map(|(_, node)| node.base.clone()).collect()
    }

    /// Removes names, and parks what gets another one; the deepest first.
    fn clear_the_way(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        let named: HashSet<PlannedObject> = entries.iter().filter_map(|entry| entry.now).collect();
        let mut gone = Vec::new();
        for entry in &entries {
            if let Some(before) = entry.before {
                let path = join(&self.old_path(entry.directory)?, &entry.name);
                gone.push((path, before));
            }
        }
        gone.sort_by(|one, two| depth(&two.0).cmp(&depth(&one.0)).then(one.0.cmp(&two.0)));
        for (place, (path, before)) in (0u64..).zip(gone) {
            // A name goes while its file may be written by another name.
            self.touch(path.clone(), TouchKind::Tree, None);
            let step = match named.contains(&before) {
                true => MergeStep::Park { path, place },
                false => MergeStep::Remove {
                    path,
                    is_directory: self.kind(before)? == Kind::Directory,
                },
            };
            if let MergeStep::Park { place, .. } = &step {
                self.parked.entry(before).or_default().push(*place);
            }
            self.plan.steps.push(step);
        }
        self.entries = entries;
        Ok(())
    }

    /// Gives every object its new name; the directories first.
    fn put_into_place(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        let mut wanted = Vec::new();
        for entry in &entries {
            if let Some(now) = entry.now {
                let path = join(&self.new_path(entry.directory)?, &entry.name);
                wanted.push((path, now));
            }
            if self.was_there(entry.directory) {
                let path = join(&self.old_path(entry.directory)?, &entry.name);
                self.touch(path, TouchKind::Tree, None);
            }
        }
        self.entries = entries;
        wanted.sort_by(|one, two| depth(&one.0).cmp(&depth(&two.0)).then(one.0.cmp(&two.0)));
        for (path, now) in wanted {
            let parked = self.parked.get_mut(&now).and_then(Vec::pop);
            let step = match parked {
                Some(place) => MergeStep::Place {
                    path: path.clone(),
                    place,
                },
                None => match self.present_path(now)? {
                    Some(to) => MergeStep::Link {
                        path: path.clone(),
                        to,
                    },
                    None => MergeStep::Create { path: path.clone() },
                },
            };
            self.placed.entry(now).or_insert(path);
            self.plan.steps.push(step);
        }
        Ok(())
    }

    /// A path of an object that is in place; `None` for a new one that has none yet.
    fn present_path(&self, object: PlannedObject) -> Result<Option<Vec<u8>>> {
        if let Some(path) = self.placed.get(&object) {
            return Ok(Some(path.clone()));
        }
        if !self.was_there(object) {
            return Ok(None);
        }
        let Some((directory, name)) = self.kept_name(object) else {
            let found = self.found.get(&object).cloned();
            return found.ok_or(Errno::STALE).map(Some);
        };
        Ok(Some(join(&self.new_path(directory)?, &name)))
    }

    /// A name that an object has had all the time.
    fn kept_name(&self, of: PlannedObject) -> Option<(PlannedObject, Name)> {
        let is_kept = |directory: PlannedObject, name: &Name| {
            !self.changed_names.contains(&(directory, name.clone()))
        };
        for nodes in [self.now, self.begun] {
            if let Some((_, found)) = node(nodes, of)
                && let Some(name) = &found.name
            {
                let directory = object(nodes, found.parent);
                let delta = node(nodes, directory).and_then(|(_, node)| node.directory_delta());
                let entry = delta.and_then(|delta| delta.entries.get(name));
                let leads_here =
                    entry.is_none_or(|entry| entry.now.is_some_and(|id| object(nodes, id) == of));
                if leads_here && is_kept(directory, name) {
                    return Some((directory, name.clone()));
                }
            }
        }
        // It may have got other names before the nested transaction began.
        self.now.changed.iter().find_map(|id| {
            let directory = object(self.now, *id);
            let delta = self.now.get(*id)?.directory_delta()?;
            let mut entries = delta.entries.iter();
            entries.find_map(|(name, entry)| {
                let leads_here = entry.now.is_some_and(|id| object(self.now, id) == of);
                (leads_here && is_kept(directory, name)).then(|| (directory, name.clone()))
            })
        })
    }

    /// Contents and attributes of an object that was there before and is not a directory.
    fn dress_file(&mut self, of: PlannedObject) -> Result<()> {
        let is_named = own(self.now, of).is_none_or(|own| own.attributes.links > 0);
        if !self.was_there(of) || !is_named || self.kind(of)? == Kind::Directory {
            return Ok(());
        }
        let (before, now) = (own(self.begun, of), own(self.now, of));
        let contents = written(before) != written(now);
        let attributes = dressed(before) != dressed(now) || times(before) != times(now);
        if !contents && !attributes {
            return Ok(());
        }
        let path = self.present_path(of)?.ok_or(Errno::STALE)?;
        let old_path = match self.kept_name(of) {
            Some((directory, name)) => join(&self.old_path(directory)?, &name),
            None => path.clone(),
        };
        self.touch(old_path, TouchKind::Object, Some(of));
        self.plan.steps.push(MergeStep::Dress {
            path,
            contents,
            attributes,
        });
        Ok(())
    }

    /// Directories get their times last, the deepest first.
    fn dress_directories(&mut self, changed: &BTreeSet<PlannedObject>) -> Result<()> {
        let holders = self.entries.iter().map(|entry| entry.directory);
        let all: BTreeSet<PlannedObject> = holders.chain(changed.iter().copied()).collect();
        let mut steps = Vec::new();
        for of in all {
            let Some((_, found)) = node(self.now, of) else {
                continue;
            };
            if found.kind != Kind::Directory || found.is_removed_directory() {
                continue;
            }
            let (before, now) = (own(self.begun, of), own(self.now, of));
            let is_new = !self.was_there(of);
            let attributes = is_new || dressed(before) != dressed(now);
            let path = self.new_path(of)?;
            if attributes && !is_new {
                self.touch(self.old_path(of)?, TouchKind::Attributes, None);
            }
            steps.push((path, attributes));
        }
        steps.sort_by(|one, two| depth(&two.0).cmp(&depth(&one.0)).then(two.0.cmp(&one.0)));
        let steps = steps
            .into_iter()
            .map(|(path, attributes)| MergeStep::Dress {
                path,
                contents: false,
                attributes,
            });
        self.plan.steps.extend(steps);
        Ok(())
    }
}

/// The parts of a state that determine a file's contents: if they are equal, so are the contents.
fn written(own: Option<&Own>) -> Option<(u64, &Contents, Option<&Staged>)> {
    match &own?.body {
        OwnBody::File(contents) => Some((own?.attributes.length, contents, own?.staged.as_ref())),
        _ => None,
    }
}

type Dressed<'a> = (Option<u32>, Option<Owner>, Option<&'a XattrChanges>);

/// The parts of a state that determine an object's attributes: if they are equal, so are the
/// attributes.
fn dressed(own: Option<&Own>) -> Dressed<'_> {
    let mode = own.filter(|own| own.touched.mode);
    let owner = own.filter(|own| own.touched.owner);
    (
        mode.map(|own| own.attributes.mode),
        owner.map(|own| own.attributes.owner),
        own.map(|own| &own.xattrs)
            .filter(|xattrs| !xattrs.is_empty()),
    )
}

fn times(own: Option<&Own>) -> (Option<Timestamp>, Option<Timestamp>) {
    let accessed = own.filter(|own| own.touched.accessed);
    let modified = own.filter(|own| own.touched.modified);
    (
        accessed.map(|own| own.attributes.accessed),
        modified.map(|own| own.attributes.modified),
    )
}
