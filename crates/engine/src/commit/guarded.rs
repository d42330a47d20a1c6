//! What calls through a guard replace is kept for open snapshots, so that these stay as they are.
//!
//! Before a call changes an object, this keeps the object's attributes, pages and names until the
//! call's epoch (`store::guard`), as a commit would. It does nothing while no transaction is open and
//! changes are not remembered (`commit::remember`).
//! Conflicts with such calls are found as those with all outside writers, by change times. Those of a
//! directory say nothing, so calls that change its attributes are noted (`Changed::guarded`).
//!
//! Invariants
//! 1. The caller is inside the gate from before it keeps something until after its change. So no
//!    transaction begins in between, and no commit changes the base.
//! 2. What is kept for calls and for commits that are published early is kept under the lock `open`,
//!    one after another.
//! 3. A call never waits for a commit, since the kernel may hold locks for it that the commit needs
//!    (`store::guard`). So it may change something while logged commits wait to be applied.
//! 4. No snapshot shows a commit that the base does not have: under a guard, none is published early
//!    (`commit::early`), and a transaction begins once all that have returned are in the base. So
//!    what a call keeps until its epoch is right for all open snapshots, also for those before a
//!    waiting commit. That one keeps nothing then that is kept already.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, RenameMode, Result};

use crate::base::core::Core;
use crate::base::snapshot::PAGE;
use crate::base::{Base, Place};
use crate::commit::keep::{Keeper, Older};
use crate::lock;
use crate::locks::Wake;
use crate::names;
use crate::ranges::RangeSet;
use crate::store::Store;
use crate::store::guard::{Guard, Guarding};
use crate::write_set::ContentsWrite;

/// An object of the base, as whoever serves a guard knows it.
pub struct Located<'a> {
    pub identity: Identity,
    /// The object's present path, relative to the root. `None`: it has none.
    pub path: &'a dyn Fn() -> Option<Vec<u8>>,
}

/// What happens to the object that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It goes on under another name, or there is none.
    Moves,
    /// It loses this name. `directory`: if it is one, and only then.
    Loses { directory: bool },
}

/// Whether the caller still has to remove the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameNow {
    Stays,
    /// A directory was moved away.
    IsGone,
}

impl<D: Disk> Guard<D> {
    /// Keeps an object's attributes.
    pub fn keep_attributes(&self, object: &Located<'_>) -> Result<()> {
        self.keep(|keeper| {
            if keeper.is_made(object.identity) {
                return Ok(());
            }
            let Some(base) = keeper.base(object)? else {
                return Ok(());
            };
            keeper.attributes(&base)?;
            if base.kind == Kind::Directory {
                // Its times say nothing: they change with its entries.
                let sequence = keeper.keeper.sequence;
                base.state().history_mut().changed.guarded = Some(sequence);
            }
            Ok(())
        })
        .map(drop)
    }

    /// Keeps a file's attributes, its length, and its contents from `start` to `end`, in bytes.
    pub fn keep_contents(&self, object: &Located<'_>, start: u64, end: u64) -> Result<()> {
        self.keep(|keeper| {
            if keeper.is_made(object.identity) {
                return Ok(());
            }
            let Some(base) = keeper.base(object)? else {
                return Ok(());
            };
            keeper.attributes(&base)?;
            keeper.pages(&base, start / PAGE, end.div_ceil(PAGE))
        })
        .map(drop)
    }

    /// Keeps what a name leads to, and the attributes of the directory.
    pub fn keep_name(
        &self,
        directory: &Located<'_>,
        name: &Name,
        leaving: Leaving,
    ) -> Result<NameNow> {
        let kept = self.keep(|keeper| {
            let Some(directory) = keeper.base(directory)? else {
                return Ok(NameNow::Stays);
            };
            keeper.name(&directory, name, leaving)
        })?;
        Ok(kept.unwrap_or(NameNow::Stays))
    }

