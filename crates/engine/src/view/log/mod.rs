//! The view log: a view on disk, so that its transaction survives its service.
//!
//! A view is a value (nodes, entries, pages) and staged files. The staged files are on disk anyway.
//! The view log, a file in the staging directory, holds the value: at its start as a whole, then
//! what each call changes, in one record for each call. `state` encodes nodes, `revive` makes a
//! view from the log's records, and `stage_tree` finds its staged objects.
//!
//! Invariants
//! 1. Before a call is answered, the file has a record of its changes. So when the process dies,
//!    the log lacks at most the calls that were not answered.
//! 2. A [`ViewChange::Flushed`] is written only when the staged files of the state before it are
//!    durable. After a crash of the system the log counts up to the last of these.
//! 3. A staged file that the flushed state shows is not removed and not cut before a later state
//!    is flushed. Its pages may be overwritten, as in any file.
//! 4. A staged object whose identity the log knows may lie elsewhere in the staging directory: it
//!    is found by its identity. No object is moved before the log knows its identity.

mod revive;
mod stage_tree;
mod state;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, RenameMode, Result};
use atomdir_format::view::{ViewBegin, ViewChange, ViewRecord};
use atomdir_types::Partner;

use super::node::{Staged, StagedParent};
use super::nodes::Unlogged;
use super::{Joint, View};
use crate::base::{Base, Stamp};
use crate::control;
use crate::ids::NodeId;
use crate::log::Log;
use crate::names;
use crate::view::log::state::Writing;

pub(crate) use revive::{LoggedView, Unread, read};

/// Up to so many staged files are flushed one by one; more by one syncfs.
const SYNC_EACH_MAX: usize = 16;
/// A log is written anew when it is longer than this and than several times the view.
const LENGTH_MAX: u64 = 4 << 20;
const GROWTH_MAX: u64 = 4;

/// Files as commits of the snapshot have left them that reached the base after the begin. The next
/// process could not tell these from changes of outside writers.
pub(crate) type Brought = Vec<(Arc<Base>, Stamp)>;

pub(crate) struct ViewLog<D: Disk> {
    pub begin: ViewBegin,
    pub note: Vec<u8>,
    pub brought: Brought,
    records: Log<D>,
    /// The last record's.
    sequence: u64,
    /// The length when it was last written as a whole.
    whole_length: u64,
    /// The nodes that it has.
    nodes: HashSet<NodeId>,
    /// The base objects that it has, by serial.
    objects: HashSet<u64>,
    unflushed: Unflushed,
    /// Staged objects in slots up to this one may be part of the flushed state; `None`: nothing
    /// was flushed.
    flushed_slot: Option<u64>,
    /// Staged objects that the view does not need any more, and a state on disk may.
    doomed: Vec<(Staged, Kind)>,
    /// A flush has failed. The next one would not report which data is lost.
    is_broken: bool,
}

/// The files and directories that a flush has to make durable.
struct Unflushed {
    is_any: bool,
    /// More than the contents of some staged files.
    everything: bool,
    files: BTreeSet<NodeId>,
}

impl Unflushed {
    fn all() -> Unflushed {
        Unflushed {
            is_any: true,
            everything: true,
            files: BTreeSet::new(),
        }
    }

    fn nothing() -> Unflushed {
        Unflushed {
            is_any: false,
            everything: false,
            files: BTreeSet::new(),
        }
    }
}

impl<D: Disk> ViewLog<D> {
    /// Writes the whole view to a new file.
    fn create(
        view: &mut View<D>,
        (begin, note): (ViewBegin, Vec<u8>),
        brought: Brought,
    ) -> Result<ViewLog<D>> {
        let (stage, disk) = (view.own_stage()?, &view.core.disk);
        let new = names::fixed(names::VIEW_NEW);
        control::remove(disk, &stage, &new)?;
        let file = disk.create(&stage, &new, 0o600)?;
        // A recovery makes it as root. It takes its place from the user's quota all the same.
        let mut owner = disk.stat(&file)?.attributes.owner;
        if view.core.options.privileges.all && owner.user != begin.user {
            owner.user = begin.user;
            disk.set_owner(&file, owner)?;
        }
        let mut log = ViewLog {
            begin,
            note,
            brought,
            records: Log::new(file, view.core.control.applied.store(), 0, 0),
            sequence: 0,
            whole_length: 0,
            nodes: HashSet::new(),
            objects: HashSet::new(),
            unflushed: Unflushed::all(),
            flushed_slot: None,
            doomed: Vec::new(),
            is_broken: false,
        };
        let changes = Writing::new(view, &mut log).whole();
        log.append(view, changes)?;
        log.whole_length = log.records.length();
        view.nodes.unlogged = Some(Box::default());
        Ok(log)
    }

