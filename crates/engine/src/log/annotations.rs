//! What users have said about commits since these were made, and what became of the history: the
//! file `annotations`.
//!
//! Invariants
//! 1. The file is replaced as a whole and durably. What is in memory is what the file says, except
//!    when commits were last forgotten early: that may be missing in the file.
//! 2. That a commit must be confirmed is in the file before the commit is logged. So it may be said
//!    of a commit that has not happened, and of a sequence that another commit has got: the
//!    transaction's id tells.
//! 3. The history keeps what a commit replaced while it is pinned or waits to be confirmed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use atomdir_disk::{Access, Disk, Errno, Timestamp};
use atomdir_format::annotations::{Annotations, CommitAnnotation, UnconfirmedCommit};
use atomdir_format::frame;
use atomdir_format::header::StoreId;
use atomdir_types::{CommitMarks, ForgottenEarly, Unconfirmed};

use crate::base::core::Core;
use crate::control;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::lock;
use crate::log::read_records;
use crate::names;

pub(crate) struct AnnotationFile {
    now: Annotations,
    /// The commit that is being taken back, which is too late to confirm.
    pub taking_back: Option<u64>,
}

impl AnnotationFile {
    /// Reads the file, which may be missing.
    pub fn read<D: Disk>(
        disk: &D,
        control: &D::Handle,
        store: StoreId,
    ) -> Result<AnnotationFile, StoreError> {
        let opened = disk.open(control, &names::fixed(names::ANNOTATIONS), Access::Read);
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT) => {
                return Ok(AnnotationFile {
                    now: Annotations::default(),
                    taking_back: None,
                });
            }
            Err(errno) => return Err(failed("open the annotations")(errno)),
        };
        let read = read_records(disk, &file, store, u64::MAX, Some)?;
        match read.records.into_iter().next() {
            Some(now) => Ok(AnnotationFile {
                now,
                taking_back: None,
            }),
            None => Err(StoreError::Damaged {
                file: names::ANNOTATIONS,
                offset: 0,
                reason: "it holds no whole record".to_owned(),
            }),
        }
    }

    /// Changes them durably, or not at all.
    pub fn change<D: Disk>(
        &mut self,
        core: &Core<D>,
        change: impl FnOnce(&mut Annotations),
    ) -> Result<(), StoreError> {
        let mut next = self.now.clone();
        change(&mut next);
        let says_something = |one: &CommitAnnotation| one.is_pinned || one.label.is_some();
        next.commits.retain(says_something);
        if next == self.now {
            return Ok(());
        }
        let next = AnnotationFile {
            now: next,
            taking_back: self.taking_back,
        };
        let store = core.control.applied.store();
        next.write(&core.disk, &core.control.directory, store)?;
        *self = next;
        self.publish(core);
        Ok(())
    }

    /// Lets others see without the commit lock what they have to know of it.
    pub fn publish<D: Disk>(&self, core: &Core<D>) {
        let awaits = self.waiting().next().is_some();
        core.awaits_confirmation.store(awaits, Ordering::Relaxed);
        lock(&core.past_sizes).early = self.now.early;
    }

    /// Writes the file durably, if it says anything.
    pub fn write<D: Disk>(
        &self,
        disk: &D,
        control: &D::Handle,
        store: StoreId,
    ) -> Result<(), StoreError> {
        let (new, name) = (names::ANNOTATIONS_NEW, names::ANNOTATIONS);
        let failed = failed("write the annotations");
        if self.now == Annotations::default() {
            control::remove(disk, control, &names::fixed(name)).map_err(&failed)?;
            return disk.sync_directory(control).map_err(failed);
        }
        let bytes = frame::encode(store, 0, &self.now);
        control::replace(disk, control, (new, name), &bytes).map_err(failed)
    }

    /// Drops what is said of commits after the newest one: they have not happened. Returns whether
    /// there was any. Then the file is to be written before a commit can get such a sequence.
    pub fn forget_after(&mut self, newest: Sequence) -> bool {
        let unconfirmed = &mut self.now.unconfirmed;
        let before = unconfirmed.len();
        unconfirmed.retain(|one| one.sequence <= newest.0);
        unconfirmed.len() < before
    }

    /// The commits of which the history keeps what they replaced, whatever its limits.
    pub fn pins(&self) -> BTreeSet<u64> {
        let pinned = self.now.commits.iter().filter(|one| one.is_pinned);
        let waiting = self.waiting().map(|one| one.sequence);
        pinned.map(|one| one.sequence).chain(waiting).collect()
    }

    pub fn has_pins(&self) -> bool {
        self.waiting().next().is_some() || self.now.commits.iter().any(|one| one.is_pinned)
    }

    /// The commits that wait to be confirmed.
    pub fn waiting(&self) -> impl Iterator<Item = &UnconfirmedCommit> {
        let unconfirmed = self.now.unconfirmed.iter();
        unconfirmed.filter(|one| one.refused.is_none())
    }

    pub fn early(&self) -> Option<ForgottenEarly> {
        self.now.early
    }

    /// What is said now.
    pub fn now(&self) -> &Annotations {
        &self.now
    }

    /// Whether this commit is said to have to be confirmed.
    pub fn says_unconfirmed(&self, sequence: u64) -> bool {
        let mut unconfirmed = self.now.unconfirmed.iter();
        unconfirmed.any(|one| one.sequence == sequence)
    }

    pub fn note_early<D: Disk>(&mut self, core: &Core<D>, early: ForgottenEarly) {
        let noted = self.change(core, |now| now.early = Some(early));
        if let Err(error) = noted {
            // The disk may be full, which may be why they were forgotten.
            tracing::debug!(%error, "that commits were forgotten early is only in memory");
            self.now.early = Some(early);
            self.publish(core);
        }
    }
}

