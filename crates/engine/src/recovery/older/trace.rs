//! Follows objects through the past commits, oldest first, and collects what their histories need.

use std::collections::HashMap;

use atomdir_disk::{Access, Attributes, Disk, Errno, Extent, Identity, Kind, Name, Timestamp};
use atomdir_format::past::PastRecord;
use atomdir_format::record::{CommitRecord, EntryChange, Former, FormerPages, Locator, Update};

use crate::base::Changed;
use crate::base::core::Core;
use crate::base::snapshot::PAGE;
use crate::ids::Sequence;
use crate::names;
use crate::ranges::RangeSet;

/// An object, by its place in [`Trace::objects`].
pub(super) type Number = usize;

pub(super) struct Trace<'a, D: Disk> {
    core: &'a Core<D>,
    /// In ascending order.
    pub snapshots: &'a [Sequence],
    pub objects: Vec<Traced>,
    pub by_identity: HashMap<Identity, Number>,
    /// The objects that have had each inode, oldest first. A commit moves an inode that it replaces
    /// to limbo, and an undo may bring it back as another object.
    incarnations: HashMap<Identity, Vec<Number>>,
    /// Objects that got a new inode, by the old one, until that commit.
    pub replaced: Vec<(Identity, Sequence, Number)>,
}

pub(super) struct Traced {
    pub identity: Identity,
    pub kind: Option<Kind>,
    pub place: Whereabouts,
    /// The commit that made it; 0 if it was there before.
    pub born: Sequence,
    pub names: HashMap<Name, Named>,
    pub states: Vec<State>,
    pub bodies: Vec<(Sequence, Body)>,
    pub changed: Changed,
    /// The newest commit that touched it, and when that was in the base.
    pub touched: Option<(Sequence, Timestamp)>,
}

impl Traced {
    /// The inode that the last commit has replaced before which any snapshot shows the object.
    pub fn replaced_last(&self) -> Option<Identity> {
        self.states.last()?.replaced
    }
}

pub(super) enum Whereabouts {
    Unknown,
    Root,
    Entry(Number, Name),
    Limbo,
}

/// The objects that a name leads to, now and until earlier commits.
#[derive(Default)]
pub(super) struct Named {
    pub before: Vec<(Sequence, Option<Number>)>,
    pub now: Option<Number>,
}

/// The state of an object until a commit, as differences from its state afterwards.
pub(super) struct State {
    pub until: Sequence,
    /// The inode that the commit replaced by another one.
    pub replaced: Option<Identity>,
    pub former: Option<(Attributes, Timestamp, u64)>,
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// How many names it had more.
    pub links: i64,
}

pub(super) enum Body {
    /// Moved to limbo.
    Moved(Identity),
    Pages {
        saved: Name,
        pages: RangeSet,
        length: u64,
    },
}

/// One record, with indexes for lookups in it.
pub(super) struct Step<'a> {
    pub sequence: Sequence,
    /// See [`PastRecord::settled`].
    pub settled: Timestamp,
    pub is_settled_late: bool,
    pub commit: &'a CommitRecord,
    pub formers: HashMap<u32, &'a Former>,
    updates: HashMap<u32, &'a Update>,
    /// New inodes, by their index, and those that they replace.
    pub replacements: HashMap<u32, Identity>,
}