    /// Gives a new file its name; until then an older one counts. If this one was flushed, no
    /// crash brings back the older one.
    fn take_effect(&mut self, view: &mut View<D>) -> Result<()> {
        let (new, name) = (names::fixed(names::VIEW_NEW), names::fixed(names::VIEW));
        let (stage, disk) = (view.stage()?, &view.core.disk);
        disk.rename((&stage, &new), (&stage, &name), RenameMode::Replace)?;
        if self.flushed_slot.is_some() {
            self.is_broken = true;
            disk.sync_directory(&stage)?;
            self.is_broken = false;
        }
        Ok(())
    }

    fn append(&mut self, view: &View<D>, changes: Vec<ViewChange>) -> Result<()> {
        let sequence = self.sequence + 1;
        let record = ViewRecord { sequence, changes };
        self.records.append(&view.core.disk, &record)?;
        self.sequence = sequence;
        self.unflushed.is_any = true;
        Ok(())
    }

    fn write(&mut self, view: &mut View<D>) -> Result<()> {
        let unlogged = view.nodes.unlogged.as_deref_mut();
        let unlogged = unlogged.map(std::mem::take).unwrap_or_default();
        let written = self.write_changes(view, unlogged);
        if written.is_err() {
            view.nodes.note_everything();
        }
        written
    }

    fn write_changes(&mut self, view: &mut View<D>, unlogged: Unlogged) -> Result<()> {
        let length_max = LENGTH_MAX.max(GROWTH_MAX * self.whole_length);
        if unlogged.everything || self.records.length() > length_max {
            return self.write_whole(view);
        }
        let changes = Writing::new(view, self).changes(&unlogged);
        if !changes.is_empty() {
            self.append(view, changes)?;
        }
        let flushed = self.flushed_slot;
        let mut doomed = std::mem::take(&mut self.doomed);
        let removable = doomed.extract_if(.., |(staged, _)| !may_be_flushed(staged, flushed));
        for (staged, kind) in removable.collect::<Vec<_>>() {
            view.unlink_staged(&staged, kind);
        }
        self.doomed = doomed;
        Ok(())
    }

    /// Writes the log anew. If a state was flushed, this one is flushed before it takes its place.
    fn write_whole(&mut self, view: &mut View<D>) -> Result<()> {
        view.identify_staged()?;
        let begin = (self.begin.clone(), self.note.clone());
        let mut new = ViewLog::create(view, begin, self.brought.clone())?;
        new.is_broken = self.is_broken;
        new.doomed = std::mem::take(&mut self.doomed);
        let was_flushed = self.flushed_slot.is_some();
        let flushed = match was_flushed {
            true => new.flush_all(view),
            false => Ok(()),
        };
        let in_effect = flushed.and_then(|()| new.take_effect(view));
        if let Err(errno) = in_effect {
            self.is_broken |= new.is_broken;
            self.doomed = std::mem::take(&mut new.doomed);
            return Err(errno);
        }
        *self = new;
        self.unlink_doomed(view);
        Ok(())
    }

    /// Makes the view's present state durable.
    fn flush(&mut self, view: &mut View<D>) -> Result<()> {
        view.identify_staged()?;
        self.write(view)?;
        if !self.unflushed.is_any {
            return Ok(());
        }
        self.flush_all(view)?;
        self.unlink_doomed(view);
        Ok(())
    }

