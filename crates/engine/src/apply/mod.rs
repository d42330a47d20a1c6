//! Brings the base to the state that commits ask for.
//!
//! Invariants
//! 1. Apply finds objects by identity and leaves an object alone that is already as it should be.
//!    So it may run again from any point, also after a crash that kept any subset of its steps.
//! 2. An object that has a name after the commit has one at every moment. Apply moves or links it.
//!    If another such object is in the way, apply exchanges the two or moves that one to limbo, and
//!    does not remove it before it has reached its own home.
//! 3. Apply does not remove an object that an outside writer made. If it occupies a name that a
//!    commit owns, apply moves it to a place of its own in limbo, where it stays. A recovery does so
//!    only with directories, and they do not stay.
//! 4. A name changes from its old object to its new one in one step.
//! 5. An object that is found nowhere was removed by an outside writer after the
//!    commit, and stays away. Only an object that was just staged cannot be
//!    missing. If an object's new directory is gone, the object stays where it was. One that
//!    another user has closed counts as gone (`others`).
//! 6. A file may have names that no record mentions. Before it loses a name
//!    without getting another, everything that the log's tail says of it is
//!    applied and durable. So if recovery then finds the file under no name it
//!    knows, nothing is left to be done.
//! 7. An object that the history keeps is at every moment in the base, in limbo, or in a staging
//!    directory that is durable: it is moved by renames only.
//! 8. A later attempt of the same process does not repeat what an earlier one has
//!    done ([`ApplyProgress`]), because outside writers may have changed it since.

mod actor;
mod again;
mod attributes;
mod bury;
mod desired;
mod error;
mod locate;
mod others;
mod progress;
mod refused;
mod rights;
mod updates;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, RenameMode};

use actor::Deferring;
use desired::Actor;
pub(crate) use desired::Desired;
pub(crate) use error::{ApplyError, Verdict, verdict};
pub(crate) use progress::ApplyProgress;
use progress::Displaced;

use crate::base::core::Core;
use crate::base::entry_place::{EntryPlace, Parent};
use crate::ids::TransactionId;
use crate::names;
use crate::progress::Meter;

type Outcome<T> = Result<T, ApplyError>;

pub(crate) const MOUNTED: &str = "a file system is mounted on it";
const CANNOT_BE_SET: &str = "its attributes cannot be set";
const CANNOT_BE_GIVEN_BACK: &str = "what another program had put there cannot be moved back";

/// How often apply looks at a name again that outside writers change while it looks.
pub(crate) const TRIES_MAX: u32 = 16;

pub(crate) struct Apply<'a, D: Disk> {
    core: &'a Core<D>,
    desired: &'a Desired,
    /// Files that earlier records of the log's tail mention.
    earlier: &'a HashSet<Identity>,
    /// `Some` if older snapshots are open: an object that loses its last name
    /// then goes to limbo, unless it is one of these.
    keeps_but: Option<&'a HashSet<Identity>>,
    /// The records may have been applied before, in part or as a whole.
    pub replays: bool,
    /// How many objects outside writers have removed.
    pub objects_missing: u64,
    progress: ApplyProgress,
    directories: HashMap<Identity, Arc<D::Handle>>,
    stages: HashMap<TransactionId, Option<Arc<D::Handle>>>,
    looking_for: HashSet<Identity>,
    is_surveyed: bool,
    is_durable: bool,
    flush_failed: Option<Errno>,
    opened_up: HashMap<Identity, OpenedUp<D>>,
    /// Files that were opened for writing before the record was logged.
    writers: &'a WritableFiles<D>,
    /// The user with whose rights something is being changed.
    actor: Actor,
    deferring: Deferring,
    /// Directories in which a user may look up names, and who that is.
    reached: HashSet<(Identity, usize)>,
}

/// An object that was opened up, the mode it shall have, and the user who could do that.
type OpenedUp<D> = (Arc<<D as Disk>::Handle>, u32, Actor);

/// Handles of files that are changed in place, by identity.
pub(crate) type WritableFiles<D> = HashMap<Identity, <D as Disk>::Handle>;

#[derive(PartialEq, Eq)]
enum Attached {
    Done,
    /// A directory would have to go below itself; something else must move first.
    Blocked,
}

