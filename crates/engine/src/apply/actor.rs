//! Makes the changes of a listed user's commit with that user's rights.
//!
//! A commit is applied later than it was checked: after the flush of the log, on a retry, or by a
//! recovery. By then its user may have lost a right.
//!
//! Invariants
//! 1. Nothing in the base changes for such a commit that the kernel would refuse its user at that
//!    moment. The thread acts with the user's ids and groups, so the kernel looks at the rights and
//!    makes the change in one step. It knows nothing of the directories above, so these are looked at
//!    right before, in every attempt anew.
//! 2. With this process's own rights apply looks for objects, and changes what only the control
//!    directory leads to: the staging directory and limbo. A move between one of these and the base
//!    needs the rights of both sides. If the kernel refuses it to the user, apply asks the kernel
//!    whether the user may change names in the directory of the base, and then moves the object
//!    with its own rights. Between the two steps the user could have done the same. Apply also uses
//!    its own rights if the kernel refuses only the detour that apply makes: an exchange with a
//!    directory that goes, or another link in limbo.
//! 3. An update that sets rights which depend on the owner (set-id bits, a capability, an access
//!    control list) sets them only if the object has the owner and group for which they are meant.
//!    This holds for root's commits, too. If somebody else gives the object away at that moment,
//!    apply takes these rights back.
//!
//! 4. A recovery joins the changes of several commits. An earlier one may have given the right that
//!    a later one has used. So what is refused at first is tried again once all rights are set. A
//!    later one may have taken a right away that an earlier one of another user has used, so it does
//!    that last.
//!
//! The record has the user's groups as of the commit. The kernel reported them for the process that
//! made it, and no running process loses a group. What was taken away since from the user in the
//! file system counts at once.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind};

use super::desired::Actor;
use super::{Apply, ApplyError, EntryPlace, Parent};

const SEARCH: u32 = 1;
const CHANGE_NAMES: u32 = 3;
const WRITE: u32 = 2;
const READ_AND_WRITE: u32 = 6;
const STICKY: u32 = 0o1000;

/// What is tried again once all rights are set.
#[derive(Default)]
pub(super) struct Deferring {
    pub defers: bool,
    /// Objects that wait for a name.
    pub objects: HashSet<Identity>,
    has_deferred: bool,
}

impl Deferring {
    /// From now on nothing is deferred. Returns whether anything was.
    pub fn end(&mut self) -> bool {
        self.objects.clear();
        self.defers = false;
        std::mem::take(&mut self.has_deferred)
    }
}