    fn flush_all(&mut self, view: &mut View<D>) -> Result<()> {
        if self.is_broken {
            return Err(Errno::IO);
        }
        // A loss now would not be reported again.
        self.is_broken = true;
        self.flush_staged(view)?;
        self.append(view, vec![ViewChange::Flushed])?;
        self.records.flush(&view.core.disk, self.sequence)?;
        self.is_broken = false;
        self.unflushed = Unflushed::nothing();
        assert!(
            self.flushed_slot <= Some(view.last_slot()),
            "a slot of the flushed state can be used again"
        );
        self.flushed_slot = Some(view.last_slot());
        Ok(())
    }

    fn flush_staged(&mut self, view: &mut View<D>) -> Result<()> {
        let core = view.core.clone();
        let stage = view.stage()?;
        if self.unflushed.everything || self.unflushed.files.len() > SYNC_EACH_MAX {
            return core.disk.sync_file_system(&stage);
        }
        for id in &self.unflushed.files {
            // A file that is gone need not be flushed.
            if view.staged(*id).is_ok_and(|staged| staged.is_some()) {
                core.disk.sync(&*view.staged_file(*id)?)?;
            }
        }
        core.disk.sync_directory(&stage)
    }

    fn unlink_doomed(&mut self, view: &mut View<D>) {
        for (staged, kind) in std::mem::take(&mut self.doomed) {
            view.unlink_staged(&staged, kind);
        }
    }
}

/// Whether the staged object may be part of the state that was flushed last.
fn may_be_flushed(staged: &Staged, flushed_slot: Option<u64>) -> bool {
    let slot = match staged.parent {
        StagedParent::Slots => names::slot_number(&staged.name),
        StagedParent::Node(_) => None,
    };
    flushed_slot.is_some_and(|flushed| slot.is_none_or(|slot| slot <= flushed))
}

impl<D: Disk> View<D> {
    /// From now on the view is kept on disk as well.
    pub fn begin_log(&mut self, begin: (ViewBegin, Vec<u8>), brought: Brought) -> Result<()> {
        self.identify_staged()?;
        let begun = ViewLog::create(self, begin, brought)
            .and_then(|mut log| log.take_effect(self).map(|()| log));
        match begun {
            Ok(log) => {
                self.log = Some(Box::new(log));
                Ok(())
            }
            Err(errno) => {
                self.nodes.unlogged = None;
                Err(errno)
            }
        }
    }

    /// Like [`begin_log`](Self::begin_log), in the place of an older log, which counts until the
    /// new one is durable.
    fn begin_flushed_log(&mut self, begin: (ViewBegin, Vec<u8>), brought: Brought) -> Result<()> {
        let mut log = ViewLog::create(self, begin, brought)?;
        log.flush_all(self)?;
        log.take_effect(self)?;
        self.log = Some(Box::new(log));
        Ok(())
    }

    /// The view has another snapshot. The log is written anew with the next record.
    pub fn change_log_begin(&mut self, change: impl FnOnce(&mut ViewBegin)) {
        if let Some(log) = &mut self.log {
            change(&mut log.begin);
            log.brought.clear();
            self.nodes.note_everything();
        }
    }

    /// Notes which transaction of another store decides. The log is written anew with the next record.
    pub fn set_coordinator(&mut self, coordinator: Option<Partner>) {
        if let Some(log) = &mut self.log {
            log.begin.coordinator.clone_from(&coordinator);
            self.nodes.note_everything();
        }
        self.joint = coordinator.map(Joint::InDoubt);
    }

    pub fn is_in_doubt(&self) -> bool {
        self.coordinator().is_some()
    }

    pub fn coordinator(&self) -> Option<&Partner> {
        match &self.joint {
            Some(Joint::InDoubt(coordinator)) => Some(coordinator),
            _ => None,
        }
    }

    /// Ends the log, durably, so that no later recovery opens the transaction.
    pub fn end_log(&mut self) {
        self.nodes.unlogged = None;
        let Some(mut log) = self.log.take() else {
            return;
        };
        let ended = log.append(self, vec![ViewChange::Ended]).and_then(|()| {
            let sequence = log.sequence;
            log.records.flush(&self.core.disk, sequence)
        });
        if let Err(error) = ended {
            tracing::warn!(%error, transaction = %self.id, "its view log may be found again");
        }
    }

