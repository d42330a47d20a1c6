//! Logged commits that are not yet in the base, and which other commits may be logged
//! behind them: see the third invariant of `commit::group`.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use atomdir_disk::{Disk, Identity, Kind};
use atomdir_format::record::CommitRecord;

use crate::apply::{ApplyProgress, WritableFiles};
use crate::base::ahead::{AheadChange, Found};
use crate::base::carried::CarriedObject;
use crate::base::core::Core;
use crate::base::on_the_way::{Footprint, Looking};
use crate::base::{Base, Place, above};
use crate::error::CommitError;
use crate::ids::Sequence;
use crate::rules::Rule;
use crate::seen::Seen;
use crate::transaction::Transaction;
use crate::view::View;
use crate::view::part::Part;
use crate::view::read_set::{EntriesRead, ObjectReads};
use crate::write_set::{Object, Staging, WriteSet};

/// A commit whose record has just been appended to the log.
pub(crate) struct Logged<D: Disk> {
    pub record: CommitRecord,
    pub set: WriteSet,
    /// The attributes that validation has read.
    pub seen: Seen,
    pub staging: Staging,
    /// The files that the commit changes in place, opened before its record was
    /// logged. So they are certainly writable, and nobody can execute them meanwhile.
    pub writers: WritableFiles<D>,
    pub leans_on: BTreeSet<Sequence>,
    /// The new objects, if the record carries them.
    pub carried: Vec<Arc<CarriedObject>>,
}

/// A logged commit that is not yet in the base.
pub(crate) struct Pending<D: Disk> {
    pub record: CommitRecord,
    pub set: WriteSet,
    pub seen: Seen,
    pub staging: Staging,
    pub writers: WritableFiles<D>,
    pub waiter: Waiter<D>,
    /// The space that it needs when it is applied.
    pub pages: u64,
    /// How far publishing came, if it was tried before.
    pub attempt: Option<Attempt>,
    /// If the known objects show it before it is in the base.
    pub early: Option<Early>,
    /// Commits that were published early, of which this one knows (`commit::early`).
    pub leans_on: BTreeSet<Sequence>,
    /// The staging directory is needed after this commit is in the base.
    pub keeps_stage: bool,
}

/// What a commit that is published early has changed in what is known of the base (`commit::early`).
pub(crate) struct Early {
    pub found: Found,
    pub change: AheadChange,
    /// The commits that had changed the names before.
    pub changed_names: Vec<Option<Sequence>>,
    /// What it keeps for older snapshots. `None` once it is being applied.
    pub kept: Option<Attempt>,
}

impl Early {
    /// The serials of the objects that it has made.
    pub fn serials(&self) -> impl Iterator<Item = u64> + '_ {
        self.change.put().map(|(_, base, _)| base.serial)
    }
}

/// The caller that waits until a logged commit is in the base, if there is one.
pub(crate) enum Waiter<D: Disk> {
    /// The commit's caller. If it is cancelled, that caller gets the error.
    Caller,
    /// The caller of the commit of a part, whose transaction stays open.
    CallerOfPart(Landing<D>),
    /// Nobody: the commit is lazy, and its call has returned. It can still be set aside.
    Returned(Returned<D>),
    /// Nobody, and the commit cannot be cancelled any more. It was reported as stalled, perhaps as
    /// that of a part; or it is a lazy one that has passed the second check.
    Nobody(Option<Landing<D>>),
}

impl<D: Disk> Pending<D> {
    /// A commit with which its transaction ends.
    pub fn whole(logged: Logged<D>, waiter: Waiter<D>, keeps_stage: bool) -> Pending<D> {
        Pending {
            pages: logged.set.pages_in_place(),
            record: logged.record,
            set: logged.set,
            seen: logged.seen,
            staging: logged.staging,
            writers: logged.writers,
            waiter,
            attempt: None,
            early: None,
            leans_on: logged.leans_on,
            keeps_stage,
        }
    }

    pub fn part(logged: Logged<D>, landing: Landing<D>) -> Pending<D> {
        Pending::whole(logged, Waiter::CallerOfPart(landing), true)
    }

    pub fn sequence(&self) -> Sequence {
        Sequence(self.record.sequence)
    }