impl<'a> Step<'a> {
    fn new(record: &PastRecord, commit: &'a CommitRecord) -> Step<'a> {
        let formers = commit.before.iter().flat_map(|before| &before.objects);
        let formers: HashMap<u32, &Former> =
            formers.map(|former| (former.object, former)).collect();
        let updates = commit.updates.iter();
        let updates: HashMap<u32, &Update> =
            updates.map(|update| (update.object, update)).collect();
        let successions = commit.before.iter().flat_map(|before| &before.successions);
        let successions: HashMap<u32, Identity> =
            successions.map(|one| (one.after, one.before)).collect();
        // A file that the commit has renamed as well counts as removed and made.
        let replacements = commit.entries.iter().filter_map(|entry| {
            let after = entry.after?;
            let new = &commit.objects[after as usize];
            let is_new = matches!(new.locator, Locator::Staged { .. });
            let before = successions.get(&after).filter(|_| is_new);
            let is_in_place = before.is_some() && entry.before.as_ref() == before;
            is_in_place.then_some((after, entry.before?))
        });
        Step {
            sequence: Sequence(commit.sequence),
            settled: record.settled,
            is_settled_late: record.settled_by.is_late(),
            commit,
            formers,
            replacements: replacements.collect(),
            updates,
        }
    }

    /// Whether the name leads to the same file as before, with another inode. The same commit may
    /// also give that file a new name.
    pub fn replaces(&self, entry: &EntryChange) -> bool {
        entry.before.is_some_and(|before| {
            let old = entry.after.and_then(|after| self.replacements.get(&after));
            old == Some(&before)
        })
    }

    pub fn object(&self, index: u32) -> Identity {
        self.commit.objects[index as usize].identity
    }
}

impl<'a, D: Disk> Trace<'a, D> {
    pub fn new(core: &'a Core<D>, snapshots: &'a [Sequence]) -> Trace<'a, D> {
        let mut trace = Trace {
            core,
            snapshots,
            objects: Vec::new(),
            by_identity: HashMap::new(),
            incarnations: HashMap::new(),
            replaced: Vec::new(),
        };
        let root = trace.number(core.root_base.identity());
        trace.objects[root].place = Whereabouts::Root;
        trace.objects[root].kind = Some(Kind::Directory);
        trace
    }

    pub(super) fn number(&mut self, identity: Identity) -> Number {
        if let Some(number) = self.by_identity.get(&identity) {
            return *number;
        }
        self.set_identity(self.objects.len(), identity);
        self.objects.push(Traced {
            identity,
            kind: None,
            place: Whereabouts::Unknown,
            born: Sequence(0),
            names: HashMap::new(),
            states: Vec::new(),
            bodies: Vec::new(),
            changed: Changed::default(),
            touched: None,
        });
        self.objects.len() - 1
    }

    fn set_identity(&mut self, object: Number, identity: Identity) {
        self.by_identity.insert(identity, object);
        let incarnations = self.incarnations.entry(identity).or_default();
        incarnations.push(object);
    }

    /// The object as which an undo has brought back an inode that this object had until a commit
    /// replaced it. Later commits may have replaced the inode again.
    pub(super) fn restored_as(&self, object: Number, identity: Identity) -> Option<Number> {
        let mut incarnations = self.incarnations.get(&identity)?.iter();
        incarnations.find(|one| **one == object)?;
        incarnations.next().copied()
    }

    /// Whether a snapshot shows the version that was there from `since` until the commit.
    pub(super) fn is_shown(&self, since: Sequence, until: Sequence) -> bool {
        let mut snapshots = self.snapshots.iter();
        snapshots.any(|at| (since..until).contains(at))
    }

    /// Whether a snapshot shows the object as it was before the commit.
    pub(super) fn is_seen(&self, object: Number, until: Sequence) -> bool {
        self.is_shown(self.objects[object].born, until)
    }

    pub fn add(&mut self, record: &PastRecord) -> Result<(), String> {
        let Some(commit) = record.record.commit() else {
            return Ok(());
        };
        let step = Step::new(record, commit);
        self.add_references(&step);
        for former in step.formers.values() {
            self.add_former(&step, former)?;
        }
        self.add_entries(&step);
        Ok(())
    }

    fn add_references(&mut self, step: &Step<'_>) {
        let commit = step.commit;
        let directories = commit.directories.iter();
        for reference in directories {
            let object = self.number(reference.identity);
            self.objects[object].kind = Some(Kind::Directory);
            self.add_locator(step, object, &reference.locator);
        }
        for (index, reference) in (0..).zip(&commit.objects) {
            if step.replacements.contains_key(&index) {
                continue;
            }
            let object = self.number(reference.identity);
            self.objects[object].kind = Some(reference.kind);
            self.add_locator(step, object, &reference.locator);
        }
    }

