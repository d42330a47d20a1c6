//! What calls through a guard replace is kept for open snapshots, so that these stay as they are.
//!
//! Before a call changes an object, this keeps the object's attributes, pages and names until the
//! call's epoch (`store::guard`), as a commit would. It does nothing while no transaction is open.
//! Conflicts with such calls are found as those with all outside writers, by change times.
//!
//! Invariants
//! 1. The caller is inside the gate from before it keeps something until after its change. So no
//!    transaction begins in between, and no commit changes the base.
//! 2. What is kept for calls and for commits that are published early is kept under the lock `open`,
//!    one after another.
//! 3. A call never waits for a commit. So while a commit is published that the base does not have,
//!    nothing is kept: snapshots then show what calls change, as without a guard.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, Result};
use atomdir_format::record::{Cancellation, LogRecord};

use crate::base::snapshot::{PAGE, SnapshotPoint};
use crate::base::{Base, Place};
use crate::commit::Validated;
use crate::commit::keep::{Keeper, Snapshots};
use crate::error::{CommitError, StoreError};
use crate::ids::Sequence;
use crate::lock;
use crate::names;
use crate::ranges::RangeSet;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::guard::Guard;
use crate::store::queue::Logged;
use crate::transaction::Transaction;
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
            let Some(base) = keeper.base(object)? else {
                return Ok(());
            };
            keeper.attributes(&base)
        })
        .map(drop)
    }

    /// Keeps a file's attributes, its length, and its contents from `start` to `end`, in bytes.
    pub fn keep_contents(&self, object: &Located<'_>, start: u64, end: u64) -> Result<()> {
        self.keep(|keeper| {
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
        let inner = &*self.0.0;
        let core = &*inner.core;
        let open = lock(&inner.open);
        if open.with_snapshots().next().is_none() || core.on_the_way.look(|way| way.has_early()) {
            return Ok(None);
        }
        let sequence = inner.gate.epoch();
        let snapshots = Snapshots::of(&open, sequence, None);
        let mut unseen = HashSet::new();
        let mut keeping = Keeping {
            keeper: Keeper {
                core,
                sequence,
                snapshots: &snapshots,
                unseen: &mut unseen,
                at: None,
                closed: HashSet::new(),
                is_guarded: true,
            },
            touched: Vec::new(),
            left: Vec::new(),
        };
        let kept = act(&mut keeping);
        let (touched, left) = (keeping.touched, keeping.left);
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
    touched: Vec<Arc<Base>>,
    /// Names in limbo.
    left: Vec<Name>,
}

impl<D: Disk> Keeping<'_, D> {
    /// The base object; `None` if it is not in the base.
    fn base(&mut self, object: &Located<'_>) -> Result<Option<Arc<Base>>> {
        let core = self.keeper.core;
        if let Some(known) = core.known(object.identity) {
            return Ok(Some(known));
        }
        let Some(path) = (object.path)() else {
            return Ok(None);
        };
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
        Ok((base.identity() == object.identity).then_some(base))
    }

    fn attributes(&mut self, base: &Arc<Base>) -> Result<()> {
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
            Leaving::Loses { directory } if directory == (base.kind == Kind::Directory) => {}
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
                    .rename((&handle, name), to, atomdir_disk::RenameMode::NoReplace)?;
                NameNow::IsGone
            }
            (_, 0 | 1) => {
                let to = (&*core.control.limbo, &limbo);
                match core.disk.link((&handle, name), to) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                NameNow::Stays
            }
            _ => {
                self.hold(&base, (directory, &handle, name))?;
                self.keeper.keep_name(directory, name, Some(base));
                return Ok(NameNow::Stays);
            }
        };
        self.keeper.keep_name(directory, name, Some(base.clone()));
        self.left.push(limbo.clone());
        base.state().place = Place::Limbo(limbo);
        Ok(done)
    }

    /// A file that goes on under other names.
    fn hold(
        &self,
        base: &Arc<Base>,
        (directory, handle, name): (&Arc<Base>, &D::Handle, &Name),
    ) -> Result<()> {
        let core = self.keeper.core;
        let (target, access) = match base.kind {
            Kind::Symlink => (core.disk.read_link(handle, name).ok(), Access::Path),
            Kind::File => (None, Access::Read),
            _ => (None, Access::Path),
        };
        let identity = base.identity();
        let object = core.disk.open(handle, name, access)?;
        core.handles.hold(identity, Arc::new(object), target);
        let mut state = base.state();
        if state.place.is_entry(directory, name) {
            state.place = Place::Held;
        }
        Ok(())
    }
}

impl<D: Disk> Store<D> {
    /// Appends the record of a commit, behind those of all epochs before it.
    pub(super) fn append(
        &self,
        transaction: &Transaction<D>,
        state: &mut CommitState<D>,
        validated: (Validated, Option<&[u8]>),
    ) -> std::result::Result<Logged<D>, CommitError> {
        let before = self.0.gate.claim(state.journal.newest);
        let appended = self.append_epochs(state, before);
        let appended = appended.map_err(|errno| CommitError::io("write", b".atomdir/log", errno));
        let logged = appended.and_then(|()| self.append_commit(transaction, state, validated));
        // Otherwise it is about to be on the way.
        if logged.is_err() {
            self.0.gate.unclaim(before);
        }
        logged
    }

    /// Adds the records of epochs to the log, which belong to no commit.
    pub(super) fn append_epochs(&self, state: &mut CommitState<D>, until: Sequence) -> Result<()> {
        let core = &*self.0.core;
        while state.journal.newest < until {
            let sequence = state.journal.newest.next();
            let record = LogRecord::Cancellation(Cancellation {
                sequence: sequence.0,
                cancelled: sequence.0,
                time: core.options.clock.now(),
            });
            state.journal.log.append(&core.disk, &record)?;
            state.journal.note_no_commit(sequence);
            self.0.flusher.note_appended(sequence);
        }
        Ok(())
    }

    /// The present, as a new snapshot shows it. A checkpoint then makes its sequence durable.
    pub(super) fn present(
        &self,
        state: &mut CommitState<D>,
    ) -> std::result::Result<SnapshotPoint, StoreError> {
        let paused = self.0.gate.pause();
        let at = lock(&self.0.open).published;
        let snapshot = SnapshotPoint {
            at: paused.as_ref().map_or(at, |paused| paused.snapshot(at)),
            began: self.stamp()?,
        };
        drop(paused);
        self.log_epochs(state)?;
        Ok(snapshot)
    }

    /// Appends the records of all epochs that snapshots may show, so that the next checkpoint keeps
    /// later commits from getting their sequences.
    pub(crate) fn log_epochs(
        &self,
        state: &mut CommitState<D>,
    ) -> std::result::Result<(), StoreError> {
        let appended = self.append_epochs(state, self.0.gate.closed_epoch());
        appended.map_err(|errno| StoreError::Control {
            step: "write the log",
            errno,
        })
    }
}
