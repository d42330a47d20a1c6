//! Opens up objects whose modes keep their own owner out, for a process without root's
//! rights. A transaction may have given itself the right, used it and taken it back,
//! and moving a directory needs the right to write to it. So apply opens these objects
//! up for as long as it runs. The record has the modes they shall have.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, RenameMode, Stat};

use super::attributes::set_times;
use super::{Apply, EntryPlace, Parent};

impl<D: Disk> Apply<'_, D> {
    /// Calls `act`. If that is not permitted, opens up the directories at the places
    /// and above, and tries again; then opens up the files, too. Files come last
    /// because only opening a file can need it, and the record does not have the modes
    /// of files that are merely moved.
    pub(super) fn permitted<T>(
        &mut self,
        places: &[&EntryPlace],
        act: impl Fn(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for kind in [Kind::Directory, Kind::File] {
            match self.uncovered(places, &act) {
                Err(Errno::ACCESS) => {}
                result => return result,
            }
            for place in places {
                self.open_up_parent(place.parent)?;
                self.open_up(place, kind)?;
            }
        }
        self.uncovered(places, &act)
    }

    fn open_up_parent(&mut self, parent: Parent) -> Result<(), Errno> {
        match (parent, self.parent(parent)?) {
            (Parent::Directory(_), Some(handle)) => self.open_up_handle(handle),
            _ => Ok(()),
        }
    }

    fn open_up(&mut self, place: &EntryPlace, kind: Kind) -> Result<(), Errno> {
        let Some(parent) = self.parent(place.parent)? else {
            return Ok(());
        };
        match self.core.disk.open(&parent, &place.name, Access::Path) {
            Err(Errno::NOENT) => Ok(()),
            Ok(handle) if self.core.disk.stat(&handle)?.kind != kind => Ok(()),
            handle => self.open_up_handle(Arc::new(handle?)),
        }
    }

    pub(super) fn open_up_handle(&mut self, handle: Arc<D::Handle>) -> Result<(), Errno> {
        let stat = self.core.disk.stat(&handle)?;
        let rights = match stat.kind {
            Kind::Directory => 0o700,
            Kind::File => 0o600,
            _ => return Ok(()),
        };
        let mode = stat.attributes.mode;
        if mode & rights != rights {
            let opened = self.as_user(|| self.core.disk.set_mode(&handle, mode | rights));
            // A user may open up only what is theirs.
            opened.map_err(|errno| match errno {
                Errno::PERM if self.actor.is_some() => Errno::ACCESS,
                errno => errno,
            })?;
            let actor = self.actor.clone();
            let known = self.opened_up.entry(stat.identity);
            known.or_insert((handle, mode, actor));
        }
        Ok(())
    }

    /// Notes the mode that an object shall have, if the object is opened up now.
    pub(super) fn note_mode(&mut self, identity: Identity, mode: u32) {
        if let Some((_, wanted, _)) = self.opened_up.get_mut(&identity) {
            *wanted = mode;
        }
    }

    /// Gives everything that was opened up the mode it shall have.
    pub(super) fn close_up(&mut self) -> Result<(), Errno> {
        let mut all_closed = Ok(());
        for (handle, mode, actor) in std::mem::take(&mut self.opened_up).into_values() {
            self.act_for(&actor);
            match self.as_user(|| self.core.disk.set_mode(&handle, mode)) {
                // Somebody has taken it over, and gives it the mode that it shall have.
                Err(Errno::PERM) if actor.is_some() => {}
                closed => all_closed = all_closed.and(closed),
            }
        }
        self.act_for(&None);
        all_closed
    }

    pub(super) fn rename(
        &mut self,
        from: &EntryPlace,
        to: &EntryPlace,
        mode: RenameMode,
    ) -> Result<(), Errno> {
        self.permitted(&[from, to], |this| {
            let source = this.parent(from.parent)?.ok_or(Errno::NOENT)?;
            let target = this.parent(to.parent)?.ok_or(Errno::NOENT)?;
            this.change_names(&[from, to], |this| {
                let (from, to) = ((&*source, &from.name), (&*target, &to.name));
                this.core.disk.rename(from, to, mode)
            })
        })
    }

    /// Exchanges two objects, one of which is a directory. XFS sets the modification time of a
    /// directory that is moved, although no entry in it has changed, so this function sets the old
    /// time again. Once the objects are exchanged, this does not fail, because the caller must note
    /// where they are.
    pub(super) fn exchange_directories(
        &mut self,
        from: &EntryPlace,
        to: &EntryPlace,
    ) -> Result<(), Errno> {
        let before = [(to, self.stat_at(from)?), (from, self.stat_at(to)?)];
        match self.rename(from, to, RenameMode::Exchange) {
            Err(Errno::ACCESS) if self.may_exchange(from, to)? => {
                let actor = self.actor.take();
                let exchanged = self.rename(from, to, RenameMode::Exchange);
                self.actor = actor;
                exchanged?;
            }
            exchanged => exchanged?,
        }
        for (place, before) in before {
            if let Err(errno) = self.give_time_back(place, &before) {
                tracing::warn!(name = ?place.name, "a moved directory has a newer time: {errno}");
            }
        }
        Ok(())
    }

    fn give_time_back(&mut self, place: &EntryPlace, before: &Stat) -> Result<(), Errno> {
        if before.kind != Kind::Directory {
            return Ok(());
        }
        let (now, times) = (self.stat_at(place)?, before.attributes.times);
        let is_same = now.identity == before.identity;
        if !is_same || now.attributes.times.modified == times.modified {
            return Ok(());
        }
        self.permitted(&[place], |this| {
            let parent = this.parent(place.parent)?.ok_or(Errno::NOENT)?;
            let disk = &this.core.disk;
            let directory = disk.open(&parent, &place.name, Access::Path)?;
            set_times(disk, &directory, times)
        })
    }

    fn stat_at(&mut self, place: &EntryPlace) -> Result<Stat, Errno> {
        let parent = self.parent(place.parent)?.ok_or(Errno::NOENT)?;
        self.core.disk.stat_at(&parent, &place.name)
    }

    pub(super) fn link(&mut self, from: &EntryPlace, to: &EntryPlace) -> Result<(), Errno> {
        self.permitted(&[from, to], |this| {
            let source = this.parent(from.parent)?.ok_or(Errno::NOENT)?;
            let target = this.parent(to.parent)?.ok_or(Errno::NOENT)?;
            let link = |this: &Self| {
                let (from, to) = ((&*source, &from.name), (&*target, &to.name));
                this.core.disk.link(from, to)
            };
            match to.parent {
                Parent::Limbo => {
                    this.require_linkable(from)?;
                    link(this)
                }
                _ => this.change_names(&[from, to], link),
            }
        })
    }
}