    fn add_locator(&mut self, step: &Step<'_>, object: Number, locator: &Locator) {
        match locator {
            Locator::Root | Locator::Limbo => {}
            Locator::Staged { .. } => self.objects[object].born = step.sequence,
            Locator::Entry { directory, name } => {
                let directory = step.commit.directories[*directory as usize].identity;
                let directory = self.number(directory);
                let known = &self.objects[object];
                if matches!(known.place, Whereabouts::Unknown) && known.touched.is_none() {
                    // Nothing has moved it since the directory was made.
                    self.objects[object].born = self.objects[directory].born;
                }
                self.objects[object].place = Whereabouts::Entry(directory, name.clone());
            }
        }
    }

    fn add_former(&mut self, step: &Step<'_>, former: &Former) -> Result<(), String> {
        let sequence = step.sequence;
        let identity = step.object(former.object);
        let object = self.number(identity);
        let replacement = step.replacements.iter().find(|(_, old)| **old == identity);
        if !self.is_seen(object, sequence) {
            if let Some((new, _)) = replacement {
                self.replace(step, object, *new);
            }
            return Ok(());
        }
        self.note_found(object, former.changed);
        let update = step.updates.get(&former.object);
        let state = State {
            until: sequence,
            replaced: replacement.map(|_| identity),
            former: Some((former.attributes, former.changed, former.length)),
            xattrs: former.xattrs.clone(),
            links: 0,
        };
        self.add_state(object, state);
        if let Some((new, _)) = replacement {
            self.replace(step, object, *new);
        } else if let Some(update) = update {
            self.add_update(step, object, (former, update))?;
        }
        Ok(())
    }

    /// Notes the change of an outside writer that no later commit shows.
    fn note_found(&mut self, object: Number, changed: Timestamp) {
        let known = &mut self.objects[object];
        if known.touched.is_none_or(|(_, settled)| changed > settled) {
            known.changed.note_outside(changed);
        }
    }

    fn replace(&mut self, step: &Step<'_>, object: Number, new: u32) {
        let sequence = step.sequence;
        let old = self.objects[object].identity;
        let new = step.object(new);
        self.by_identity.remove(&old);
        self.set_identity(object, new);
        self.replaced.push((old, sequence, object));
        // Saved pages are a version only together with the pages that were not overwritten.
        let last = self.objects[object].bodies.last();
        let completes_pages = matches!(last, Some((_, Body::Pages { .. })));
        let is_shown = completes_pages || self.is_body_shown(object, sequence);
        let is_shown = is_shown && self.is_seen(object, sequence);
        let known = &mut self.objects[object];
        known.identity = new;
        if is_shown {
            known.bodies.push((sequence, Body::Moved(old)));
        }
        // The record does not say which pages are new.
        let mut all = RangeSet::default();
        all.insert(0, u64::MAX);
        let changed = &mut known.changed;
        changed.pages.push((sequence, all));
        changed.length = Some(sequence);
        changed.attributes = Some(sequence);
    }

    /// Whether a snapshot shows the contents that the commit replaces.
    fn is_body_shown(&self, object: Number, sequence: Sequence) -> bool {
        let last = self.objects[object].bodies.last();
        let since = last.map_or(Sequence(0), |(until, _)| *until);
        self.is_shown(since, sequence)
    }

    fn add_update(
        &mut self,
        step: &Step<'_>,
        object: Number,
        (former, update): (&Former, &Update),
    ) -> Result<(), String> {
        let sequence = step.sequence;
        let attributes = &update.attributes;
        let writes_attributes = !update.xattrs.is_empty()
            || attributes.mode.is_some()
            || attributes.user.is_some()
            || attributes.group.is_some()
            || (attributes.modified.is_some() && update.content.is_none());
        let written_last = self.objects[object].changed.pages.last();
        let is_new = written_last.is_none_or(|(last, _)| self.is_shown(*last, sequence));
        let changed = &mut self.objects[object].changed;
        if writes_attributes {
            changed.attributes = Some(sequence);
        }
        let Some(content) = &update.content else {
            return Ok(());
        };
        let mut written = pages(&content.extents);
        let cut = content.keep.min(content.length);
        if cut < former.length || content.length != former.length {
            changed.length = Some(sequence);
            written.insert(cut / PAGE, u64::MAX);
        }
        match changed.pages.last_mut() {
            Some((last, merged)) if !is_new => {
                *last = sequence;
                let written = written.iter();
                written.for_each(|(start, end)| merged.insert(start, end));
            }
            _ => changed.pages.push((sequence, written)),
        }
        let saved = self.save_pages(step, object, former);
        saved.map_err(|errno| {
            let reason = atomdir_disk::reason(errno);
            format!("the pages that commit {sequence} has overwritten cannot be restored: {reason}")
        })
    }

