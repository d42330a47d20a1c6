//! An undo that takes sides where something was changed again later, or that skips paths.
//!
//! The search for later changes reports each of them as a conflict. At its path the user may have
//! chosen a side. Theirs: the later change stays, and what the commits changed there is left out,
//! with all that cannot be taken back without it. Mine: what was there before the commits comes back,
//! and the later change is overwritten. Then the search begins anew, since to leave something out may
//! be in the way of something else, until no conflict is left or one at which no side was chosen.
//!
//! Invariants
//! 1. An undo overwrites a later change only at a path that the user has named, or that `Others`
//!    stands for, and only as it was in the snapshot: what comes later is found at the commit.
//! 2. What it overwrites is a file or a symbolic link. It never replaces a directory, or one of
//!    several names of a file. A directory goes only if it came with the undone commits, and then with
//!    every file in it named as above.
//! 3. No file becomes a mixture of both sides: what the undo brings back in place of a later change of
//!    contents is the whole file, as `restore` brings it back.
//! 4. An undo that is refused changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity};
use atomdir_types::Undo;

use crate::base::credentials::Credentials;
use crate::error::{Conflict, ConflictKind, UndoError};
use crate::ids::Sequence;
use crate::options::BeginOptions;
use crate::progress::{Meter, Progress, Steps};
use crate::store::Store;
use crate::transaction::{TakenBack, Transaction};
use crate::undo::Purpose;
use crate::undo::changes::Changes;
use crate::undo::io;
use crate::undo::left_out::Reach;
use crate::undo::look::plain;
use crate::undo::object_at;
use crate::undo::reverse::Reverse;
use crate::undo::selection::Selection;
use crate::undo::since::Since;

/// So often the search for later changes begins anew. Each time it has found at least one more path.
const TRIES_MAX: usize = 100;

const BELONGS_TOGETHER: &str = "it changed together with other paths: by a rename, in several names \
                                of a file, or in the files of a database";
const GOES_WITH_THEIRS: &str = "it belongs to another change that is left out";
const IS_NO_FILE: &str = "it is or was a directory, or is in one that the undo would remove, or others \
                          have moved or removed what the undo needs there";
const NOT_LEFT_OUT: &str = "what these commits changed there is needed for something else";
const IN_THE_PAST: &str = "how it was before these commits is not known, since outside writers have \
                           changed what commits changed as well";
const CAME_WHOLE: &str = "the directory above came or went as a whole with these commits";

/// A transaction that undoes commits, and the later changes for which a side was taken.
pub struct Undone<D: Disk> {
    pub transaction: Arc<Transaction<D>>,
    pub sided: Vec<Conflict>,
}

/// The sides that were taken because of conflicts so far.
#[derive(Default)]
struct Sides {
    /// The paths at which the later change stays.
    yielded: BTreeSet<Vec<u8>>,
    /// The paths that are made what they were, whatever was changed there since.
    restored: BTreeSet<Vec<u8>>,
    conflicts: Vec<Conflict>,
}

impl Sides {
    /// Whether all that the commits changed is taken back.
    fn leave_nothing_out(&self, choice: &Undo) -> bool {
        choice.paths.is_empty() && choice.skip.is_empty() && self.yielded.is_empty()
    }

    /// Takes the chosen sides in these conflicts. Fails with those in which none was chosen.
    fn take(&mut self, choice: &Undo, conflicts: Vec<Conflict>) -> Result<(), UndoError> {
        let mut others = Vec::new();
        let (yielded, restored) = (self.yielded.clone(), self.restored.clone());
        for conflict in conflicts {
            let Conflict { path, what, .. } = &conflict;
            if choice.overwrites(path) {
                let kinds = [
                    ConflictKind::Contents,
                    ConflictKind::Entry,
                    ConflictKind::Removed,
                ];
                if !kinds.contains(what) || restored.contains(path) {
                    return Err(not_taken(path, IS_NO_FILE));
                }
                self.restored.insert(path.clone());
            } else if choice.yields(path) {
                if yielded.contains(path) {
                    return Err(not_left_out(path, NOT_LEFT_OUT));
                }
                self.yielded.insert(path.clone());
            } else {
                others.push(conflict);
                continue;
            }
            self.conflicts.push(conflict);
        }
        match others.is_empty() {
            true => Ok(()),
            false => Err(UndoError::Conflict(others)),
        }
    }
}