impl<'a, D: Disk> Apply<'a, D> {
    pub fn new(
        core: &'a Core<D>,
        desired: &'a Desired,
        earlier: &'a HashSet<Identity>,
        keeps_but: Option<&'a HashSet<Identity>>,
        writers: &'a WritableFiles<D>,
    ) -> Self {
        Apply {
            core,
            desired,
            earlier,
            keeps_but,
            writers,
            replays: false,
            objects_missing: 0,
            progress: ApplyProgress::default(),
            directories: HashMap::new(),
            stages: HashMap::new(),
            looking_for: HashSet::new(),
            is_surveyed: false,
            is_durable: false,
            flush_failed: None,
            opened_up: HashMap::new(),
            actor: None,
            reached: HashSet::new(),
            deferring: Deferring::default(),
        }
    }

    /// Continues where an earlier attempt stopped.
    pub fn resume(&mut self, progress: ApplyProgress) {
        self.replays |= progress.has_begun;
        self.progress = progress;
    }

    /// The steps done so far, for a later attempt.
    pub fn into_progress(self) -> ApplyProgress {
        self.progress
    }

    pub fn run(&mut self, meter: &mut Meter<'_>) -> Outcome<()> {
        self.progress.has_begun = true;
        let mut applied = self.run_steps(meter);
        while let Err(error) = &applied
            && error.errno == Some(Errno::ACCESS)
            && self.leave_closed()
        {
            self.replays = true;
            applied = self.run_steps(meter);
        }
        let closed = self.close_up();
        let closed = closed.map_err(|errno| {
            self.failure(b"a directory that was moved", CANNOT_BE_SET, Some(errno))
        });
        applied.and(closed)
    }

    fn run_steps(&mut self, meter: &mut Meter<'_>) -> Outcome<()> {
        meter.expect(self.desired.entries.len());
        self.act_for(&None);
        let buried = self.bury_displaced().map_err(|errno| {
            self.failure(b".atomdir/limbo", "nothing can be moved there", Some(errno))
        });
        self.pass_over(buried)?;
        self.progress.displaced = None;
        if self.replays {
            self.complete_staged()?;
        }
        self.narrow()?;
        self.update_leaving()?;
        self.note_staged_directories();
        self.deferring.defers = self.replays;
        self.attach_all(meter)?;
        self.drop_exchanged()?;
        self.detach_all(meter)?;
        self.update_staying()?;
        if self.deferring.end() {
            self.attach_all(meter)?;
            self.drop_exchanged()?;
            self.detach_all(meter)?;
            self.progress.updates.clear();
            self.update_staying()?;
        }
        assert!(
            self.progress.displaced.is_none() && self.progress.exchanged.is_empty(),
            "apply leaves an object where an exchange has put it"
        );
        if self.replays {
            self.bury_leftovers()?;
        }
        // A recovery empties the staging directories anyway.
        if !self.replays || self.keeps_but.is_some() {
            self.bury_passing()?;
        }
        self.keep_refused()
    }

    fn attach_all(&mut self, meter: &mut Meter<'_>) -> Outcome<()> {
        let desired = self.desired;
        let attached = desired
            .entries
            .iter()
            .filter_map(|(key, wanted)| Some((key, &wanted.by, wanted.after?)))
            .filter(|(key, ..)| !self.progress.entries.contains(*key));
        let mut pending: Vec<_> = attached.collect();
        while !pending.is_empty() {
            let mut blocked = Vec::new();
            let before = pending.len();
            for (key, by, object) in pending {
                self.act_for(by);
                let attached = match self.attach(key.0, &key.1, object) {
                    Err(error) if self.defer(&error) => {
                        self.deferring.objects.insert(object);
                        continue;
                    }
                    Err(error) if self.leaves(&error) => {
                        self.refuse(object, &key.1, &error);
                        Attached::Done
                    }
                    attached => attached?,
                };
                match attached {
                    Attached::Blocked => blocked.push((key, by, object)),
                    Attached::Done => {
                        self.note_done(key);
                        meter.step();
                    }
                }
            }
            if blocked.len() == before {
                let (key, by, object) = blocked[0];
                self.act_for(by);
                match self.set_aside(object) {
                    Err(error) if self.defer(&error) => {
                        self.deferring.objects.insert(object);
                        blocked.remove(0);
                    }
                    Err(error) if self.leaves(&error) => {
                        self.refuse(object, &key.1, &error);
                        self.note_done(key);
                        blocked.remove(0);
                    }
                    set_aside => set_aside?,
                }
            }
            pending = blocked;
        }
        self.act_for(&None);
        Ok(())
    }