/// Changes what is said of a commit.
pub(crate) fn annotate(
    annotations: &mut Annotations,
    sequence: Sequence,
    change: impl FnOnce(&mut CommitAnnotation),
) {
    let commits = &mut annotations.commits;
    let place = commits.binary_search_by_key(&sequence.0, |one| one.sequence);
    let place = place.unwrap_or_else(|place| {
        let new = CommitAnnotation {
            sequence: sequence.0,
            ..CommitAnnotation::default()
        };
        commits.insert(place, new);
        place
    });
    change(&mut commits[place]);
}

/// Notes that a commit about to be logged waits to be confirmed.
pub(crate) fn await_confirmation(annotations: &mut Annotations, one: UnconfirmedCommit) {
    let unconfirmed = &mut annotations.unconfirmed;
    // An earlier commit that was to get this sequence has not happened.
    unconfirmed.retain(|other| other.sequence < one.sequence);
    unconfirmed.push(one);
}

/// Marks what the annotations say of a commit.
pub(crate) fn mark(
    annotations: &Annotations,
    (sequence, transaction): (u64, u64),
    marks: &mut CommitMarks,
) {
    let mut commits = annotations.commits.iter();
    marks.pinned = commits.any(|one| one.sequence == sequence && one.is_pinned);
    let is_of_it =
        |one: &&UnconfirmedCommit| one.sequence == sequence && one.transaction == transaction;
    let unconfirmed = annotations.unconfirmed.iter().find(is_of_it);
    marks.unconfirmed = unconfirmed.map(|one| Unconfirmed {
        due: one.due,
        refused: one.refused,
    });
}

/// So long after this moment.
pub(crate) fn later(time: Timestamp, milliseconds: u64) -> Timestamp {
    let nanoseconds = u64::from(time.nanoseconds) + milliseconds % 1000 * 1_000_000;
    let seconds = milliseconds / 1000 + nanoseconds / 1_000_000_000;
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp {
        seconds: time.seconds.saturating_add(seconds),
        nanoseconds: (nanoseconds % 1_000_000_000) as u32,
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