    /// Adds the pages that the commit has overwritten to the versions of the contents.
    fn save_pages(
        &mut self,
        step: &Step<'_>,
        object: Number,
        former: &Former,
    ) -> Result<(), Errno> {
        let is_shown = self.is_body_shown(object, step.sequence);
        let (disk, limbo) = (&self.core.disk, &self.core.control.limbo);
        let known = &mut self.objects[object];
        let mut overwritten = pages(&former.extents);
        let FormerPages::Carried { runs } = &former.pages else {
            let last = known.bodies.last();
            if is_shown || !matches!(last, Some((_, Body::Moved(_)))) {
                let body = Body::Pages {
                    saved: names::saved_pages(known.identity, step.sequence),
                    pages: overwritten,
                    length: former.length,
                };
                known.bodies.push((step.sequence, body));
            }
            return Ok(());
        };
        let (file, before) = match known.bodies.last_mut() {
            Some((_, Body::Moved(_))) if !is_shown => return Ok(()),
            Some((_, Body::Pages { saved, pages, .. })) if !is_shown => {
                let before = pages.clone();
                let more = overwritten.iter();
                more.for_each(|(start, end)| pages.insert(start, end));
                (disk.open(limbo, saved, Access::ReadWrite)?, before)
            }
            _ => {
                let saved = names::saved_pages(known.identity, step.sequence);
                let file = match disk.create(limbo, &saved, 0o600) {
                    Err(Errno::EXIST) => disk.open(limbo, &saved, Access::ReadWrite)?,
                    file => file?,
                };
                let body = Body::Pages {
                    saved,
                    pages: std::mem::take(&mut overwritten),
                    length: former.length,
                };
                known.bodies.push((step.sequence, body));
                (file, RangeSet::default())
            }
        };
        for run in runs {
            let end = run.offset + run.bytes.len() as u64;
            let mut at = run.offset;
            while at < end {
                let (is_saved, until) = before.run_at(at / PAGE);
                let stop = until.saturating_mul(PAGE).min(end);
                if !is_saved {
                    let bytes = (at - run.offset) as usize..(stop - run.offset) as usize;
                    disk.write_at(&file, &run.bytes[bytes], at)?;
                }
                at = stop;
            }
        }
        Ok(())
    }

    pub(super) fn add_state(&mut self, object: Number, state: State) {
        let last = self.objects[object].states.last();
        let since = last.map_or(Sequence(0), |last| last.until);
        let is_shown = last.is_none() || self.is_shown(since, state.until);
        let states = &mut self.objects[object].states;
        match states.last_mut() {
            Some(last) if last.until == state.until || !is_shown => last.merge(state),
            _ => states.push(state),
        }
    }
}

impl State {
    /// Adds the differences of a later commit.
    fn merge(&mut self, later: State) {
        if self.replaced.is_some() {
            return;
        }
        self.replaced = later.replaced;
        self.former = self.former.or(later.former);
        self.links += later.links;
        for (name, value) in later.xattrs {
            if !self.xattrs.iter().any(|(of, _)| *of == name) {
                self.xattrs.push((name, value));
            }
        }
    }
}

fn pages(extents: &[Extent]) -> RangeSet {
    let mut pages = RangeSet::default();
    for extent in extents {
        let end = extent.offset.saturating_add(extent.length);
        pages.insert(extent.offset / PAGE, end.div_ceil(PAGE));
    }
    pages
}