fn not_taken(path: &[u8], reason: &'static str) -> UndoError {
    UndoError::NotTaken {
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
    }
}

fn not_left_out(path: &[u8], reason: &'static str) -> UndoError {
    UndoError::NotLeftOut {
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
    }
}

impl<D: Disk> Store<D> {
    /// Begins a transaction that takes back what commits changed, as chosen. The caller decides
    /// whether the user may undo these commits. `user`: on whose behalf it is, if this process has
    /// more rights. They may bring back only what is theirs, and their permissions are checked at the
    /// commit.
    pub fn undo_choosing(
        &self,
        choice: &Undo,
        user: Option<&Credentials>,
        options: BeginOptions,
    ) -> Result<Undone<D>, UndoError> {
        self.undo_reporting(choice, user, options, &mut |_| {})
    }

    /// Like [`undo_choosing`](Store::undo_choosing), and reports how far it has come.
    pub fn undo_reporting(
        &self,
        choice: &Undo,
        user: Option<&Credentials>,
        options: BeginOptions,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Undone<D>, UndoError> {
        let mut transaction = self.begin_in_base(options.clone())?;
        let mut sides = Sides::default();
        let mut tries = 0;
        loop {
            tries += 1;
            let mut meter = Meter::new(report);
            let taken_back = self.take_back(&transaction, (choice, user), &mut sides, &mut meter);
            let refused = match taken_back {
                Ok(()) => {
                    let sided = self.described(std::mem::take(&mut sides.conflicts));
                    return Ok(Undone { transaction, sided });
                }
                Err(refused) => refused,
            };
            let next = match refused {
                UndoError::Conflict(conflicts) if tries < TRIES_MAX => {
                    self.next_try(&transaction, (choice, &mut sides), conflicts, &options)
                }
                refused => Err(refused),
            };
            self.abort(&transaction);
            transaction = next?;
        }
    }

    /// The transaction for the next try, with the same snapshot. Its view has not been touched.
    fn next_try(
        &self,
        transaction: &Transaction<D>,
        (choice, sides): (&Undo, &mut Sides),
        conflicts: Vec<Conflict>,
        options: &BeginOptions,
    ) -> Result<Arc<Transaction<D>>, UndoError> {
        sides.take(choice, conflicts)?;
        let next = self.begin_beside(transaction, options.clone())?;
        // Before the other one ends, which keeps the same from being forgotten.
        if let Some(after) = transaction.used_past() {
            next.use_past(after);
        }
        Ok(next)
    }

    fn take_back(
        &self,
        transaction: &Transaction<D>,
        (choice, user): (&Undo, Option<&Credentials>),
        sides: &mut Sides,
        meter: &mut dyn Steps,
    ) -> Result<(), UndoError> {
        if let Some(user) = user {
            let restricted = transaction.restrict_to(user.clone());
            restricted.map_err(|errno| io(b"", errno))?;
        }
        let commits = &choice.commits;
        let since = self.since(transaction, commits)?;
        let mut asked_for = since.steps.iter().filter(|step| step.is_undone);
        if let Some(lost) = asked_for.clone().find(|step| step.is_given_up) {
            return Err(UndoError::NotKept(lost.sequence));
        }
        if let Some(first) = commits.first()
            && asked_for.all(|step| !step.is_commit())
        {
            return Err(UndoError::NotKept(*first));
        }
        let mut look_up = |path: &[u8]| self.change_view(transaction, |view| object_at(view, path));
        let selection = match choice.paths.is_empty() {
            true => Selection::everything(),
            false => Selection::of_paths(&since, &choice.paths, &mut look_up)?,
        };
        let (left_out, restored) = leave_out(&since, (choice, sides), &mut look_up)?;
        let changes = Changes::new(&since, &selection.without(left_out));
        let written = self.change_view(transaction, |view| {
            let mut reverse = Reverse::new(view, (&since, &changes), Purpose::Undo, meter);
            reverse.equal = &choice.equal;
            reverse.choice = Some(choice);
            let reversed = reverse.run()?;
            sides.conflicts.extend(reversed.overwritten);
            if sides.leave_nothing_out(choice) {
                let taken_back = since.steps.iter().filter(|step| step.is_undone);
                transaction.set_takes_back(TakenBack {
                    commits: taken_back.map(|step| step.sequence.0).collect(),
                    // What it has overwritten is not as if the commits had never been.
                    leaves_traces: reversed.leaves_traces || !sides.conflicts.is_empty(),
                });
            }
            Ok(view.written())
        })?;
        self.note_writes(transaction, &written);
        self.bring_back_alone(transaction, &restored)?;
        match user {
            Some(user) => self.change_view(transaction, |view| crate::undo::own::check(view, user)),
            None => Ok(()),
        }
    }

    /// Makes these paths what they were just after these commits.
    fn bring_back_alone(
        &self,
        transaction: &Transaction<D>,
        restored: &BTreeMap<Sequence, Vec<Vec<u8>>>,
    ) -> Result<(), UndoError> {
        for (commit, paths) in restored {
            let unknown = |_| not_taken(&paths[0], IN_THE_PAST);
            let options = plain(transaction.options().clone());
            let past = match self.past_beside(transaction, *commit, options) {
                Err(UndoError::Conflict(conflicts)) => return Err(unknown(conflicts)),
                past => past?,
            };
            let mut not_as_then = past.not_as_then.iter().map(|one| &one.path);
            let lost = not_as_then.find(|path| *path == b"." || paths.contains(path));
            let done = match lost {
                Some(path) => Err(not_taken(path, IN_THE_PAST)),
                None => self.restore_files(&past.transaction, transaction, paths, |path| {
                    not_taken(path, IS_NO_FILE)
                }),
            };
            self.abort(&past.transaction);
            done?;
        }
        Ok(())
    }
}

/// What is left out, and the paths that are brought back by themselves, each with the commit just
/// after which they were as they shall be again.
type LeftOut = (Selection, BTreeMap<Sequence, Vec<Vec<u8>>>);

fn leave_out(
    since: &Since,
    (choice, sides): (&Undo, &Sides),
    mut object_at: impl FnMut(&[u8]) -> Result<Option<Identity>, UndoError>,
) -> Result<LeftOut, UndoError> {
    let mut left_out = Selection::nothing();
    for path in &choice.skip {
        let is_found = left_out.add_at(since, path, Reach::Below)
            || match object_at(path)? {
                Some(object) => left_out.add_file(since, object),
                None => false,
            };
        if !is_found && Selection::nothing().add_above(since, path) {
            return Err(not_left_out(path, CAME_WHOLE));
        }
        if !is_found {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(UndoError::Untouched { path });
        }
    }
    for path in &sides.yielded {
        if !left_out.add_around(since, path) {
            return Err(not_left_out(path, NOT_LEFT_OUT));
        }
    }
    left_out.complete_for_leaving(since);
    let mut restored: BTreeMap<Sequence, Vec<Vec<u8>>> = BTreeMap::new();
    for path in &sides.restored {
        let mut alone = Selection::nothing();
        alone.add_at(since, path, Reach::Exact);
        if alone.is_within(&left_out) {
            return Err(not_taken(path, GOES_WITH_THEIRS));
        }
        alone.complete_for_leaving(since);
        let Some((first, true)) = alone.first_of(since, path) else {
            return Err(not_taken(path, BELONGS_TOGETHER));
        };
        let before = since.steps[first].sequence.0.saturating_sub(1);
        restored
            .entry(Sequence(before))
            .or_default()
            .push(path.clone());
        left_out.add_all(alone);
    }
    Ok((left_out, restored))
}

/// For the errors of the disk while a view is looked at.
pub(super) fn looked_at<T>(path: &[u8], result: Result<T, Errno>) -> Result<T, UndoError> {
    result.map_err(|errno| io(path, errno))
}
