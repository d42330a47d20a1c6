//! Finds objects by identity: in the snapshot, by the places that the records give, and in limbo.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Result};

use crate::base::{Base, Place};
use crate::ids::{NodeId, Sequence};
use crate::names;
use crate::undo::changes::{Changes, Key};
use crate::view::View;

/// The fate of an object if the commits are undone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It will be in the tree.
    Lives,
    /// It will not: the undone commits made it.
    Goes,
    /// A commit that is not undone has removed it, or (`None`) an outside writer.
    Lost(Option<Sequence>),
}

/// Entries by the inodes that they lead to.
type Places = HashMap<u64, Vec<(Arc<Base>, Name)>>;

pub(super) struct Finder<'a> {
    changes: &'a Changes,
    returning: HashMap<Identity, Vec<&'a Key>>,
    pub leaving: HashMap<Identity, u32>,
    found: HashMap<Identity, Option<Arc<Base>>>,
    looking_for: HashSet<Identity>,
    /// Objects that were not found because a place lies below an object that is itself being looked
    /// for. They may be found elsewhere.
    unsure: HashSet<Identity>,
    is_unsure: bool,
    /// Where the tree has the files that the commits mention, by inode.
    surveyed: Option<Places>,
    fates: HashMap<Identity, Fate>,
}

impl<'a> Finder<'a> {
    pub fn new(changes: &'a Changes) -> Finder<'a> {
        Finder {
            changes,
            returning: changes.returning(),
            leaving: changes.leaving(),
            found: HashMap::new(),
            looking_for: HashSet::new(),
            unsure: HashSet::new(),
            is_unsure: false,
            surveyed: None,
            fates: HashMap::new(),
        }
    }

    pub fn is_returning(&self, identity: &Identity) -> bool {
        self.returning.contains_key(identity)
    }

    /// The entries that shall be this object again.
    pub fn returning_keys(&self, identity: &Identity) -> Vec<&'a Key> {
        self.returning.get(identity).cloned().unwrap_or_default()
    }

    /// Finds the object in the snapshot or in limbo.
    pub fn find<D: Disk>(
        &mut self,
        view: &View<D>,
        identity: Identity,
    ) -> Result<Option<Arc<Base>>> {
        if identity == view.core.root_base.identity() {
            return Ok(Some(view.core.root_base.clone()));
        }
        if let Some(known) = self.found.get(&identity) {
            return Ok(known.clone());
        }
        // A place may lie below the directory that is looked for.
        if self.unsure.contains(&identity) || !self.looking_for.insert(identity) {
            self.is_unsure = true;
            return Ok(None);
        }
        let was_unsure = std::mem::take(&mut self.is_unsure);
        let found = self.look(view, identity);
        self.looking_for.remove(&identity);
        let found = found?;
        let is_outermost = self.looking_for.is_empty();
        if found.is_none() && self.is_unsure && !is_outermost {
            self.unsure.insert(identity);
        } else {
            self.found.insert(identity, found.clone());
        }
        if found.is_some() || is_outermost {
            self.unsure.clear();
        }
        let is_unsure = was_unsure || found.is_none() && self.is_unsure;
        self.is_unsure = is_unsure && !is_outermost;
        Ok(found)
    }

