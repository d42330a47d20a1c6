//! Brings a transaction's changes into the log, and from there into the base.
//!
//! A commit goes through these phases, each of which takes the result of the one before:
//!
//! 1. `prepare` turns the view into a write set, and completes its new objects in the
//!    staging directory. They are flushed, unless they are few and small: then the record
//!    will carry them (`carry`). The result is `Prepared`.
//! 2. Under the commit lock, the transaction's writes and reads are validated against what others
//!    have committed since (`validate`), and merged with it (`merge`, `in_place`, `privileges`).
//!    The file system and the user's permissions must allow the commit (`feasible`, `permitted`),
//!    and no other open transaction may hold a lock or an older write that forbids it
//!    (`contended`). The result is `Validated`.
//! 3. Still under the lock, the record is appended to the log, with the facts about the present
//!    base that it must contain (`look`). The result is a `Pending` commit in the store's queue. It
//!    is flushed together with others that wait, unless it is lazy (`group`), and the call returns
//!    once it is in the base. A deferred commit returns after the flush. If the store keeps
//!    history, the record also says what the commit replaces (`before`).
//!    A lazy commit that only makes, replaces and removes files is published here already (`early`).
//! 4. Once the record is durable, the versions that older snapshots show are kept (`keep`), and the
//!    record is applied to the base (`publish`). An obstacle may have appeared in the base since
//!    the check. If the base has not changed yet, the commit is then cancelled (`cancel`), or set
//!    aside if it is lazy (`aside`). Otherwise it is stalled (`stalled`).
//!
//! Much later a checkpoint flushes the base and drops the log (`checkpoint`). The commit of a
//! nested transaction only replaces the outer one's view (`nested`). A transaction may also land
//! a part of its changes and stay open (`landing`). A commit may take sides in conflicts
//! (`resolve`). A transaction may also get a newer snapshot (`refresh`), or go as far as the log and
//! wait there for what a commit in another store decides (`in_doubt`).
//!
//! Invariants
//! 1. Everything that a record refers to survives a crash once the record is appended: staged
//!    objects were flushed, or the record carries them.
//! 2. The base changes only after the record is durable.
//! 3. Before the record is appended, a failure leaves the transaction open and the base untouched.
//!    The same holds if the commit is cancelled. After any other failure the transaction has ended,
//!    and the error is [`CommitError::Logged`]. A flush that fails poisons the store, and so does
//!    an error of the disk while the record is applied.

pub(crate) mod aside;
pub(crate) mod before;
mod cancel;
pub(crate) mod carry;
pub(crate) mod checkpoint;
mod contended;
pub(crate) mod early;
mod epochs;
pub(crate) mod equal;
pub(crate) mod feasible;
pub(crate) mod group;
pub(crate) mod guarded;
mod in_doubt;
pub(crate) mod in_place;
mod into_overlay;
pub(crate) mod keep;
pub(crate) mod landing;
pub(crate) mod look;
pub(crate) mod merge;
mod nested;
pub(crate) mod permitted;
pub(crate) mod placements;
pub(crate) mod prepare;
mod privileges;
pub(crate) mod publish;
pub(crate) mod refresh;
mod refuse;
pub(crate) mod remember;
pub(crate) mod resolve;
pub(crate) mod stalled;
mod terms;
pub(crate) mod validate;
mod wanted;

use std::collections::BTreeSet;

use atomdir_disk::Disk;
use atomdir_format::record::CommitRecord;
use atomdir_types::{ChangeLine, TreePath};

use crate::base::ahead::Found;
use crate::base::credentials::Credentials;
use crate::commit::before::look_before;
use crate::commit::carry::{carry, carry_some_pages};
use crate::commit::equal::Equal;
use crate::commit::look::look_at_base;
use crate::commit::prepare::{Chosen, Prepared};
use crate::commit::resolve::{Accepted, Taken};
use crate::error::{CommitError, Conflict, Stalled, StoreError};
use crate::ids::Sequence;
use crate::lock;
use crate::log::record_builder;
use crate::options::Durability;
use crate::progress::{Meter, Progress};
use crate::rules::Rule;
use crate::seen::Seen;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::queue::Logged;
use crate::transaction::Transaction;
use crate::transaction::listed::Listed;
use crate::view::part::Part;
use crate::view::{Outdated, View};
use crate::write_set::{Carried, Staging, WriteSet};