    fn detach_all(&mut self, meter: &mut Meter<'_>) -> Outcome<()> {
        let desired = self.desired;
        for (key, wanted) in &desired.entries {
            let before = wanted.before;
            let waits = before.is_some_and(|object| self.deferring.objects.contains(&object));
            if wanted.after.is_some() || waits || self.progress.entries.contains(key) {
                continue;
            }
            self.act_for(&wanted.by);
            match self.detach(key.0, &key.1, before) {
                Err(error) if self.defer(&error) => continue,
                detached => self.pass_over(detached)?,
            }
            self.note_done(key);
            meter.step();
        }
        self.act_for(&None);
        Ok(())
    }

    fn note_done(&mut self, key: &(Identity, Name)) {
        let is_new = self.progress.entries.insert(key.clone());
        assert!(is_new, "apply has changed a name twice");
    }

    /// Makes `name` in the directory name the object.
    fn attach(&mut self, directory: Identity, name: &Name, object: Identity) -> Outcome<Attached> {
        let Some(handle) = self.directory(directory)? else {
            self.progress.left.insert(object);
            let missing = self.missing(directory, name, "the directory it belongs in");
            return missing.map(|()| Attached::Done);
        };
        let here = EntryPlace {
            parent: Parent::Directory(directory),
            name: name.clone(),
        };
        let mut staged = self.still_staged(object);
        let mut is_free = staged.is_some() && self.was_free(directory, name);
        for tries_left in (0..TRIES_MAX).rev() {
            let occupant = match std::mem::take(&mut is_free) {
                true => None,
                false => self.occupant_of(directory, &handle, name)?,
            };
            if occupant.is_some_and(|(identity, _)| identity == object) {
                break;
            }
            if occupant.is_some_and(|(identity, _)| self.progress.closed.contains(&identity)) {
                self.objects_missing += 1;
                self.progress.left.insert(object);
                break;
            }
            let source = match staged.take() {
                Some(staged) => Some((staged, true)),
                None => self.source(object)?,
            };
            let Some((source, may_move)) = source else {
                let missing = self.missing(object, name, "the object to be put there");
                return missing.map(|()| Attached::Done);
            };
            if !self.desired.is_staged(object) || self.desired.kind(object) == Some(Kind::Directory)
            {
                self.core.moving.note(object, here.clone());
            }
            let result = match occupant {
                None => self.attach_free(&source, may_move, &here),
                Some((old, kind)) => self.attach_over(object, &source, may_move, &here, old, kind),
            };
            match result {
                Ok(()) => break,
                Err(Errno::INVAL) if self.moves_directories(object, occupant) => {
                    return Ok(Attached::Blocked);
                }
                // The directory was open already when an outside writer removed it.
                Err(Errno::NOENT)
                    if self.core.disk.stat(&handle).is_ok_and(|now| now.links == 0) =>
                {
                    self.objects_missing += 1;
                    self.progress.left.insert(object);
                    break;
                }
                Err(errno) if tries_left > 0 && self.may_have_changed(errno) => {}
                Err(errno) => {
                    let path = self.path_of(&here);
                    return Err(self.failure(&path, "it cannot be put in place", Some(errno)));
                }
            }
        }
        Ok(Attached::Done)
    }

    /// Only a directory can be in the way of another one that moves below it.
    fn moves_directories(&self, object: Identity, occupant: Option<(Identity, Kind)>) -> bool {
        let is_directory = |kind| kind == Some(Kind::Directory);
        is_directory(self.desired.kind(object)) || is_directory(occupant.map(|(_, kind)| kind))
    }

    /// Whether an outside writer may have changed an object between its lookup and the failed call.
    /// Then a second lookup helps.
    fn may_have_changed(&self, errno: Errno) -> bool {
        // After an exchange it is the object from the name that cannot leave its new place.
        let is_exchanged = self.progress.displaced.is_some();
        !is_exchanged && matches!(errno, Errno::EXIST | Errno::NOENT | Errno::ISDIR)
    }

