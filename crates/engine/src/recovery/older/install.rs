//! Looks up the traced objects and gives them their histories.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Stat};

use crate::base::core::Core;
use crate::base::older::Older;
use crate::base::snapshot::read_xattrs;
use crate::base::{Base, History, OldAttributes, OldBody, OwnStamp, Place, Stamp, Xattrs};
use crate::ids::Sequence;
use crate::names;
use crate::recovery::older::trace::{Body, Number, State, Trace, Traced, Whereabouts};

/// Entries by the inodes that they lead to.
type Places = HashMap<u64, Vec<(Arc<Base>, Name)>>;

pub(super) struct Install<'a, D: Disk> {
    core: &'a Core<D>,
    trace: &'a Trace<'a, D>,
    found: HashMap<Number, Arc<Base>>,
    looking_for: HashSet<Number>,
    /// Where the tree has objects that the trace knows.
    surveyed: Option<Places>,
}

type Outcome<T> = Result<T, String>;

impl<'a, D: Disk> Install<'a, D> {
    pub fn new(core: &'a Core<D>, trace: &'a Trace<'a, D>) -> Install<'a, D> {
        Install {
            core,
            trace,
            found: HashMap::new(),
            looking_for: HashSet::new(),
            surveyed: None,
        }
    }

    pub fn run(mut self) -> Outcome<Older> {
        let trace = self.trace;
        let mut needed: Vec<Number> = Vec::new();
        for (number, object) in trace.objects.iter().enumerate() {
            let has_history = !object.names.is_empty() || !object.states.is_empty();
            if has_history || !object.bodies.is_empty() {
                needed.push(number);
            }
            let named = object.names.values().flat_map(|named| &named.before);
            needed.extend(named.filter_map(|(_, before)| *before));
        }
        for number in &needed {
            self.find(*number)?;
        }
        needed.sort_unstable();
        needed.dedup();
        let mut histories: Vec<(Number, History)> = Vec::new();
        for number in needed {
            histories.push((number, self.history(number)?));
        }
        let mut older = Older::default();
        for (number, history) in histories {
            let base = self.find(number)?;
            base.state().history = Some(Box::new(history));
            older.retained.push(base);
        }
        for (identity, until, number) in &trace.replaced {
            if let Some(base) = self.found.get(number) {
                let known = older.known.entry(*identity).or_default();
                known.push((*until, base.clone()));
            }
        }
        for (number, base) in &self.found {
            let identity = trace.objects[*number].identity;
            let known = older.known.entry(identity).or_default();
            known.push((Sequence::AFTER_ALL, base.clone()));
        }
        Ok(older)
    }

    fn find(&mut self, number: Number) -> Outcome<Arc<Base>> {
        if let Some(found) = self.found.get(&number) {
            return Ok(found.clone());
        }
        let identity = self.trace.objects[number].identity;
        let found = match self.looking_for.insert(number) {
            true => self.look(number),
            false => Ok(None),
        };
        let found = found.map_err(|errno| {
            let reason = atomdir_disk::reason(errno);
            format!("an object that its snapshot shows cannot be examined: {reason}")
        })?;
        let found = found.ok_or_else(|| {
            let limbo = names::limbo(identity);
            format!("an object that its snapshot shows is not there any more: {limbo:?}")
        })?;
        self.found.insert(number, found.clone());
        Ok(found)
    }

    fn look(&mut self, number: Number) -> Result<Option<Arc<Base>>, Errno> {
        let object = &self.trace.objects[number];
        let place = match &object.place {
            Whereabouts::Root => return Ok(Some(self.core.root_base.clone())),
            Whereabouts::Entry(directory, name) => match self.find(*directory) {
                Ok(parent) => Some(Place::Entry {
                    parent,
                    name: name.clone(),
                }),
                Err(_) => None,
            },
            Whereabouts::Unknown | Whereabouts::Limbo => None,
        };
        let limbo = Place::Limbo(names::limbo(object.identity));
        for place in place.into_iter().chain([limbo]) {
            if let Some(base) = self.at(object, place)? {
                return Ok(Some(base));
            }
        }
        if object.replaced_last().is_some() {
            // Every snapshot shows an inode that it had before.
            let place = Place::Limbo(names::limbo(object.identity));
            return Ok(Some(self.core.intern_known(
                object.identity,
                Kind::File,
                place,
            )));
        }
        if object.kind == Some(Kind::Directory) {
            return Ok(None);
        }
        for (parent, name) in self.surveyed_places(object.identity)? {
            if let Some(base) = self.at(object, Place::Entry { parent, name })? {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }

    /// The object, if it is there.
    fn at(&self, object: &Traced, place: Place) -> Result<Option<Arc<Base>>, Errno> {
        match self.core.stat_place(&place, object.identity) {
            Ok(stat) => {
                let kind = stat.kind;
                let base = self.core.intern_known(object.identity, kind, place.clone());
                base.state().place = place;
                Ok(Some(base))
            }
            Err(Errno::STALE | Errno::ROFS) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// A file may go on under a name that no record mentions. Such files are looked for in the
    /// whole tree and in limbo, once for all of them.
    fn surveyed_places(&mut self, identity: Identity) -> Result<Vec<(Arc<Base>, Name)>, Errno> {
        if self.surveyed.is_none() {
            self.surveyed = Some(self.survey()?);
        }
        let places = self.surveyed.as_ref();
        let places = places.and_then(|surveyed| surveyed.get(&identity.inode));
        Ok(places.cloned().unwrap_or_default())
    }

    fn survey(&self) -> Result<Places, Errno> {
        let core = self.core;
        let wanted = self.trace.by_identity.keys();
        let wanted: HashSet<u64> = wanted.map(|identity| identity.inode).collect();
        let mut surveyed = Places::new();
        let mut open = vec![core.root_base.clone()];
        for entry in core.disk.list(&core.control.limbo)? {
            let stat = core.disk.stat_at(&core.control.limbo, &entry.name)?;
            if stat.kind == Kind::Directory {
                open.push(core.intern_in_limbo(&stat));
            }
        }
        while let Some(directory) = open.pop() {
            let handle = match core.directory(&directory) {
                Ok(handle) => handle,
                // Outside writers may be at work.
                Err(Errno::STALE | Errno::ROFS) => continue,
                Err(errno) => return Err(errno),
            };
            for entry in core.disk.list(&handle)? {
                if core.is_hidden(&directory, &entry.name) {
                    continue;
                }
                let is_wanted = wanted.contains(&entry.inode);
                if !is_wanted && entry.kind.is_some_and(|kind| kind != Kind::Directory) {
                    continue;
                }
                let stat = match core.stat_entry(&handle, &entry.name) {
                    Ok(stat) => stat,
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(errno),
                };
                if stat.kind == Kind::Directory {
                    if !stat.mount_point {
                        open.push(core.intern(&stat, &directory, &entry.name));
                    }
                } else if is_wanted {
                    let place = (directory.clone(), entry.name);
                    surveyed.entry(stat.identity.inode).or_default().push(place);
                }
            }
        }
        Ok(surveyed)
    }

    fn history(&mut self, number: Number) -> Outcome<History> {
        let trace = self.trace;
        let object = &trace.objects[number];
        let base = self.find(number)?;
        let mut names = HashMap::new();
        for (name, named) in &object.names {
            let mut versions = Vec::new();
            for (until, before) in &named.before {
                let before = before.map(|before| self.find(before)).transpose()?;
                versions.push((*until, before));
            }
            if !versions.is_empty() {
                names.insert(name.clone(), versions);
            }
        }
        let mut attributes = Vec::new();
        self.walk_back(number, |state, was| {
            let (stat, xattrs) = (was.stat, was.xattrs.clone());
            attributes.push((state.until, Arc::new(OldAttributes { stat, xattrs })));
        })?;
        attributes.reverse();
        let mut bodies = Vec::new();
        for (until, body) in &object.bodies {
            bodies.push((*until, Arc::new(self.body(number, body)?)));
        }
        let mut changed = object.changed.clone();
        if base.kind != Kind::Directory
            && let Some((left_by, settled)) = object.touched
            && let Ok(stat) = self.core.stat_now(&base)
            && stat.changed <= settled
        {
            let stamp = Stamp::of(&stat);
            changed.own_stamp = Some(OwnStamp { stamp, left_by });
        }
        Ok(History {
            attributes,
            bodies,
            names,
            changed,
        })
    }

    fn body(&mut self, number: Number, body: &Body) -> Outcome<OldBody> {
        Ok(match body {
            Body::Moved(identity) => match self.trace.restored_as(number, *identity) {
                Some(restored) => OldBody::Restored(self.find(restored)?),
                None => OldBody::Moved {
                    identity: *identity,
                    limbo: names::limbo(*identity),
                },
            },
            Body::Pages {
                saved,
                pages,
                length,
            } => {
                let there = self.core.disk.stat_at(&self.core.control.limbo, saved);
                there.map_err(|_| format!("pages that its snapshot shows are gone: {saved:?}"))?;
                OldBody::Pages {
                    saved: saved.clone(),
                    pages: pages.clone(),
                    length: *length,
                }
            }
        })
    }

    /// Calls `each` with the object's state until each commit, newest first. Returns its first
    /// state.
    fn walk_back(
        &mut self,
        number: Number,
        mut each: impl FnMut(&State, &OldAttributes),
    ) -> Outcome<OldAttributes> {
        let object = &self.trace.objects[number];
        let base = self.find(number)?;
        let place = base.state().place.clone();
        let mut was = match object.replaced_last() {
            Some(replaced) => self.replaced(number, replaced)?,
            None => self.look_at(&place, object.identity)?,
        };
        let links = was.stat.links;
        for state in object.states.iter().rev() {
            if let Some(replaced) = state.replaced {
                was = self.replaced(number, replaced)?;
            }
            if let Some((attributes, changed, length)) = state.former {
                was.stat.attributes = attributes;
                was.stat.changed = changed;
                was.stat.length = length;
            }
            for (name, value) in &state.xattrs {
                was.xattrs.retain(|(of, _)| of != name);
                let value = value.clone();
                was.xattrs.extend(value.map(|value| (name.clone(), value)));
            }
            let more = match base.kind == Kind::Directory && links > 1 {
                true => {
                    i64::from(links) - i64::from(was.stat.links)
                        + self.subdirectories(object, state.until)?
                }
                false if base.kind == Kind::Directory => 0,
                false => state.links,
            };
            let links = i64::from(was.stat.links) + more;
            was.stat.links = u32::try_from(links.max(1)).unwrap_or(u32::MAX);
            each(state, &was);
        }
        Ok(was)
    }

    /// The attributes of an inode of the object when a commit replaced it.
    fn replaced(&mut self, number: Number, identity: Identity) -> Outcome<OldAttributes> {
        match self.trace.restored_as(number, identity) {
            Some(restored) => self.walk_back(restored, |_, _| {}),
            None => self.look_at(&Place::Limbo(names::limbo(identity)), identity),
        }
    }

    /// How many directories more the directory had until the commit.
    fn subdirectories(&mut self, object: &Traced, until: Sequence) -> Outcome<i64> {
        let mut more = 0;
        for named in object.names.values() {
            let version = named.before.iter().find(|(end, _)| *end >= until);
            let Some((_, before)) = version else { continue };
            if let Some(before) = before {
                more += i64::from(self.find(*before)?.kind == Kind::Directory);
            }
            if let Some(now) = named.now {
                let now = &self.trace.objects[now];
                more -= i64::from(now.kind == Some(Kind::Directory));
            }
        }
        Ok(more)
    }

    fn look_at(&self, place: &Place, identity: Identity) -> Outcome<OldAttributes> {
        let stat = self.core.stat_place(place, identity);
        let xattrs = self.core.with_object(place, identity, |handle| {
            read_xattrs(&self.core.disk, handle)
        });
        let looked: Result<(Stat, Xattrs), Errno> = stat.and_then(|stat| Ok((stat, xattrs?)));
        let (stat, xattrs) = looked.map_err(|errno| {
            let reason = atomdir_disk::reason(errno);
            format!("an object that its snapshot shows cannot be read: {reason}")
        })?;
        Ok(OldAttributes { stat, xattrs })
    }
}