pub use wanted::Portion;
use wanted::Wanted;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    /// `None`: nothing had changed, or it became part of an outer transaction.
    pub sequence: Option<Sequence>,
    /// How many paths were changed.
    pub changes: u64,
    /// Cached data that the commit has made outdated: in the outer view for a nested transaction,
    /// and in the transaction's own view for the commit of a part.
    pub outdated: Vec<Outdated>,
    /// The changes that a commit of a part has landed, sorted by path.
    pub landed: Vec<ChangeLine<TreePath>>,
    /// The changes for which their side was taken, sorted by path.
    pub dropped: Vec<ChangeLine<TreePath>>,
    /// The commit is durable, and the base will show it once this is out of the way.
    pub stalled: Option<Stalled>,
}

/// A prepared write set that may be logged. Nothing that it overwrites has changed, nor anything
/// that the transaction has read and that must be unchanged, and the base will take it. It is valid
/// as long as the commit lock is held.
struct Validated {
    set: WriteSet,
    /// The attributes that validation has read.
    seen: Seen,
    staging: Staging,
    carried: Carried,
    /// The user with whose rights the commit is applied, if not with those of this process.
    acting: Option<Credentials>,
    leans_on: BTreeSet<Sequence>,
}

impl<D: Disk> Store<D> {
    pub fn commit(&self, transaction: &Transaction<D>) -> Result<Committed, CommitError> {
        self.commit_portion(transaction, Portion::All, &mut |_| {})
    }