    /// Moves a directory over another one that is empty, if snapshots need that. Otherwise the caller
    /// does it: it keeps nothing any more.
    pub fn replace_directory(
        &self,
        from: (&Located<'_>, &Name),
        to: (&Located<'_>, &Name),
    ) -> Result<NameNow> {
        let kept = self.keep(|keeper| {
            let (Some(old), Some(new)) = (keeper.base(from.0)?, keeper.base(to.0)?) else {
                return Ok(NameNow::Stays);
            };
            keeper.replace_directory((&old, from.1), (&new, to.1))
        })?;
        Ok(kept.unwrap_or(NameNow::Stays))
    }

    /// An object has been moved.
    pub fn moved(&self, directory: &Located<'_>, name: &Name) {
        let moved = self.keep(|keeper| {
            if let Some(directory) = keeper.base(directory)? {
                let handle = keeper.keeper.core.directory(&directory)?;
                let stat = keeper.keeper.core.stat_entry(&handle, name)?;
                if let Some(known) = keeper.keeper.core.known(stat.identity) {
                    keeper.keeper.core.set_place(&known, &directory, name);
                }
            }
            Ok(())
        });
        // Otherwise it is found when somebody looks up the name.
        let _ = moved;
    }

    /// `None`: no snapshot needs anything.
    fn keep<T>(&self, act: impl FnOnce(&mut Keeping<'_, D>) -> Result<T>) -> Result<Option<T>> {
        let inner = &*self.store.0;
        let core = &*inner.core;
        let mut open = lock(&inner.open);
        // One that is published early has stalled since before there was a guard.
        if core.on_the_way.look(|way| way.has_early()) {
            return Ok(None);
        }
        self.store.begin_to_remember(&mut open);
        if !open.has_snapshots() {
            return Ok(None);
        }
        let sequence = inner.gate.epoch();
        let made = open.remembered.as_ref().map(|remembered| &remembered.made);
        let made = made.filter(|_| open.with_snapshots().next().is_none());
        let older = Older::than(sequence, &open, None);
        let mut unseen = HashSet::new();
        let mut keeping = Keeping {
            keeper: Keeper {
                core,
                sequence,
                older,
                unseen: &mut unseen,
                at: None,
                closed: HashSet::new(),
                is_guarded: true,
            },
            made,
            touched: Vec::new(),
            names: Vec::new(),
            left: Vec::new(),
        };
        let kept = act(&mut keeping);
        let Keeping {
            touched,
            names,
            left,
            ..
        } = keeping;
        if let Some(remembered) = &mut open.remembered {
            remembered.note(core.options.clock.now(), &touched, names);
        }
        inner.gate.leave(sequence, None);
        left.into_iter()
            .for_each(|name| inner.gate.leave(sequence, Some(name)));
        let touched = touched.into_iter().map(|base| (base.serial, base));
        lock(&inner.retained).extend(touched);
        match kept {
            Ok(kept) => Ok(Some(kept)),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => Err(errno),
            Err(errno) => {
                let errno = atomdir_disk::reason(errno);
                tracing::debug!(%errno, "a call through the guard shows in open snapshots");
                Ok(None)
            }
        }
    }
}

struct Keeping<'a, D: Disk> {
    keeper: Keeper<'a, D>,
    /// Objects that no snapshot shows, if no transaction is open.
    made: Option<&'a HashMap<Identity, Option<Arc<Base>>>>,
    touched: Vec<Arc<Base>>,
    /// Entries that change, with their directories.
    names: Vec<(Arc<Base>, Name)>,
    /// Names in limbo.
    left: Vec<Name>,
}

impl<D: Disk> Keeping<'_, D> {
    fn base(&mut self, object: &Located<'_>) -> Result<Option<Arc<Base>>> {
        let made = self.made.and_then(|made| made.get(&object.identity));
        match made {
            Some(Some(base)) => Ok(Some(base.clone())),
            _ => located(self.keeper.core, object),
        }
    }

    fn is_made(&self, identity: Identity) -> bool {
        self.made.is_some_and(|made| made.contains_key(&identity))
    }

    fn attributes(&mut self, base: &Arc<Base>) -> Result<()> {
        if self.is_made(base.identity()) {
            return Ok(());
        }
        self.touched.push(base.clone());
        self.keeper.keep_attributes(base)
    }

    fn pages(&mut self, base: &Arc<Base>, start: u64, end: u64) -> Result<()> {
        let mut pages = RangeSet::default();
        pages.insert(start, end);
        let contents = ContentsWrite {
            slot: 0,
            pages,
            length: None,
            keep: u64::MAX,
            replacement: None,
            is_carried: false,
            differing: None,
            is_used: true,
        };
        self.keeper.keep_body(base, &contents)?;
        let (identity, sequence) = (base.identity(), self.keeper.sequence);
        self.left.push(names::saved_pages(identity, sequence));
        Ok(())
    }

    fn name(&mut self, directory: &Arc<Base>, name: &Name, leaving: Leaving) -> Result<NameNow> {
        let core = self.keeper.core;
        self.names.push((directory.clone(), name.clone()));
        self.attributes(directory)?;
        let handle = core.directory(directory)?;
        let stat = match core.stat_entry(&handle, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                self.keeper.keep_name(directory, name, None);
                return Ok(NameNow::Stays);
            }
            Err(errno) => return Err(errno),
        };
        let base = core.intern(&stat, directory, name);
        self.attributes(&base)?;
        match leaving {
            Leaving::Loses { directory }
                if directory == (base.kind == Kind::Directory)
                    && !self.is_made(base.identity()) => {}
            // The call moves it, or will fail.
            _ => {
                self.keeper.keep_name(directory, name, Some(base));
                return Ok(NameNow::Stays);
            }
        }
        let limbo = names::limbo(stat.identity);
        let done = match (base.kind, stat.links) {
            (Kind::Directory, _) => {
                if !core.disk.list(&*core.directory(&base)?)?.is_empty() {
                    // The call will fail.
                    return Ok(NameNow::Stays);
                }
                let to = (&*core.control.limbo, &limbo);
                core.disk
                    .rename((&handle, name), to, RenameMode::NoReplace)?;
                NameNow::IsGone
            }
            (_, 2..) if self.hold(&base, (directory, &handle, name))? => {
                self.keeper.keep_name(directory, name, Some(base));
                return Ok(NameNow::Stays);
            }
            // The last name, or too many are held. Then the one in limbo shows in the link count.
            _ => {
                let to = (&*core.control.limbo, &limbo);
                match core.disk.link((&handle, name), to) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                NameNow::Stays
            }
        };
        self.keeper.keep_name(directory, name, Some(base.clone()));
        self.left.push(limbo.clone());
        base.state().place = Place::Limbo(limbo);
        Ok(done)
    }

