//! Takes names away: removes objects, or moves them to limbo.
//!
//! No call of Linux renames or removes a name only if it is still a certain object's. If an
//! outside writer puts a directory at a name right before the call, unlink(2) fails, and apply
//! looks again. A rename to limbo takes whatever it finds, so its result is looked at:
//! another object goes back to its name, and apply looks again. If this process is killed between
//! the two renames, recovery gives the object back: it is in limbo under another's name.

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, RenameMode};

use super::progress::Displaced;
use super::{Apply, EntryPlace, Outcome, Parent};
use crate::names;

impl<D: Disk> Apply<'_, D> {
    /// Removes an object that an exchange has put where it must not stay.
    pub(super) fn bury_displaced(&mut self) -> Result<(), Errno> {
        let Some(displaced) = self.progress.displaced.clone() else {
            return Ok(());
        };
        let Displaced { object, place, .. } = &displaced;
        match self.is_foreign(*object) {
            true => self.keep_foreign(*object, place, &displaced.from)?,
            false => self.bury(*object, displaced.kind, place)?,
        }
        self.progress.displaced = None;
        Ok(())
    }

    /// Whether the object is an outside writer's. A recovery cannot tell: one that was cut short may
    /// have made objects again which the log does not know.
    fn is_foreign(&self, object: Identity) -> bool {
        !self.replays && !self.desired.knows(object)
    }

    /// Keeps an outside writer's object in limbo, until its owner takes it from there.
    fn keep_foreign(
        &mut self,
        object: Identity,
        place: &EntryPlace,
        from: &EntryPlace,
    ) -> Result<(), Errno> {
        let kept = EntryPlace::in_limbo(names::displaced(object, &from.name));
        self.move_to_limbo(object, place, &kept)?;
        tracing::warn!(
            path = %self.path_of(from).escape_ascii(),
            place = ?kept.name,
            "a commit took the name of an object that an outside writer had just put there; it is \
             in limbo now"
        );
        Ok(())
    }

    /// Removes files from limbo that exchanges have put there and that got all
    /// their names another way.
    pub(super) fn drop_exchanged(&mut self) -> Outcome<()> {
        let waits = |(file, _): &(Identity, EntryPlace)| self.deferring.objects.contains(file);
        let exchanged = std::mem::take(&mut self.progress.exchanged);
        let (mut waiting, done) = exchanged.into_iter().partition::<Vec<_>, _>(waits);
        self.progress.exchanged = done;
        let dropped = self.drop_all_exchanged();
        self.progress.exchanged.append(&mut waiting);
        dropped
    }

    fn drop_all_exchanged(&mut self) -> Outcome<()> {
        while let Some((file, place)) = self.progress.exchanged.last().cloned() {
            // One that got no name stays, and `keep_refused` takes care of it.
            if self.is_at(file, &place)? && !self.is_left(file)? {
                let dropped = self.bury(file, Kind::File, &place);
                let dropped = dropped.map_err(|errno| {
                    self.failure(&self.path_of(&place), "it cannot be removed", Some(errno))
                });
                self.pass_over(dropped)?;
            }
            self.progress.exchanged.pop();
        }
        Ok(())
    }

    /// Takes a name away from an object that no longer needs it.
    pub(super) fn bury(
        &mut self,
        object: Identity,
        kind: Kind,
        from: &EntryPlace,
    ) -> Result<(), Errno> {
        let is_wanted_elsewhere = !self.desired.homes(object).is_empty();
        if kind != Kind::Directory && !is_wanted_elsewhere {
            self.make_durable(object, from)?;
        }
        let is_needed = self.is_needed(object) && !is_wanted_elsewhere;
        if kind == Kind::Directory || is_needed {
            let limbo = EntryPlace::in_limbo(names::limbo(object));
            if *from == limbo {
                return Ok(());
            }
            match self.move_to_limbo(object, from, &limbo) {
                // Another of the file's names is there already.
                Err(Errno::EXIST) if self.is_in_limbo(object, &limbo.name)? => {}
                result => {
                    result?;
                    if kind != Kind::Directory && !self.desired.is_buried(object) {
                        self.note_link_in_limbo(limbo.name);
                    }
                    return Ok(());
                }
            }
        }
        self.permitted(&[from], |this| match this.parent(from.parent)? {
            Some(parent) => {
                this.change_names(&[from], |this| this.core.disk.unlink(&parent, &from.name))
            }
            None => Ok(()),
        })
    }

    /// Breaks a circle of moves: the object waits in limbo for its turn.
    pub(super) fn set_aside(&mut self, object: Identity) -> Outcome<()> {
        let limbo = EntryPlace::in_limbo(names::limbo(object));
        let source = self.source(object)?.map(|(source, _)| source);
        let stuck = |this: &Self| {
            this.failure(
                &this.path_of(&limbo),
                "directories cannot be untangled",
                Some(Errno::LOOP),
            )
        };
        let source = source
            .filter(|source| *source != limbo)
            .ok_or_else(|| stuck(self))?;
        let kind = self.desired.kind(object).unwrap_or(Kind::File);
        let moved = match self.move_to_limbo(object, &source, &limbo) {
            // A file may have been left there under one more name.
            Err(Errno::EXIST) if self.is_in_limbo(object, &limbo.name) == Ok(true) => {
                self.bury(object, kind, &source)
            }
            moved => moved,
        };
        if moved.is_ok() && kind != Kind::Directory {
            // It may get all its names by others that it has.
            self.progress.exchanged.push((object, limbo));
        }
        moved.map_err(|errno| {
            self.failure(
                &self.path_of(&source),
                "it cannot be set aside",
                Some(errno),
            )
        })
    }

    /// Moves the object, or fails if another one was at its place.
    pub(super) fn move_to_limbo(
        &mut self,
        object: Identity,
        from: &EntryPlace,
        limbo: &EntryPlace,
    ) -> Result<(), Errno> {
        self.core.moving.note(object, limbo.clone());
        self.rename(from, limbo, RenameMode::NoReplace)?;
        // If it cannot be looked at now: an obstacle, which is rare, does not come with an outside
        // writer at this very moment. A later attempt must not find the move half-done.
        if !matches!(self.is_in_limbo(object, &limbo.name), Ok(false)) {
            return Ok(());
        }
        // An exchange has put the commit's object at the name that the other one had.
        if let Some(displaced) = &self.progress.displaced {
            let name = displaced.from.name.clone();
            return self.name_in_limbo(limbo, &name);
        }
        self.give_back(from, limbo).and(Err(Errno::NOENT))
    }

    /// Moves an object that is in limbo under another's name to where it came from.
    fn give_back(&mut self, home: &EntryPlace, limbo: &EntryPlace) -> Result<(), Errno> {
        match self.rename(limbo, home, RenameMode::NoReplace) {
            // The outside writer has used the name again, and can have only one object there.
            Err(Errno::EXIST) => self.name_in_limbo(limbo, &home.name),
            moved => moved,
        }
    }

    /// Renames an object that is in limbo under another's name to its own. It was called `from`.
    fn name_in_limbo(&mut self, limbo: &EntryPlace, from: &Name) -> Result<(), Errno> {
        let disk = &self.core.disk;
        let stat = disk.stat_at(&self.core.control.limbo, &limbo.name)?;
        let object = stat.identity;
        let own = EntryPlace::in_limbo(match self.is_foreign(object) {
            true => names::displaced(object, from),
            false => names::limbo(object),
        });
        self.rename(limbo, &own, RenameMode::NoReplace)
    }

    /// Gives an outside writer's object back that an apply had moved to limbo when it was cut
    /// short.
    pub(super) fn give_back_if_taken(
        &mut self,
        object: Identity,
        home: &EntryPlace,
    ) -> Result<(), Errno> {
        let limbo = EntryPlace::in_limbo(names::limbo(object));
        match self.is_in_limbo(object, &limbo.name) {
            Ok(false) => self.give_back(home, &limbo),
            Ok(true) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// If a file in limbo has other names, its name there must go when the last
    /// snapshot ends.
    fn note_link_in_limbo(&mut self, name: Name) {
        let stat = self.core.disk.stat_at(&self.core.control.limbo, &name);
        if stat.is_ok_and(|stat| stat.links > 1) {
            self.progress.linked_in_limbo.push(name);
        }
    }

    /// Moves objects that the history keeps to their place in limbo, if an interrupted apply has
    /// left them in the staging directory or under another name in limbo.
    pub(super) fn bury_leftovers(&mut self) -> Outcome<()> {
        for object in self.desired.buried() {
            let limbo = EntryPlace::in_limbo(names::limbo(object));
            let Some(place) = self.find(object)? else {
                tracing::warn!(name = ?limbo.name, "an object of the history is lost");
                continue;
            };
            if place == limbo || matches!(place.parent, Parent::Directory(_)) {
                continue;
            }
            match self.rename(&place, &limbo, RenameMode::NoReplace) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => {
                    let path = self.path_of(&place);
                    let failed = self.failure(&path, "it cannot be moved to limbo", Some(errno));
                    self.pass_over(Err(failed))?;
                }
            }
        }
        Ok(())
    }

    /// Takes what one commit has made and a later one has removed out of the staging directory.
    pub(super) fn bury_passing(&mut self) -> Outcome<()> {
        let desired = self.desired;
        for (object, kind) in desired.passing() {
            let Some(place) = self.find_where_expected(object)? else {
                continue;
            };
            if matches!(place.parent, Parent::Stage(_)) {
                let buried = self.bury(object, kind, &place);
                let buried = buried.map_err(|errno| {
                    self.failure(&self.path_of(&place), "it cannot be removed", Some(errno))
                });
                self.pass_over(buried)?;
            }
        }
        Ok(())
    }

    /// Whether the history or older snapshots must still find an object without a home.
    pub(super) fn is_needed(&self, object: Identity) -> bool {
        let for_snapshots = self.keeps_but.is_some_and(|but| !but.contains(&object))
            && self.core.handles.held(object).is_none();
        for_snapshots || self.desired.is_buried(object)
    }

    /// Keeps the sixth invariant for a file that is about to lose the name
    /// `from`.
    pub(super) fn make_durable(&mut self, file: Identity, from: &EntryPlace) -> Result<(), Errno> {
        let is_known = self.desired.is_updated(file) || self.earlier.contains(&file);
        if self.is_durable || !is_known {
            return Ok(());
        }
        let parent = self.parent(from.parent)?.ok_or(Errno::NOENT)?;
        if self.core.disk.stat_at(&parent, &from.name)?.links > 1 {
            let flushed = self.core.disk.sync_file_system(&self.core.root);
            self.flush_failed = self.flush_failed.or(flushed.err());
            flushed?;
            self.is_durable = true;
        }
        Ok(())
    }

    /// Moves the object to limbo before an exchange. Otherwise the exchange would
    /// put an object of the base into a staging directory that was not flushed, which a crash may
    /// lose with all that is in it.
    pub(super) fn leave_stage(
        &mut self,
        object: Identity,
        from: &EntryPlace,
    ) -> Result<EntryPlace, Errno> {
        for number in 0.. {
            let limbo = EntryPlace::in_limbo(names::second_link(object, number));
            self.core.moving.note(object, limbo.clone());
            match self.rename(from, &limbo, RenameMode::NoReplace) {
                Err(Errno::EXIST) => {}
                moved => {
                    moved?;
                    self.note_spot(object, limbo.clone());
                    return Ok(limbo);
                }
            }
        }
        Err(Errno::EXIST)
    }

    /// Makes another link to the object, in limbo.
    pub(super) fn second_link(
        &mut self,
        object: Identity,
        source: &EntryPlace,
    ) -> Result<EntryPlace, Errno> {
        for number in 0.. {
            let second = EntryPlace::in_limbo(names::second_link(object, number));
            match self.link(source, &second) {
                // An earlier exchange left another object under this name, which
                // waits for its own turn.
                Err(Errno::EXIST) if !self.is_in_limbo(object, &second.name)? => {}
                Ok(()) | Err(Errno::EXIST) => return Ok(second),
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::MLINK)
    }

    pub(super) fn is_in_limbo(&self, object: Identity, name: &Name) -> Result<bool, Errno> {
        let stat = self.core.disk.stat_at(&self.core.control.limbo, name)?;
        Ok(stat.identity == object)
    }
}