    /// Commits so much of a transaction, and reports now and then how far it is.
    pub fn commit_portion(
        &self,
        transaction: &Transaction<D>,
        portion: Portion<'_>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let Some(outer) = transaction.outer() else {
            return self.commit_to_base(transaction, Wanted::Portion(portion), report);
        };
        let reason = match portion {
            Portion::All => return self.commit_nested(outer, transaction),
            Portion::Part { .. } => "it is nested, and the outer one can land a part",
            Portion::Sides(_) => {
                "it is nested, and conflicts appear when the outer one is committed"
            }
        };
        Err(CommitError::OnlyWhole { reason })
    }

    fn commit_to_base(
        &self,
        transaction: &Transaction<D>,
        wanted: Wanted<'_>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        if let Some(at) = transaction.past() {
            return Err(CommitError::Past { at });
        }
        let met = transaction.met();
        if !met.is_empty() {
            return Err(CommitError::Conflict(met));
        }
        let mut refused = Vec::new();
        let committed = loop {
            let committed = self.commit_outermost(transaction, (wanted, &refused), report);
            match &committed {
                // A commit that was set aside is tried again anyway.
                _ if !matches!(wanted, Wanted::AsSetAside) && self.helps_to_repeat(&committed) => {}
                Err(CommitError::Conflict(conflicts))
                    if refused.is_empty() && equal::may_be_equal(conflicts) =>
                {
                    refused.clone_from(conflicts);
                }
                _ => break committed,
            }
        };
        let committed = committed.map_err(|error| self.with_authors(error));
        if committed.is_err() {
            self.0.contention.writers.leave_commit(transaction.id());
            if !matches!(wanted, Wanted::AsSetAside) {
                self.retry_sooner(transaction.id());
            }
        }
        committed
    }

    /// `refused`: the conflicts that a first try has met, in which what others have changed may be
    /// equal to what the transaction has.
    fn commit_outermost(
        &self,
        transaction: &Transaction<D>,
        (wanted, refused): (Wanted<'_>, &[Conflict]),
        report: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let mut meter = Meter::new(report);
        let mut committing = transaction.view.take_for_commit();
        let view = committing.view.as_mut().ok_or(CommitError::Ended)?;
        self.refuse_if_poisoned()?;
        self.retry_stalled()?;
        if let Some(nested) = view.nested() {
            return Err(CommitError::Nested { nested });
        }
        if self.is_removed() {
            return Err(StoreError::Removed.into());
        }
        in_doubt::refuse(transaction, view, wanted)?;
        let portion = match wanted {
            Wanted::AsSetAside if !transaction.is_as_set_aside() => {
                return Ok(Committed::default());
            }
            Wanted::AsSetAside | Wanted::Vote(_) | Wanted::Coordinated => Portion::All,
            Wanted::Portion(portion) | Wanted::Decided(portion) => portion,
        };
        let (is_part, label) = match portion {
            Portion::Part { label, .. } => (true, label),
            _ => (false, None),
        };
        if !matches!(portion, Portion::All) {
            transaction.leave_to_user();
        }
        let equal = equal::find(view, refused, is_part).map_err(|error| self.heed_flush(error))?;
        if equal.is_empty() && !refused.is_empty() {
            return Err(CommitError::Conflict(refused.to_vec()));
        }
        let (part, taken) = choose(transaction, view, (portion, &equal))?;
        let chosen = Chosen {
            part: part.as_ref().or(taken.part.as_ref()),
            anew: Some(&taken.anew),
            equal: Some(&equal),
        };
        view.release_savepoints();
        view.write_ahead();
        let prepare = || self.prepare_on_terms(transaction, view, (chosen, &mut meter));
        let mut prepared =
            at_its_expense(transaction, prepare).map_err(|error| self.heed_flush(error))?;
        let changes = prepared.set.summary.len() as u64;
        if prepared.set.is_empty() {
            self.leave_unchanged(
                transaction,
                view,
                (&mut prepared.set, equal),
                (wanted, refused),
            )?;
            drop(committing);
            if !is_part && !matches!(wanted, Wanted::Vote(_)) {
                self.end_unchanged(transaction);
            }
            return Ok(Committed {
                dropped: taken.dropped,
                ..Committed::default()
            });
        }
        let may_lean = matches!(wanted, Wanted::Portion(Portion::All) | Wanted::Coordinated)
            && equal.is_empty();
        let mut state = self.lock_for(view, &prepared.set, may_lean)?;
        early::refuse_vanished(&state.queue, view)?;
        if matches!(wanted, Wanted::AsSetAside) {
            // Validation would take a mount that is still there for a change from outside.
            let set = (&prepared.set, &Found::default());
            feasible::check_again(&self.0.core, set, &Seen::default())?;
        }
        let validated =
            self.validate(transaction, view, (prepared, is_part), (&taken.mine, equal))?;
        self.0.core.stages.note_slots(view.last_slot());
        if let Wanted::Vote(coordinator) = wanted {
            self.enter_doubt(transaction, view, coordinator);
            return Ok(Committed::default());
        }
        let logged = self.append(transaction, &mut state, (validated, label))?;
        if let Some(part) = part {
            return self.land(state, (logged, part), committing, &mut meter);
        }
        let sequence = Sequence(logged.record.sequence);
        let stalled = self.conclude(transaction, (state, logged), committing, &mut meter)?;
        Ok(Committed {
            sequence: Some(sequence),
            changes,
            dropped: taken.dropped,
            stalled,
            ..Committed::default()
        })
    }

    /// Checks and notes what a commit of nothing needs.
    fn leave_unchanged(
        &self,
        transaction: &Transaction<D>,
        view: &mut View<D>,
        (set, equal): (&mut WriteSet, Equal),
        (wanted, refused): (Wanted<'_>, &[Conflict]),
    ) -> Result<(), CommitError> {
        in_doubt::leave_unchanged(view, wanted, refused)?;
        if view.reads.is_some() || !equal.is_empty() {
            let _held = self.lock_for_reads()?;
            view.is_validated = true;
            self.refuse_conflicts(transaction, view, (set, Accepted::of(equal)))?;
        }
        // A durable commit makes all before it durable, even if it changes nothing.
        match transaction.durability() {
            Durability::Durable => self.apply_pending()?,
            Durability::Deferred => self.flush_newest()?,
            Durability::Lazy => {}
        }
        Ok(())
    }

    /// Poisons the store if a flush of staged files has failed.
    fn heed_flush(&self, error: CommitError) -> CommitError {
        match error {
            CommitError::Store(StoreError::Poisoned { reason }) => self.poison(reason).into(),
            error => error,
        }
    }

    /// The commit lock is held from here until the record is appended.
    fn validate(
        &self,
        transaction: &Transaction<D>,
        view: &mut View<D>,
        (prepared, is_part): (Prepared, bool),
        (mine, equal): (&[Listed], Equal),
    ) -> Result<Validated, CommitError> {
        let Prepared { mut set, staging } = prepared;
        merge::correct_places(view, &set);
        let mut accepted = resolve::accept(&self.0.core, transaction.owner(), &mut set, mine)?;
        accepted.equal = equal;
        let seen = self.refuse_conflicts(transaction, view, (&mut set, accepted))?;
        if is_part {
            landing::refuse_merged(view, &set)?;
        }
        in_place::choose(view, &mut set, &self.0.gate).map_err(|error| self.heed_flush(error))?;
        self.refuse_locked(transaction, &set)?;
        if !view.is_in_doubt() {
            self.refuse_written(transaction, view)?;
        }
        if let Some(user) = &view.restricted_to {
            permitted::check(&self.0.core, &set, user)?;
        }
        feasible::check(&self.0.core, &set, &seen)?;
        privileges::take(&self.0.core, transaction.owner(), &mut set)?;
        at_its_expense(transaction, || {
            merge::refresh_replacements(view, transaction.owner(), &set, staging)
        })
        .map_err(|error| self.heed_flush(error))?;
        let carried = match staging {
            Staging::Flushed => carry_some_pages(view, &set),
            Staging::Carried => carry(view, &set),
        };
        let carried = carried.map_err(|errno| CommitError::io("stage", b"", errno))?;
        Ok(Validated {
            set,
            seen,
            staging,
            carried,
            acting: view.restricted_to.clone(),
            leans_on: view.leans_on.all(),
        })
    }

    fn append_commit(
        &self,
        transaction: &Transaction<D>,
        state: &mut CommitState<D>,
        (validated, label): (Validated, Option<&[u8]>),
    ) -> Result<Logged<D>, CommitError> {
        let is_stalled = lock(&self.0.stalled).is_some();
        assert!(!is_stalled, "nothing is appended behind a stalled commit");
        let Validated {
            set,
            seen,
            staging,
            carried,
            acting,
            leans_on,
        } = validated;
        let core = &*self.0.core;
        let held = state.queue.commits.iter();
        let held: usize = held.map(|pending| pending.writers.len()).sum();
        let writers_max = (core.options.handles_max / 4).saturating_sub(held);
        let (mut present, writers) =
            look_at_base(core, (&set, &seen), writers_max, acting.as_ref())?;
        for (directory, modified) in &mut present.directory_times {
            if Rule::GroupDirectoryTimes.holds() {
                *modified = core.on_the_way.modified(*directory).unwrap_or(*modified);
            }
        }
        let sequence = state.journal.newest.next();
        let had_garbage = state.journal.has_garbage;
        let keeps = state.history.is_some() || state.journal.annotations.has_pins();
        let before = match keeps || self.held_past().is_some() {
            false => None,
            true => {
                // If the record is not appended, a file with pages may be left over.
                state.journal.has_garbage = true;
                let before = look_before(core, (&set, &seen), sequence);
                let (mut before, former) = before.map_err(|error| self.heed_flush(error))?;
                transaction.add_taken_back(&mut before, state.newest_undo);
                present.former = former;
                Some(before)
            }
        };
        let now = core.options.clock.now();
        let head = CommitRecord {
            sequence: sequence.0,
            transaction: transaction.id().0,
            stage: core.stages.of(transaction.id()).0,
            time: now,
            user: transaction.owner(),
            groups: acting.map(|user| user.groups),
            is_outside: false,
            label: label.map_or_else(|| transaction.label(), <[u8]>::to_vec),
            directories: Vec::new(),
            objects: Vec::new(),
            entries: Vec::new(),
            updates: Vec::new(),
            made: Vec::new(),
            summary: set.summary.clone(),
            before,
        };
        self.await_confirmation(transaction, state, (sequence, now))?;
        let record = record_builder::build(&set, &carried, head, &present);
        state.fill_reserve(core, &set)?;
        let appended = state.journal.log.append(&core.disk, &record);
        appended.map_err(|errno| CommitError::io("write", b".atomdir/log", errno))?;
        state.journal.note_appended(&record);
        state.note_size(core);
        state.note_undo(&record);
        self.0.flusher.note_appended(sequence);
        state.journal.has_garbage = had_garbage;
        state.last_commit = Some(now);
        Ok(Logged {
            record,
            set,
            seen,
            staging,
            writers,
            leans_on,
            carried: carried.created,
        })
    }
}

/// The part that is to land, and the sides that are taken.
fn choose<D: Disk>(
    transaction: &Transaction<D>,
    view: &mut View<D>,
    (portion, equal): (Portion<'_>, &Equal),
) -> Result<(Option<Part>, Taken), CommitError> {
    Ok(match portion {
        Portion::All => (None, Taken::default()),
        Portion::Part { paths, .. } => {
            let mut part = landing::choose(view, paths)?;
            // They stay changes of the view.
            part.leave_out(equal.creations.values().map(|one| &one.path), view);
            (Some(part), Taken::default())
        }
        Portion::Sides(sides) => {
            let listed = lock(&transaction.listed).clone();
            let take = || resolve::take_sides(view, &listed, sides);
            (None, at_its_expense(transaction, take)?)
        }
    })
}

/// Charges the staged data to the transaction's owner. The log, the reserve and the base are not
/// charged, because a logged commit must succeed.
fn at_its_expense<D: Disk, T>(
    transaction: &Transaction<D>,
    stage: impl FnOnce() -> Result<T, CommitError>,
) -> Result<T, CommitError> {
    let charge = transaction.charge();
    let _charge = charge.map_err(|errno| CommitError::io("stage", b"", errno))?;
    stage()
}