    /// Writes the changes to the log. Call this before a call is answered.
    pub fn record(&mut self) -> Result<()> {
        self.with_log(|log, view| log.write(view))
    }

    /// Makes everything in the view durable, if the transaction survives its service.
    pub fn flush(&mut self) -> Result<()> {
        self.with_log(|log, view| log.flush(view))
    }

    /// Sets the note that the engine's caller gets back with the transaction.
    pub fn set_note(&mut self, note: Vec<u8>) -> Result<()> {
        self.with_log(|log, view| {
            log.note.clone_from(&note);
            log.append(view, vec![ViewChange::Note(note)])
        })
    }

    fn with_log(
        &mut self,
        act: impl FnOnce(&mut ViewLog<D>, &mut View<D>) -> Result<()>,
    ) -> Result<()> {
        let Some(mut log) = self.log.take() else {
            return Ok(());
        };
        let done = act(&mut log, self);
        self.log = Some(log);
        done
    }

    /// Writes to the log what has changed while a commit had the view, and staged objects were
    /// moved. A log that cannot be written now is written with the next call.
    pub fn record_after_commit(&mut self) {
        if let Some(log) = &mut self.log {
            log.unflushed.everything = true;
        }
        if let Err(error) = self.record() {
            tracing::warn!(%error, transaction = %self.id, "its view log is behind");
        }
    }

    /// Notes that the staged file of a node is about to be written.
    pub(super) fn note_staged_write(&mut self, id: NodeId) {
        if let Some(log) = &mut self.log {
            log.unflushed.is_any = true;
            log.unflushed.files.insert(id);
        }
    }

    /// Keeps a staged object that the view does not need any more, if a state on disk may. Returns
    /// false if the caller may remove it.
    pub(super) fn dooms(&mut self, staged: &Staged, kind: Kind) -> bool {
        match &mut self.log {
            Some(log) => {
                log.doomed.push((staged.clone(), kind));
                true
            }
            None => false,
        }
    }

    /// Notes that a staged object has got a new slot, though the state that was flushed may have it.
    pub(super) fn note_moved_to_slot(&mut self) {
        let last = self.last_slot();
        if let Some(flushed) = self.log.as_mut().and_then(|log| log.flushed_slot.as_mut()) {
            *flushed = last;
        }
    }

    /// To be called before a staged file is cut: see the third invariant.
    pub(super) fn record_before_cut(&mut self, id: NodeId) -> Result<()> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let flushed = log.flushed_slot;
        let staged = self.staged(id)?;
        match staged.is_some_and(|staged| may_be_flushed(&staged, flushed)) {
            true => self.flush(),
            false => self.record(),
        }
    }

    /// To be called before staged objects are moved: see the fourth invariant.
    pub(crate) fn record_before_moves(&mut self) -> Result<()> {
        if self.log.is_none() {
            return Ok(());
        }
        self.identify_staged()?;
        self.record()
    }

    /// To be called before staged objects are moved into new directories: what the flushed state
    /// shows must not go with a directory that a crash loses.
    pub(crate) fn flush_new_directories(&mut self) -> Result<()> {
        let log = self.log.as_ref();
        if log.is_none_or(|log| log.flushed_slot.is_none()) {
            return Ok(());
        }
        let stage = self.stage()?;
        self.core.disk.sync_directory(&stage)
    }

    /// Finds out the identities of staged files.
    fn identify_staged(&mut self) -> Result<()> {
        let is_unknown = |id: &NodeId| {
            let staged = self.staged(*id).ok().flatten();
            staged.is_some_and(|staged| staged.identity.is_none())
        };
        let unknown: Vec<NodeId> = self.changed_nodes().filter(is_unknown).collect();
        for id in unknown {
            let file = self.staged_file(id)?;
            let identity = self.core.disk.stat(&file)?.identity;
            if let Some(staged) = self.staged(id)? {
                let identity = Some(identity);
                self.set_staged(id, Staged { identity, ..staged })?;
            }
        }
        Ok(())
    }
}