    fn attach_free(
        &mut self,
        source: &EntryPlace,
        may_move: bool,
        to: &EntryPlace,
    ) -> Result<(), Errno> {
        if may_move {
            self.rename(source, to, RenameMode::NoReplace)
        } else {
            self.link(source, to)
        }
    }

    fn attach_over(
        &mut self,
        object: Identity,
        source: &EntryPlace,
        may_move: bool,
        to: &EntryPlace,
        old: Identity,
        old_kind: Kind,
    ) -> Result<(), Errno> {
        let source = if may_move {
            source.clone()
        } else {
            // The object also stays where it is, so use a second link to it.
            self.second_link(object, source)?
        };
        let is_wanted = !self.desired.homes(old).is_empty() || !self.desired.knows(old);
        let directories =
            old_kind == Kind::Directory || self.desired.kind(object) == Some(Kind::Directory);
        if !is_wanted && !self.is_needed(old) && !directories {
            self.make_durable(old, to)?;
            return self.rename(&source, to, RenameMode::Replace);
        }
        let stays = is_wanted || self.desired.is_buried(old);
        let may_be_lost = matches!(source.parent, Parent::Stage(_)) && self.desired.is_made(object);
        let source = if stays && may_be_lost {
            self.leave_stage(object, &source)?
        } else {
            source
        };
        self.core.moving.note(old, source.clone());
        // The kernel reports an exchange to watchers as two moves, of the first object first. So they
        // see the old object go and the new one come, and not the name go at the end.
        match directories {
            true => self.exchange_directories(to, &source)?,
            false => self.rename(to, &source, RenameMode::Exchange)?,
        }
        self.note_spot(old, source.clone());
        if !is_wanted || !self.desired.knows(old) {
            assert!(
                self.progress.displaced.is_none(),
                "apply forgets an object that an exchange has displaced"
            );
            self.progress.displaced = Some(Displaced {
                object: old,
                kind: old_kind,
                place: source,
                from: to.clone(),
            });
            self.bury_displaced()?;
        } else if old_kind != Kind::Directory && !self.is_name_wanted(&source) {
            self.progress.exchanged.push((old, source));
        }
        Ok(())
    }

    /// Whether the records decide what this name leads to. They do not decide it for a name in a
    /// removed directory from which an undo takes something.
    fn is_name_wanted(&self, place: &EntryPlace) -> bool {
        let Parent::Directory(directory) = place.parent else {
            return false;
        };
        let key = (directory, place.name.clone());
        self.desired.entries.contains_key(&key)
    }

    /// Objects of the base may be moved into directories that have not left the stage yet.
    fn note_staged_directories(&self) {
        for (directory, transaction, slot) in self.desired.staged_directories() {
            let place = EntryPlace {
                parent: Parent::Stage(transaction),
                name: names::slot(slot),
            };
            self.core.moving.note(directory, place);
        }
    }

    fn note_spot(&mut self, object: Identity, place: EntryPlace) {
        let spots = self.progress.extra_spots.entry(object).or_default();
        spots.push(place);
    }

    /// Removes the name, unless it belongs to an outside writer's object. `before`: the object
    /// that it named before the records.
    fn detach(
        &mut self,
        directory: Identity,
        name: &Name,
        before: Option<Identity>,
    ) -> Outcome<()> {
        let Some(handle) = self.directory(directory)? else {
            return Ok(());
        };
        let here = EntryPlace {
            parent: Parent::Directory(directory),
            name: name.clone(),
        };
        if self.replays
            && let Some(before) = before
        {
            let given_back = self.give_back_if_taken(before, &here);
            given_back.map_err(|errno| {
                self.failure(&self.path_of(&here), CANNOT_BE_GIVEN_BACK, Some(errno))
            })?;
        }
        for tries_left in (0..TRIES_MAX).rev() {
            let Some((old, kind)) = self.occupant_of(directory, &handle, name)? else {
                break;
            };
            if !self.desired.knows(old) || self.is_left(old)? {
                break;
            }
            match self.bury(old, kind, &here) {
                Ok(()) => break,
                Err(errno) if tries_left > 0 && self.may_have_changed(errno) => {}
                Err(errno) => {
                    let path = self.path_of(&here);
                    return Err(self.failure(&path, "it cannot be removed", Some(errno)));
                }
            }
        }
        Ok(())
    }
}