    fn look<D: Disk>(&mut self, view: &View<D>, identity: Identity) -> Result<Option<Arc<Base>>> {
        let changes = self.changes;
        // A directory has one place.
        if changes.buried.contains_key(&identity)
            && let Some(base) = in_limbo(view, identity)?
            && base.kind == Kind::Directory
        {
            return Ok(Some(base));
        }
        let places = changes.places.get(&identity).into_iter().flatten().rev();
        for (directory, name) in places {
            let Some(directory) = self.find(view, *directory)? else {
                continue;
            };
            let snapshot = view.snapshot();
            match snapshot.lookup(&directory, name) {
                Ok(Some(found)) if found.stat.identity == identity => return Ok(Some(found.base)),
                Ok(_) | Err(Errno::STALE | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        match in_limbo(view, identity)? {
            Some(base) => Ok(Some(base)),
            None => self.look_everywhere(view, identity),
        }
    }

    /// A file may go on under a name that no record mentions, also in a directory that was removed
    /// since. Such a file is looked for in the whole tree and in those directories, once for all of
    /// them.
    fn look_everywhere<D: Disk>(
        &mut self,
        view: &View<D>,
        identity: Identity,
    ) -> Result<Option<Arc<Base>>> {
        for (directory, name) in self.surveyed_places(view, identity)? {
            let snapshot = view.snapshot();
            if let Some(found) = snapshot.lookup(&directory, &name)?
                && found.stat.identity == identity
            {
                return Ok(Some(found.base));
            }
        }
        Ok(None)
    }

    fn surveyed_places<D: Disk>(
        &mut self,
        view: &View<D>,
        identity: Identity,
    ) -> Result<Vec<(Arc<Base>, Name)>> {
        if self.surveyed.is_none() {
            self.surveyed = Some(self.survey(view)?);
        }
        let places = self.surveyed.as_ref();
        let places = places.and_then(|surveyed| surveyed.get(&identity.inode));
        Ok(places.cloned().unwrap_or_default())
    }

    fn survey<D: Disk>(&self, view: &View<D>) -> Result<Places> {
        let wanted = self.changes.places.keys().map(|identity| identity.inode);
        let wanted: HashSet<u64> = wanted.collect();
        let snapshot = view.snapshot();
        let mut surveyed = Places::new();
        let mut open = removed_directories(view)?;
        open.push(view.core.root_base.clone());
        while let Some(directory) = open.pop() {
            for (name, inode, kind) in snapshot.list(&directory)? {
                if kind == Kind::Directory {
                    let found = snapshot.lookup(&directory, &name)?;
                    open.extend(found.map(|found| found.base));
                } else if wanted.contains(&inode) {
                    let place = (directory.clone(), name);
                    surveyed.entry(inode).or_default().push(place);
                }
            }
        }
        Ok(surveyed)
    }

    pub fn fate<D: Disk>(&mut self, view: &View<D>, identity: Identity) -> Result<Fate> {
        if let Some(known) = self.fates.get(&identity) {
            return Ok(*known);
        }
        // Directories that lie below each other are a conflict.
        self.fates.insert(identity, Fate::Lost(None));
        let fate = self.decide(view, identity)?;
        self.fates.insert(identity, fate);
        Ok(fate)
    }

    fn decide<D: Disk>(&mut self, view: &View<D>, identity: Identity) -> Result<Fate> {
        let returning = self.returning.get(&identity).cloned();
        for (directory, _) in returning.into_iter().flatten() {
            if self.fate(view, *directory)? == Fate::Lives {
                return Ok(Fate::Lives);
            }
        }
        let Some(base) = self.find(view, identity)? else {
            return Ok(Fate::Lost(None));
        };
        if let Some(names) = self.leaving.get(&identity).copied() {
            let has_other_names =
                base.kind != Kind::Directory && view.snapshot().stat(&base)?.links > names;
            let goes_on = has_other_names && self.has_lasting_name(view, identity)?;
            return Ok(if goes_on { Fate::Lives } else { Fate::Goes });
        }
        let place = base.state().place.clone();
        match place {
            Place::Root => Ok(Fate::Lives),
            Place::Entry { parent, .. } => {
                let above = parent.identity();
                // No record may say where this directory is.
                self.found
                    .entry(above)
                    .or_default()
                    .get_or_insert(parent.clone());
                self.fate(view, above)
            }
            Place::Limbo(_) | Place::Held => Ok(match self.changes.buried.get(&identity) {
                Some(None) => Fate::Goes,
                Some(by) => Fate::Lost(*by),
                // Somebody has brought it back, and it went again.
                None => Fate::Lost(self.changes.removed_by.get(&identity).copied()),
            }),
        }
    }

    /// Whether a file that loses names has another in a directory that will be in the tree.
    fn has_lasting_name<D: Disk>(&mut self, view: &View<D>, identity: Identity) -> Result<bool> {
        let changes = self.changes;
        let mut places: Vec<(Arc<Base>, Name)> = Vec::new();
        for (directory, name) in changes.places.get(&identity).into_iter().flatten() {
            let directory = self.find(view, *directory)?;
            places.extend(directory.map(|directory| (directory, name.clone())));
        }
        if self.is_lasting(view, identity, places)? {
            return Ok(true);
        }
        let places = self.surveyed_places(view, identity)?;
        self.is_lasting(view, identity, places)
    }

    fn is_lasting<D: Disk>(
        &mut self,
        view: &View<D>,
        identity: Identity,
        places: Vec<(Arc<Base>, Name)>,
    ) -> Result<bool> {
        for (directory, name) in places {
            let key = (directory.identity(), name);
            let leaving = self.changes.names.get(&key);
            if leaving.is_some_and(|leaving| leaving.after == Some(identity))
                || self.fate(view, key.0)? != Fate::Lives
            {
                continue;
            }
            match view.snapshot().lookup(&directory, &key.1) {
                Ok(Some(found)) if found.stat.identity == identity => return Ok(true),
                Ok(_) | Err(Errno::STALE | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// The view's node of an object that will be in the tree.
    pub fn node<D: Disk>(&mut self, view: &mut View<D>, base: &Arc<Base>) -> Result<NodeId> {
        if let Some(known) = view.nodes.by_base.get(&base.serial) {
            return Ok(*known);
        }
        let place = base.state().place.clone();
        match place {
            Place::Root => Ok(NodeId::ROOT),
            Place::Entry { parent, name } => {
                let parent = self.node(view, &parent)?;
                let node = view.child(parent, &name)?.ok_or(Errno::STALE)?;
                match is_of(view, node, base) {
                    true => Ok(node),
                    false => Err(Errno::STALE),
                }
            }
            Place::Limbo(_) => Ok(view.adopt(base.clone())),
            Place::Held => Err(Errno::STALE),
        }
    }

    /// The view's node of an object after names have changed. `None` if it has lost the last one:
    /// names in a directory that was created whole are in no record, and go with it.
    pub fn remaining_node<D: Disk>(
        &mut self,
        view: &mut View<D>,
        base: &Arc<Base>,
    ) -> Result<Option<NodeId>> {
        if view.nodes.dying.contains_key(&base.serial) {
            return Ok(None);
        }
        let gone = |errno: &Errno| matches!(*errno, Errno::NOENT | Errno::NOTDIR | Errno::STALE);
        match self.node(view, base) {
            Err(errno) if gone(&errno) => {}
            node => return node.map(Some),
        }
        let changes = self.changes;
        let mut places: Vec<(Arc<Base>, Name)> = Vec::new();
        for (directory, name) in changes.places.get(&base.identity()).into_iter().flatten() {
            let directory = self.find(view, *directory)?;
            places.extend(directory.map(|directory| (directory, name.clone())));
        }
        places.extend(self.surveyed_places(view, base.identity())?);
        for (directory, name) in places {
            let child = self.node(view, &directory);
            let child = child.and_then(|directory| view.child(directory, &name));
            match child {
                Ok(Some(child)) if is_of(view, child, base) => return Ok(Some(child)),
                Ok(_) => {}
                Err(errno) if gone(&errno) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::STALE)
    }

    /// The node of an object that gets a name back.
    pub fn returning_node<D: Disk>(
        &mut self,
        view: &mut View<D>,
        identity: Identity,
    ) -> Result<Option<NodeId>> {
        let is_buried = self.changes.buried.contains_key(&identity);
        if is_buried && let Some(base) = in_limbo(view, identity)? {
            self.found.insert(identity, Some(base.clone()));
            return Ok(Some(view.adopt(base)));
        }
        let Some(base) = self.find(view, identity)? else {
            return Ok(None);
        };
        self.node(view, &base).map(Some)
    }
}

/// The directories in limbo.
fn removed_directories<D: Disk>(view: &View<D>) -> Result<Vec<Arc<Base>>> {
    let core = &view.core;
    let limbo = &core.control.limbo;
    let mut found = Vec::new();
    for entry in core.disk.list(limbo)? {
        let Some((identity, None)) = names::parse_limbo(&entry.name) else {
            continue;
        };
        if entry.kind.is_some_and(|kind| kind != Kind::Directory) {
            continue;
        }
        match core.disk.stat_at(limbo, &entry.name) {
            Ok(stat) if stat.identity == identity && stat.kind == Kind::Directory => {
                found.push(core.intern_in_limbo(&stat));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}

fn is_of<D: Disk>(view: &View<D>, node: NodeId, base: &Base) -> bool {
    let node = view.node(node).ok();
    let found = node.and_then(|node| node.base.as_ref());
    found.is_some_and(|found| found.serial == base.serial)
}

/// The object that is in limbo under a name of its own.
pub(super) fn in_limbo<D: Disk>(view: &View<D>, identity: Identity) -> Result<Option<Arc<Base>>> {
    let core = &view.core;
    let stat = core
        .disk
        .stat_at(&core.control.limbo, &names::limbo(identity));
    match stat {
        Ok(stat) if stat.identity == identity => Ok(Some(core.intern_in_limbo(&stat))),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