    /// Whether another commit is applied together with this one and as many others. What was tried
    /// once is tried again with the same.
    pub fn goes_with(&self, next: &Pending<D>, commits: usize) -> bool {
        let together = self
            .attempt
            .as_ref()
            .map_or(BATCH_MAX, |tried| tried.commits);
        self.early.is_some() && next.early.is_some() && commits < together
    }

    pub fn landing(&self) -> Option<&Landing<D>> {
        match &self.waiter {
            Waiter::CallerOfPart(landing) | Waiter::Nobody(Some(landing)) => Some(landing),
            Waiter::Caller | Waiter::Returned(_) | Waiter::Nobody(None) => None,
        }
    }

    /// Its transaction has ended, or goes on.
    pub fn take_landing(&mut self) -> Option<Landing<D>> {
        match std::mem::replace(&mut self.waiter, Waiter::Caller) {
            Waiter::CallerOfPart(landing) => Some(landing),
            Waiter::Nobody(landing) => {
                self.waiter = Waiter::Nobody(None);
                landing
            }
            waiter @ (Waiter::Caller | Waiter::Returned(_)) => {
                self.waiter = waiter;
                None
            }
        }
    }

    /// A lazy commit cannot be set aside any more.
    pub fn take_returned(&mut self) -> Option<Returned<D>> {
        match std::mem::replace(&mut self.waiter, Waiter::Nobody(None)) {
            Waiter::Returned(returned) => Some(returned),
            waiter => {
                self.waiter = waiter;
                None
            }
        }
    }

    /// Whether the call that commits has returned.
    pub fn has_returned(&self) -> bool {
        matches!(self.waiter, Waiter::Returned(_) | Waiter::Nobody(_))
    }

    pub fn may_be_cancelled(&self) -> bool {
        !matches!(self.waiter, Waiter::Nobody(_)) && self.attempt.is_none()
    }
}

pub(crate) struct Queue<D: Disk> {
    /// In the order of the log.
    pub commits: VecDeque<Pending<D>>,
    /// Commits that were cancelled, and why, until the threads that wait for them have learned
    /// it.
    pub cancelled: BTreeMap<Sequence, CommitError>,
    /// Commits that were published early and then cancelled, each with one of its paths.
    pub vanished: BTreeMap<Sequence, Vec<u8>>,
    /// What could not be applied, which has poisoned the store. It stays on the way, so its objects
    /// must stay known: who finds one anew may not read it either.
    pub failed: Vec<WriteSet>,
}

impl<D: Disk> Default for Queue<D> {
    fn default() -> Self {
        Queue {
            commits: VecDeque::new(),
            cancelled: BTreeMap::new(),
            vanished: BTreeMap::new(),
            failed: Vec::new(),
        }
    }
}

/// A transaction whose commit has returned, and that is opened again if the base cannot take it.
pub(crate) struct Returned<D: Disk> {
    pub transaction: Arc<Transaction<D>>,
    pub view: View<D>,
}

/// The view of a transaction, while a part of its changes is on the way to the base.
pub(crate) struct Landing<D: Disk> {
    pub transaction: Arc<Transaction<D>>,
    /// `None` once the transaction's end has taken it.
    pub view: Option<View<D>>,
    pub part: Part,
}

impl<D: Disk> Drop for Landing<D> {
    fn drop(&mut self) {
        self.transaction.view.give_back(self.view.take());
    }
}

/// How many commits are applied as one: others wait meanwhile.
const BATCH_MAX: usize = 256;

/// They take memory, and who waits for one of them waits for all.
const COMMITS_MAX: usize = 1024;
const CHANGES_MAX: usize = 4096;

/// A commit that has met an obstacle: the third state in `commit::stalled`.
pub(crate) struct Attempt {
    /// `Some` while snapshots are open: they need all objects that lose their last
    /// name, except these.
    pub keeps_but: Option<HashSet<Identity>>,
    pub progress: ApplyProgress,
    /// Objects that were being moved, and the places they had before. Publishing
    /// starts again from those places.
    pub moved: Vec<(Arc<Base>, Place)>,
    /// How many commits are applied together.
    pub commits: usize,
}

impl Attempt {
    pub fn new(keeps_but: Option<HashSet<Identity>>, closed: HashSet<Identity>) -> Attempt {
        Attempt {
            keeps_but,
            progress: ApplyProgress::leaving(closed),
            moved: Vec::new(),
            commits: 1,
        }
    }