impl<D: Disk> Apply<'_, D> {
    /// Whether the change that failed is tried again once all rights are set.
    pub(super) fn defer(&mut self, error: &ApplyError) -> bool {
        let is_refused = matches!(error.errno, Some(Errno::ACCESS | Errno::PERM));
        let defers = self.deferring.defers && self.actor.is_some() && is_refused;
        if defers {
            // Rights to directories may be others then.
            self.reached.clear();
            self.deferring.has_deferred = true;
            self.progress.displaced = None;
        }
        defers
    }

    /// From now on changes are made with the rights of this user. A process without root's rights
    /// has none but its own.
    pub(super) fn act_for(&mut self, by: &Actor) {
        self.actor = match self.core.options.privileges.all {
            true => by.clone(),
            false => None,
        };
    }

    /// Calls `act` with the user's rights.
    pub(super) fn as_user<T>(&self, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let Some(user) = &self.actor else {
            return act();
        };
        let acting = self.core.disk.act_as(user.user, &user.groups);
        // That this process may not do so says nothing of the object.
        let _acting = acting.map_err(|_| Errno::NOMEM)?;
        act()
    }

    /// Changes names at these places with the user's rights.
    pub(super) fn change_names(
        &mut self,
        places: &[&EntryPlace],
        act: impl Fn(&Self) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let of_base = |place: &&&EntryPlace| matches!(place.parent, Parent::Directory(_));
        let in_base = places.iter().filter(of_base).count();
        if self.actor.is_none() || in_base == 0 {
            return act(self);
        }
        for place in places {
            self.require_reach(place.parent)?;
        }
        match self.as_user(|| act(self)) {
            Err(Errno::ACCESS | Errno::PERM)
                if in_base < places.len() && self.may_change_names(places)? =>
            {
                act(self)
            }
            done => done,
        }
    }

    /// Whether the user may change these names of the base.
    fn may_change_names(&mut self, places: &[&EntryPlace]) -> Result<bool, Errno> {
        for place in places {
            let Parent::Directory(_) = place.parent else {
                continue;
            };
            let Some(parent) = self.parent(place.parent)? else {
                continue;
            };
            let disk = &self.core.disk;
            if !self.as_user(|| disk.may_access(&parent, CHANGE_NAMES))? {
                return Ok(false);
            }
            let above = disk.stat(&parent)?.attributes;
            if above.mode & STICKY == 0 || self.is_users(above.owner.user) {
                continue;
            }
            match disk.stat_at(&parent, &place.name) {
                Ok(stat) if self.is_users(stat.attributes.owner.user) => {}
                Err(Errno::NOENT) => {}
                Ok(_) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }

    /// Whether the user may bring about by other calls what an exchange of these two objects of the
    /// base does, one of which is a directory. The kernel refuses it to a user who may not write to a
    /// directory that moves, although that user may remove it if it is empty.
    pub(super) fn may_exchange(
        &mut self,
        from: &EntryPlace,
        to: &EntryPlace,
    ) -> Result<bool, Errno> {
        let is_in_base = |place: &EntryPlace| matches!(place.parent, Parent::Directory(_));
        if self.actor.is_none() || !is_in_base(from) || !is_in_base(to) {
            return Ok(false);
        }
        for place in [from, to] {
            self.require_reach(place.parent)?;
            let Some(parent) = self.parent(place.parent)? else {
                return Ok(false);
            };
            let disk = &self.core.disk;
            let stat = disk.stat_at(&parent, &place.name)?;
            let goes =
                self.desired.knows(stat.identity) && self.desired.homes(stat.identity).is_empty();
            if stat.kind != Kind::Directory || goes {
                continue;
            }
            let directory = disk.open(&parent, &place.name, Access::Path)?;
            if !self.as_user(|| disk.may_access(&directory, WRITE))? {
                return Ok(false);
            }
        }
        self.may_change_names(&[from, to])
    }

    /// Fails with `EACCES` if the user may not give the object another name. Its directory need not
    /// be writable for that.
    pub(super) fn require_linkable(&mut self, place: &EntryPlace) -> Result<(), Errno> {
        if self.actor.is_none() || !matches!(place.parent, Parent::Directory(_)) {
            return Ok(());
        }
        self.require_reach(place.parent)?;
        let parent = self.parent(place.parent)?.ok_or(Errno::NOENT)?;
        let disk = &self.core.disk;
        let owner = disk.stat_at(&parent, &place.name)?.attributes.owner;
        if self.is_users(owner.user) {
            return Ok(());
        }
        let object = disk.open(&parent, &place.name, Access::Path)?;
        let may_link = self.as_user(|| disk.may_access(&object, READ_AND_WRITE))?;
        may_link.then_some(()).ok_or(Errno::ACCESS)
    }

    fn is_users(&self, owner: u32) -> bool {
        self.actor.as_ref().is_none_or(|actor| actor.user == owner)
    }

    /// Fails with `EACCES` if the user may not write to the file. An owner may: they could give
    /// themselves the right.
    pub(super) fn require_writable(&self, file: &D::Handle) -> Result<(), Errno> {
        let disk = &self.core.disk;
        let may_write = self.actor.is_none()
            || self.is_users(disk.stat(file)?.attributes.owner.user)
            || self.as_user(|| disk.may_access(file, WRITE))?;
        may_write.then_some(()).ok_or(Errno::ACCESS)
    }

    /// Fails with `EACCES` if the user cannot reach what is in the directory, or could not give
    /// themselves the right.
    pub(super) fn require_reach(&mut self, parent: Parent) -> Result<(), Errno> {
        let (Some(actor), Parent::Directory(directory)) = (self.actor.clone(), parent) else {
            return Ok(());
        };
        let root = self.core.root_base.identity();
        let mut next = Some(directory);
        let mut passed: Vec<Identity> = Vec::new();
        while let Some(directory) = next {
            let key = (directory, Arc::as_ptr(&actor) as usize);
            if self.reached.contains(&key) || passed.contains(&directory) {
                break;
            }
            let Some(handle) = self.parent(Parent::Directory(directory))? else {
                return Err(Errno::NOENT);
            };
            let disk = &self.core.disk;
            let may_search = self.is_users(disk.stat(&handle)?.attributes.owner.user)
                || self.as_user(|| disk.may_access(&handle, SEARCH))?;
            if !may_search {
                return Err(Errno::ACCESS);
            }
            passed.push(directory);
            let found = match directory == root {
                true => None,
                false => self
                    .find(directory)
                    .map_err(|error| error.errno.unwrap_or(Errno::IO))?,
            };
            next = match found {
                Some(EntryPlace {
                    parent: Parent::Directory(above),
                    ..
                }) => Some(above),
                // It is the root, or nobody can reach it yet.
                _ => None,
            };
        }
        let actor = Arc::as_ptr(&actor) as usize;
        self.reached
            .extend(passed.into_iter().map(|directory| (directory, actor)));
        Ok(())
    }
}
