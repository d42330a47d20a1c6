//! The places to which the commit being applied moves objects, for threads that read meanwhile.
//!
//! Apply notes the place to which it is about to move an object. So an object is always at its old
//! place or at a noted one. A reader that finds it at none of them looks again if apply has noted
//! another place since, or if an apply has begun or ended since. At its end, an apply first updates
//! the places that the engine knows, and then removes the notes.
//!
//! Invariants
//! 1. A reader of a mounted view does not wait for apply. It may be answering overlayfs, which
//!    copies a directory of a native view up. The kernel then lets no other process rename from one
//!    directory to another in the whole file system, and apply waits for that. Neither would ever
//!    go on, and not even a signal that kills the service would end it.
//! 2. For the same reason no thread takes `commit` or `applying` while it has locked the view that
//!    is the lower layer of a native view.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use atomdir_disk::{Access, Disk, Errno, Identity, Name, Result};

use crate::base::Place;
use crate::base::core::Core;
use crate::base::entry_place::{EntryPlace, Parent};
use crate::base::handles::HandleKey;
use crate::lock;

#[derive(Default)]
pub(crate) struct Moving(Mutex<HashMap<Identity, Vec<EntryPlace>>>);

impl Moving {
    /// To be called before the object is moved or linked there, or loses another name.
    pub fn note(&self, object: Identity, place: EntryPlace) {
        lock(&self.0).entry(object).or_default().push(place);
    }

    /// To be called after the turn ([`Core::turn`]) that ends the apply.
    pub fn forget_all(&self) {
        lock(&self.0).clear();
    }

    fn places(&self, object: Identity) -> Vec<EntryPlace> {
        lock(&self.0).get(&object).cloned().unwrap_or_default()
    }
}

/// The directories that a thread is looking for. A place may lie below the very directory that is
/// looked for, which is not the directory's place then.
pub(crate) type LookedFor = Vec<Identity>;

impl<D: Disk> Core<D> {
    /// Looks again after `ESTALE` if a commit has begun or ended to change the base meanwhile.
    pub fn look<T>(&self, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let turns = self.turns();
            match look() {
                Err(Errno::STALE) if self.turns() != turns => {}
                result => return result,
            }
        }
    }

    /// Calls `act` with the directory and the name at which the object is. `act` fails with
    /// `ESTALE` if it is another object.
    pub(super) fn at_place<T>(
        &self,
        place: &Place,
        identity: Identity,
        looked_for: &mut LookedFor,
        act: impl Fn(&D::Handle, &Name) -> Result<T>,
    ) -> Result<T> {
        // Otherwise the commit that brings it to its place may do so between the two looks below.
        let is_ahead = self.ahead.has_place_of(identity);
        let at_place = |looked_for: &mut LookedFor| match place {
            Place::Root | Place::Held => Err(Errno::STALE),
            Place::Limbo(name) => act(&self.control.limbo, name),
            Place::Entry { parent, name } => {
                let parent = self.find_directory(parent, looked_for);
                parent.and_then(|parent| act(&parent, name))
            }
        };
        let mut done = at_place(looked_for);
        if matches!(done, Err(Errno::STALE)) {
            done = self.where_moved(identity, looked_for, &act);
        }
        match done {
            Err(Errno::STALE) if is_ahead => at_place(looked_for),
            done => done,
        }
    }

    /// Calls `act` with each place at which the object may be by now, until it is there. `act`
    /// fails with `ESTALE` if it is not.
    pub(super) fn where_moved<T>(
        &self,
        object: Identity,
        looked_for: &mut LookedFor,
        act: impl Fn(&D::Handle, &Name) -> Result<T>,
    ) -> Result<T> {
        let mut seen = 0;
        loop {
            let mut places = self.ahead.places(object);
            places.extend(self.moving.places(object));
            if places.len() == seen {
                return Err(Errno::STALE);
            }
            seen = places.len();
            for place in places.iter().rev() {
                let parent = self.directory_of(place.parent, looked_for);
                match parent.and_then(|parent| act(&parent, &place.name)) {
                    Err(Errno::STALE) => {}
                    done => return done,
                }
            }
        }
    }

    fn directory_of(&self, parent: Parent, looked_for: &mut LookedFor) -> Result<Arc<D::Handle>> {
        match parent {
            Parent::Limbo => Ok(self.control.limbo.clone()),
            Parent::Stage(transaction) => {
                let opened = self.open_stage(transaction);
                opened.map_err(super::core::gone_is_stale)
            }
            Parent::Directory(identity) => {
                if let Some(known) = self.known(identity) {
                    return self.find_directory(&known, looked_for);
                }
                // The commit has made it.
                if let Some(handle) = self.handles.get(HandleKey::Directory(identity)) {
                    return Ok(handle);
                }
                self.look_for(identity, looked_for, |looked_for| {
                    self.where_moved(identity, looked_for, |parent, name| {
                        self.open_entry(parent, name, identity, Access::Directory)
                    })
                    .map(Arc::new)
                })
            }
        }
    }

    /// Fails with `ESTALE` if the directory is looked for already.
    pub(super) fn look_for<T>(
        &self,
        directory: Identity,
        looked_for: &mut LookedFor,
        look: impl FnOnce(&mut LookedFor) -> Result<T>,
    ) -> Result<T> {
        if looked_for.contains(&directory) {
            return Err(Errno::STALE);
        }
        looked_for.push(directory);
        let found = look(looked_for);
        looked_for.pop();
        found
    }
}