    /// For commits that are published early and applied together: what they have kept. `None` for
    /// others.
    pub fn kept_by<D: Disk>(batch: &mut [Pending<D>]) -> Option<Attempt> {
        let commits = batch.len();
        let (mut unseen, mut closed) = (HashSet::new(), HashSet::new());
        let mut is_needed = false;
        for pending in batch {
            let early = pending.early.as_mut()?;
            let kept = early.kept.take()?;
            closed.extend(kept.progress.into_closed());
            is_needed |= kept.keeps_but.is_some();
            match kept.keeps_but {
                Some(but) => unseen.extend(but),
                // No snapshot needs what it replaces or removes.
                None => unseen.extend(early.found.all().map(|before| before.identity)),
            }
        }
        Some(Attempt {
            commits,
            ..Attempt::new(is_needed.then_some(unseen), closed)
        })
    }

    pub fn restore_places(&mut self) {
        for (base, place) in self.moved.drain(..) {
            base.state().place = place;
        }
    }
}

impl<D: Disk> Queue<D> {
    /// Whether a commit can be validated and appended while these wait.
    pub fn admits(&self, view: &View<D>, set: &WriteSet, may_lean: bool) -> bool {
        if self.commits.is_empty() {
            return true;
        }
        let (core, reads) = (&view.core, view.reads.as_ref());
        let has_room = self.commits.len() < COMMITS_MAX;
        let is_small = |count: usize| count <= CHANGES_MAX;
        has_room
            && is_small(set.entries.len())
            && reads.is_none_or(|reads| is_small(reads.len()))
            && core
                .on_the_way
                .look(|waiting| is_apart((view, may_lean), set, waiting))
    }

    /// From now on a snapshot may show the commit.
    pub fn push(&mut self, core: &Core<D>, pending: Pending<D>) {
        let sequence = Sequence(pending.record.sequence);
        let mut footprint = footprint(&pending.set);
        if let Some(early) = &pending.early {
            footprint.is_early = true;
            footprint.objects.extend(early.serials());
            footprint.changed.extend(early.serials());
        }
        core.on_the_way.enter(sequence, footprint);
        self.commits.push_back(pending);
    }

    pub fn find_mut(&mut self, sequence: Sequence) -> Option<&mut Pending<D>> {
        let at = self.position(sequence)?;
        self.commits.get_mut(at)
    }

    /// The commits that lean on this one, which has just been taken out, oldest first.
    pub fn leaning_on(&self, pending: &Pending<D>) -> Vec<Sequence> {
        let mut of = BTreeSet::from([Sequence(pending.record.sequence)]);
        let mut leaning = Vec::new();
        for behind in &self.commits {
            if !behind.leans_on.is_disjoint(&of) {
                let sequence = Sequence(behind.record.sequence);
                of.insert(sequence);
                leaning.push(sequence);
            }
        }
        leaning
    }

    pub fn take_out(&mut self, sequence: Sequence) -> Option<Pending<D>> {
        let at = self.position(sequence)?;
        self.commits.remove(at)
    }

    pub fn put_back(&mut self, pending: Pending<D>) {
        let sequence = pending.record.sequence;
        let at = self
            .commits
            .partition_point(|one| one.record.sequence < sequence);
        self.commits.insert(at, pending);
    }

    fn position(&self, sequence: Sequence) -> Option<usize> {
        let of = |pending: &Pending<D>| Sequence(pending.record.sequence);
        self.commits.binary_search_by_key(&sequence, of).ok()
    }

    pub fn holds(&self, sequence: Sequence) -> bool {
        let mut waiting = self.commits.iter();
        waiting.any(|pending| pending.record.sequence == sequence.0)
    }

    /// The commit call returns before the commit is in the base. From now on it cannot be
    /// cancelled.
    pub fn note_returned(&mut self, sequence: Sequence) {
        let mut waiting = self.commits.iter_mut();
        let pending = waiting.find(|pending| pending.record.sequence == sequence.0);
        if let Some(pending) = pending {
            match std::mem::replace(&mut pending.waiter, Waiter::Nobody(None)) {
                Waiter::CallerOfPart(landing) => pending.waiter = Waiter::Nobody(Some(landing)),
                waiter @ Waiter::Nobody(Some(_)) => pending.waiter = waiter,
                Waiter::Caller | Waiter::Returned(_) | Waiter::Nobody(None) => {}
            }
        }
    }
}