    fn replace_directory(
        &mut self,
        from: (&Arc<Base>, &Name),
        to: (&Arc<Base>, &Name),
    ) -> Result<NameNow> {
        let core = self.keeper.core;
        self.name(from.0, from.1, Leaving::Moves)?;
        self.name(to.0, to.1, Leaving::Moves)?;
        let (old, new) = (core.directory(from.0)?, core.directory(to.0)?);
        let target = match core.stat_entry(&new, to.1) {
            Ok(stat) if stat.kind == Kind::Directory => stat,
            Ok(_) | Err(Errno::NOENT) => return Ok(NameNow::Stays),
            Err(errno) => return Err(errno),
        };
        let base = core.intern(&target, to.0, to.1);
        if !core.disk.list(&*core.directory(&base)?)?.is_empty() {
            return Ok(NameNow::Stays);
        }
        if self.is_made(base.identity()) {
            return Ok(NameNow::Stays);
        }
        // The move comes first: if it fails, everything is as it was.
        let exchange = || {
            let (from, to) = ((&*old, from.1), (&*new, to.1));
            core.disk.rename(from, to, RenameMode::Exchange)
        };
        exchange()?;
        let limbo = names::limbo(target.identity);
        let aside = (&*core.control.limbo, &limbo);
        if let Err(errno) = core
            .disk
            .rename((&old, from.1), aside, RenameMode::NoReplace)
        {
            exchange()?;
            return Err(errno);
        }
        self.left.push(limbo.clone());
        base.state().place = Place::Limbo(limbo);
        Ok(NameNow::IsGone)
    }

