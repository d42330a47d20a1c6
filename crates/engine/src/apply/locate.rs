//! Finds objects by identity, wherever a half-done apply has left them.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, Stat};

use super::desired::Spot;
use super::{Apply, ApplyError, EntryPlace, MOUNTED, Outcome, Parent};
use crate::base::handles::HandleKey;
use crate::names;

impl<D: Disk> Apply<'_, D> {
    /// Finds a place from which the object can get one of its homes. True if it
    /// may be moved away from there, false if it must be linked.
    pub(super) fn source(&mut self, object: Identity) -> Outcome<Option<(EntryPlace, bool)>> {
        let Some(found) = self.find(object)? else {
            return Ok(None);
        };
        // Link while several homes are missing, and rename only to the last
        // one: an unlink of the old name could become durable before the new
        // names do.
        if self.misses_several_homes(object)? {
            return Ok(Some((found, false)));
        }
        if self.may_leave(object, &found) {
            return Ok(Some((found, true)));
        }
        for place in self.places_of(object) {
            if self.may_leave(object, &place) && self.is_at(object, &place)? {
                return Ok(Some((place, true)));
            }
        }
        Ok(Some((found, false)))
    }

    /// The place of a new object that gets one name and that apply has not moved yet. No look is
    /// needed: nobody else changes what is staged.
    pub(super) fn still_staged(&self, object: Identity) -> Option<EntryPlace> {
        let is_moved = self.replays || self.progress.extra_spots.contains_key(&object);
        let is_it =
            !is_moved && self.desired.is_staged(object) && self.desired.homes(object).len() == 1;
        is_it.then(|| place_of_spot(self.desired.spots(object).first()?))?
    }

    /// Whether the name was free before the records. Then the second check has just found it so, and
    /// a rename that replaces nothing fails if it no longer is.
    pub(super) fn was_free(&self, directory: Identity, name: &Name) -> bool {
        let wanted = self.desired.entries.get(&(directory, name.clone()));
        wanted.is_some_and(|wanted| wanted.before.is_none())
    }

    /// Opens the object for its attributes, with one look, if it is where it is expected first.
    /// `None`: it is to be looked for.
    pub(super) fn open_where_expected(
        &mut self,
        object: Identity,
    ) -> Option<(EntryPlace, D::Handle, Stat)> {
        let (place, parent) = self.first_place(object)?;
        let disk = &self.core.disk;
        let handle = disk.open(&parent, &place.name, Access::Path).ok()?;
        let stat = disk.stat(&handle).ok()?;
        (stat.identity == object).then_some((place, handle, stat))
    }

    /// The attributes of the object, if it is where it is expected first.
    pub(super) fn stat_where_expected(&mut self, object: Identity) -> Option<Stat> {
        let (place, parent) = self.first_place(object)?;
        let stat = self.core.disk.stat_at(&parent, &place.name).ok()?;
        (stat.identity == object && !stat.mount_point).then_some(stat)
    }

    fn first_place(&mut self, object: Identity) -> Option<(EntryPlace, Arc<D::Handle>)> {
        if self.progress.closed.contains(&object) {
            return None;
        }
        let place = place_of_spot(self.desired.spots(object).first()?)?;
        let parent = self.parent(place.parent).ok()??;
        Some((place, parent))
    }

    /// Homes are filled from the front, so the missing ones are at the back.
    fn misses_several_homes(&mut self, object: Identity) -> Outcome<bool> {
        let homes = self.desired.homes(object);
        if homes.len() < 2 {
            return Ok(false);
        }
        let mut missing = 0;
        for (directory, name) in homes.iter().rev() {
            let home = EntryPlace {
                parent: Parent::Directory(*directory),
                name: name.clone(),
            };
            missing += usize::from(!self.is_at(object, &home)?);
            if missing > 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn exists(&mut self, object: Identity) -> Outcome<bool> {
        Ok(self.find(object)?.is_some())
    }

    /// Finds any place where the object is.
    pub(super) fn find(&mut self, object: Identity) -> Outcome<Option<EntryPlace>> {
        if self.progress.closed.contains(&object) {
            return Ok(None);
        }
        if let Some(place) = self.find_where_expected(object)? {
            return Ok(Some(place));
        }
        if !self.survey()? {
            return Ok(None);
        }
        self.find_where_expected(object)
    }

    pub(super) fn find_where_expected(&mut self, object: Identity) -> Outcome<Option<EntryPlace>> {
        // Look here first: mostly the object is where it was, or staged, and it
        // may have very many homes.
        for place in self.spots_of(object) {
            if self.is_at(object, &place)? {
                return Ok(Some(place));
            }
        }
        for place in self.other_places_of(object) {
            if self.is_at(object, &place)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Looks at all known places, once, and returns whether it did. An apply
    /// that was cut short may have exchanged an object into the place of any
    /// other.
    fn survey(&mut self) -> Outcome<bool> {
        if std::mem::replace(&mut self.is_surveyed, true) {
            return Ok(false);
        }
        let mut places = self.all_places()?;
        let mut seen_before = usize::MAX;
        // Finding a directory makes the places in it reachable.
        while places.len() < seen_before {
            seen_before = places.len();
            let mut unreachable = Vec::new();
            for place in places {
                let parent = self.parent(place.parent).ok().flatten();
                let Some(parent) = parent else {
                    unreachable.push(place);
                    continue;
                };
                if let Some((identity, _)) = self.occupant(&parent, &place.name)? {
                    self.progress
                        .extra_spots
                        .entry(identity)
                        .or_default()
                        .push(place);
                }
            }
            places = unreachable;
        }
        Ok(true)
    }

    fn all_places(&self) -> Outcome<Vec<EntryPlace>> {
        let entries = self
            .desired
            .entries
            .keys()
            .map(|(directory, name)| EntryPlace {
                parent: Parent::Directory(*directory),
                name: name.clone(),
            });
        let slots = self.desired.slots().map(|(transaction, slot)| EntryPlace {
            parent: Parent::Stage(transaction),
            name: names::slot(slot),
        });
        let limbo = self
            .core
            .disk
            .list(&self.core.control.limbo)
            .map_err(|errno| self.failure(b".atomdir/limbo", "it cannot be listed", Some(errno)))?;
        let limbo = limbo
            .into_iter()
            .map(|entry| EntryPlace::in_limbo(entry.name));
        Ok(entries.chain(slots).chain(limbo).collect())
    }

    fn places_of(&self, object: Identity) -> Vec<EntryPlace> {
        let mut places = self.spots_of(object);
        places.extend(self.other_places_of(object));
        places
    }

    fn spots_of(&self, object: Identity) -> Vec<EntryPlace> {
        let spots = self.desired.spots(object).iter();
        spots.filter_map(place_of_spot).collect()
    }

    fn other_places_of(&self, object: Identity) -> Vec<EntryPlace> {
        let homes = self.desired.homes(object).iter();
        let homes = homes.map(|(directory, name)| EntryPlace {
            parent: Parent::Directory(*directory),
            name: name.clone(),
        });
        let mut places: Vec<EntryPlace> = homes.collect();
        places.extend(
            self.progress
                .extra_spots
                .get(&object)
                .into_iter()
                .flatten()
                .cloned(),
        );
        places.push(EntryPlace::in_limbo(names::limbo(object)));
        places
    }

    pub(super) fn is_at(&mut self, object: Identity, place: &EntryPlace) -> Outcome<bool> {
        let parent = self.parent(place.parent).map_err(|errno| {
            self.failure(
                &self.path_of(place),
                "the directory above it cannot be opened",
                Some(errno),
            )
        })?;
        let Some(parent) = parent else {
            return Ok(false);
        };
        let occupant = self.occupant(&parent, &place.name);
        let occupant = occupant.map_err(|error| ApplyError {
            path: String::from_utf8_lossy(&self.path_of(place)).into_owned(),
            ..error
        })?;
        Ok(occupant.is_some_and(|(identity, _)| identity == object))
    }

    /// Whether the object may be moved away from the place.
    fn may_leave(&self, object: Identity, place: &EntryPlace) -> bool {
        let Parent::Directory(directory) = place.parent else {
            return true;
        };
        let wanted = self.desired.entries.get(&(directory, place.name.clone()));
        match wanted {
            Some(wanted) => wanted.after != Some(object),
            // No record mentions this name, so a file may leave it only if the whole directory
            // is removed. A directory has one name, and shall have another: it comes back from a
            // directory in limbo.
            None => {
                self.desired.kind(object) == Some(Kind::Directory)
                    || self.desired.may_be_gone(directory)
            }
        }
    }

    pub(super) fn parent(&mut self, parent: Parent) -> Result<Option<Arc<D::Handle>>, Errno> {
        match parent {
            Parent::Limbo => Ok(Some(self.core.control.limbo.clone())),
            Parent::Stage(transaction) => {
                if let Some(known) = self.stages.get(&transaction) {
                    return Ok(known.clone());
                }
                let handle = absent_is_none(self.core.open_stage(transaction))?;
                self.stages.insert(transaction, handle.clone());
                Ok(handle)
            }
            Parent::Directory(identity) => self
                .directory(identity)
                .map_err(|error| error.errno.unwrap_or(Errno::IO)),
        }
    }

    /// The directory of this identity, or `None` if it is nowhere to be found.
    pub(super) fn directory(&mut self, identity: Identity) -> Outcome<Option<Arc<D::Handle>>> {
        if identity == self.core.root_base.identity() {
            return Ok(Some(self.core.root.clone()));
        }
        if self.progress.closed.contains(&identity) {
            return Ok(None);
        }
        if let Some(handle) = self.directories.get(&identity) {
            return Ok(Some(handle.clone()));
        }
        if let Some(handle) = self.core.handles.get(HandleKey::Directory(identity)) {
            return Ok(Some(handle));
        }
        // A place may lie below the directory that is looked for. That is not
        // the directory's place.
        if !self.looking_for.insert(identity) {
            return Ok(None);
        }
        let found = self.find(identity);
        self.looking_for.remove(&identity);
        let Some(place) = found? else { return Ok(None) };
        let opened = self.open(&place, Access::Directory)?;
        let Some(handle) = opened.map(Arc::new) else {
            return Ok(None);
        };
        // Each level of a chain of directories asks for the one above it several times. If the newest
        // were not kept, that would multiply with each level.
        if self.directories.len() >= self.core.options.handles_max {
            self.directories.clear();
        }
        self.directories.insert(identity, handle.clone());
        Ok(Some(handle))
    }

    pub(super) fn occupant_of(
        &mut self,
        directory: Identity,
        handle: &Arc<D::Handle>,
        name: &Name,
    ) -> Outcome<Option<(Identity, Kind)>> {
        let occupant = self.occupant(handle, name);
        occupant.map_err(|error| {
            let path = self.core.path_in(directory, name);
            let path = String::from_utf8_lossy(&path).into_owned();
            ApplyError { path, ..error }
        })
    }

    pub(super) fn occupant(
        &mut self,
        directory: &Arc<D::Handle>,
        name: &Name,
    ) -> Outcome<Option<(Identity, Kind)>> {
        let mut stat = self.core.disk.stat_at(directory, name);
        if stat == Err(Errno::ACCESS) && self.open_up_handle(directory.clone()).is_ok() {
            stat = self.core.disk.stat_at(directory, name);
        }
        if stat.as_ref().is_ok_and(|stat| stat.mount_point)
            && self.core.uncover_name(directory, name)
        {
            stat = self.core.disk.stat_at(directory, name);
        }
        match stat {
            Ok(stat) if stat.mount_point => {
                Err(self.failure(name.as_bytes(), MOUNTED, Some(Errno::BUSY)))
            }
            Ok(stat) => Ok(Some((stat.identity, stat.kind))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failure(name.as_bytes(), "it cannot be read", Some(errno))),
        }
    }

    /// The place's path, for messages.
    pub(super) fn path_of(&self, place: &EntryPlace) -> Vec<u8> {
        let name = place.name.as_bytes();
        match place.parent {
            Parent::Directory(directory) => self.core.path_in(directory, &place.name),
            Parent::Stage(transaction) => {
                let above = format!(".atomdir/stage/{transaction}/");
                [above.as_bytes(), name].concat()
            }
            Parent::Limbo => [b".atomdir/limbo/", name].concat(),
        }
    }

    pub(super) fn open(
        &mut self,
        place: &EntryPlace,
        access: Access,
    ) -> Outcome<Option<D::Handle>> {
        let opened = self.permitted(&[place], |this| match this.parent(place.parent)? {
            Some(parent) => {
                let disk = &this.core.disk;
                // The commit is logged and must be applied: see
                // `Core::open_logged`.
                let open = || disk.open_waiting(&parent, &place.name, access);
                absent_is_none(match (access, place.parent) {
                    (Access::ReadWrite, Parent::Directory(_)) => this.as_user(open),
                    _ => open(),
                })
            }
            None => Ok(None),
        });
        opened.map_err(|errno| -> ApplyError {
            self.failure(&self.path_of(place), "it cannot be opened", Some(errno))
        })
    }
}

fn place_of_spot(spot: &Spot) -> Option<EntryPlace> {
    match spot {
        Spot::Root | Spot::Limbo => None,
        Spot::Entry(directory, name) => Some(EntryPlace {
            parent: Parent::Directory(*directory),
            name: name.clone(),
        }),
        Spot::Slot(transaction, slot) => Some(EntryPlace {
            parent: Parent::Stage(*transaction),
            name: names::slot(*slot),
        }),
    }
}

fn absent_is_none<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