/// The parts of the base that the commit touches.
fn footprint(set: &WriteSet) -> Footprint {
    let mut footprint = Footprint {
        moves_directories: !set.removed_directories.is_empty(),
        ..Footprint::default()
    };
    for entry in &set.entries {
        let after = match &entry.after {
            Some(Object::Base(base)) => Some(base),
            _ => None,
        };
        if let Object::Base(directory) = &entry.directory {
            footprint.objects.insert(directory.serial);
            let name = (directory.serial, entry.name.clone());
            footprint.entries.insert(name);
            let change = footprint.directories.entry(directory.serial).or_default();
            let is_directory = |kind: Kind| i32::from(kind == Kind::Directory);
            change.directories += match &entry.after {
                Some(Object::Base(base)) => is_directory(base.kind),
                Some(Object::Created(index)) => is_directory(set.created[*index].kind),
                None => 0,
            };
            change.directories -= entry
                .before
                .as_ref()
                .map_or(0, |base| is_directory(base.kind));
        }
        for base in entry.before.iter().chain(after) {
            note_changed(&mut footprint, base);
        }
    }
    for object in &set.objects {
        let serial = object.base.serial;
        footprint.objects.insert(serial);
        if !object.is_implied {
            footprint.changed.insert(serial);
        }
        let contents = object.contents.as_ref();
        if contents.is_some_and(|contents| contents.replacement.is_some()) {
            // A listing shows the number of the new inode.
            let above = above(&object.base).next();
            footprint
                .listings
                .extend(above.map(|directory| directory.serial));
        }
        if object.base.kind == Kind::Directory && object.attributes.modified.is_some() {
            let change = footprint.directories.entry(serial).or_default();
            change.modified = object.attributes.modified;
        }
    }
    for base in set.dying.values() {
        note_changed(&mut footprint, base);
    }
    for removed in &set.removed_directories {
        // They have fewer names afterwards.
        for (_, base) in set.survivors(removed) {
            note_changed(&mut footprint, base);
        }
    }
    footprint
}

fn note_changed(footprint: &mut Footprint, base: &Base) {
    footprint.objects.insert(base.serial);
    footprint.changed.insert(base.serial);
    footprint.moves_directories |= base.kind == Kind::Directory;
}

fn is_apart<D: Disk>(
    (view, may_lean): (&View<D>, bool),
    set: &WriteSet,
    waiting: &Looking<'_>,
) -> bool {
    let footprint = footprint(set);
    let reads = view.reads.as_ref();
    if waiting.has_early() {
        let below = waiting.early_below(&footprint);
        let are_shown = below.iter().all(|one| *one <= view.at);
        let leans = may_lean && view.may_lean() && are_shown;
        if reads.is_some() || !(leans || below.is_empty()) {
            return false;
        }
        below.into_iter().for_each(|one| view.leans_on.note(one));
    }
    let meets = |rule: Rule, is_apart: bool| rule.holds() && !is_apart;
    let moves_directories = footprint.moves_directories || waiting.moves_directories();
    let mut objects = footprint.objects.iter();
    let touches = objects.any(|serial| waiting.changes(*serial));
    let mut entries = footprint.entries.iter();
    let same_entries = entries.any(|key| waiting.changes_entry(key));
    !meets(Rule::GroupMovedDirectory, !moves_directories)
        && !meets(Rule::GroupTouchesWhatWaits, !touches)
        && !meets(Rule::GroupEntries, !same_entries)
        && reads.is_none_or(|reads| !reads.iter().any(|read| has_changed(read, waiting)))
}

/// Whether a waiting commit changes anything that was read.
fn has_changed(read: &ObjectReads, waiting: &Looking<'_>) -> bool {
    let serial = read.base.serial;
    let changes_entries = match &read.entries {
        EntriesRead::None => false,
        EntriesRead::Names(names) => {
            let mut names = names.keys();
            names.any(|name| waiting.changes_entry(&(serial, name.clone())))
                && Rule::GroupReadNames.holds()
        }
        EntriesRead::Listed(_) | EntriesRead::Torn => {
            waiting.touches(serial) && Rule::GroupReadListing.holds()
        }
    };
    changes_entries || (waiting.changes(serial) && Rule::GroupReadChanged.holds())
}