    /// Keeps a file open that goes on under other names. False: too many are.
    fn hold(
        &self,
        base: &Arc<Base>,
        (directory, handle, name): (&Arc<Base>, &D::Handle, &Name),
    ) -> Result<bool> {
        let core = self.keeper.core;
        let (target, access) = match base.kind {
            Kind::Symlink => (core.disk.read_link(handle, name).ok(), Access::Path),
            Kind::File => (None, Access::Read),
            _ => (None, Access::Path),
        };
        let identity = base.identity();
        let object = core.disk.open(handle, name, access)?;
        let is_held = core.handles.hold(identity, Arc::new(object), target);
        let mut state = base.state();
        if is_held && state.place.is_entry(directory, name) {
            state.place = Place::Held;
        }
        Ok(is_held)
    }
}

/// The base object; `None` if it is not in the base.
pub(crate) fn located<D: Disk>(core: &Core<D>, object: &Located<'_>) -> Result<Option<Arc<Base>>> {
    let known = core.known(object.identity);
    let is_there = |known: &Arc<Base>| {
        let (identity, place) = known.identity_and_place();
        // It may have lost the name by which it was known, and have others.
        !matches!(place, Place::Held) && core.stat_place(&place, identity).is_ok()
    };
    if let Some(known) = known.as_ref().filter(|known| is_there(known)) {
        return Ok(Some(known.clone()));
    }
    match (object.path)().map(|path| walk(core, &path)) {
        Some(Ok(base)) if base.identity() == object.identity => Ok(Some(base)),
        Some(Err(errno)) if known.is_none() && errno != Errno::NOENT => Err(errno),
        _ => Ok(known),
    }
}

fn walk<D: Disk>(core: &Core<D>, path: &[u8]) -> Result<Arc<Base>> {
    let mut base = core.root_base.clone();
    for part in path.split(|byte| *byte == b'/') {
        if part.is_empty() {
            continue;
        }
        let name = Name::new(part).map_err(|_| Errno::INVAL)?;
        let handle = core.directory(&base)?;
        let stat = core.stat_entry(&handle, &name)?;
        base = core.intern(&stat, &base, &name);
    }
    Ok(base)
}

impl<D: Disk> Store<D> {
    /// From now on commits wait for guarded calls. `None`: the store has a guard.
    pub fn guard(&self, guarding: Arc<dyn Guarding>) -> Option<Guard<D>> {
        // No commit is being applied, or has been published early.
        let committing = self.lock_without_pending().unwrap_or_else(|error| {
            tracing::warn!(%error, "until these commits are in the base, snapshots are not frozen");
            lock(&self.0.commit)
        });
        let newest = committing.journal.newest;
        let is_first = self.0.gate.guard(guarding.clone(), newest);
        let guard = is_first.then(|| self.guard_of(guarding));
        drop(committing);
        self.heed_calls_wait();
        guard
    }

    fn guard_of(&self, guarding: Arc<dyn Guarding>) -> Guard<D> {
        let locks = &self.0.contention.locks;
        guarding.begin(self.may_wait());
        let wake: Wake = Arc::new(move || guarding.retry());
        locks.keep_waking(wake.clone());
        Guard {
            store: self.clone(),
            waiting: Mutex::default(),
            wake,
        }
    }
}
