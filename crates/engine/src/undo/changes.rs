//! Composes the changes of the undone commits into one change, and collects what other commits
//! have changed since.

use std::collections::{BTreeMap, HashMap, HashSet};

use atomdir_disk::{Identity, Kind, Name, Timestamp};
use atomdir_format::record::{EntryChange, Former, Update};
use atomdir_types::TreePath;

use crate::ids::Sequence;
use crate::undo::between::{Between, between};
use crate::undo::selection::Selection;
use crate::undo::since::{Since, Step};

/// An entry: the directory's identity, and the name.
pub(super) type Key = (Identity, Name);

#[derive(Default)]
pub(super) struct Changes {
    /// The entries that the undone commits changed.
    pub names: BTreeMap<Key, NameUndone>,
    /// Entries that are again what they were before the first undone commit, and that other
    /// commits or outside writers have changed between the undone ones.
    pub broken: Vec<(Key, NameUndone)>,
    /// Files that other commits have renamed or replaced between the undone ones.
    pub between: Vec<Between>,
    /// The objects that they changed in place, oldest change first.
    pub objects: BTreeMap<Identity, Vec<ChangeRef>>,
    /// The files and directories in which any commit has changed anything, and when it had been
    /// applied; newest last.
    pub touched: HashMap<Identity, Vec<Touch>>,
    /// Where each object may be, newest last.
    pub places: HashMap<Identity, Vec<Key>>,
    /// Objects in limbo, and the commit that removed them; `None` if that is undone.
    pub buried: HashMap<Identity, Option<Sequence>>,
    /// Objects that the undone commits removed and that another commit has brought back.
    pub brought_back: HashMap<Identity, Sequence>,
    /// The objects that got a name by commits which are not undone, and the newest of these.
    pub named_by: HashMap<Identity, Sequence>,
    /// The files that got another inode, for instance because a commit wrote them whole.
    pub successions: Vec<Succession>,
    /// Where each object was before the undone commits; see `passing`.
    pub origins: HashMap<Identity, PlaceBefore>,
    /// The objects that any of the commits has made.
    pub made: HashSet<Identity>,
    /// The inodes that followed those of files that were there before.
    pub successors: HashSet<Identity>,
    /// The first undone commits that gave files another inode, by both inodes.
    pub replaced: HashMap<Identity, usize>,
    /// The newest commits, of those that are not undone, that took a name from objects.
    pub unnamed_by: HashMap<Identity, Sequence>,
    /// The newest commits, of those that are not undone, that removed objects.
    pub removed_by: HashMap<Identity, Sequence>,
    /// The first undone commits that removed objects.
    pub first_removed: HashMap<Identity, Sequence>,
    /// Entries of removed directories out of which other commits have brought back directories.
    pub taken_out: HashMap<Key, (Identity, Sequence)>,
    /// Some changes of the undone commits were left out; see `passing`.
    pub has_passing: bool,
    /// Every entry that any commit has changed, or whose object it has changed.
    pub touched_names: HashMap<Key, Vec<usize>>,
    /// The entries that commits changed which are not undone.
    others: HashMap<Key, OthersEntry>,
}

/// A commit has given a file another inode.
pub(super) struct Succession {
    pub before: Identity,
    pub after: Identity,
    pub step: usize,
    /// `None` if that is undone.
    pub by_other: Option<Sequence>,
}

/// Where an object was before the undone commits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceBefore {
    /// In the tree.
    Tree,
    /// In limbo: one of them brought it back.
    Limbo,
    /// Nowhere: one of them made it.
    Made,
}

struct OthersEntry {
    before: Option<Identity>,
    after: Option<Identity>,
    newest: Sequence,
}

pub(super) struct NameUndone {
    pub before: Option<Identity>,
    pub after: Option<Identity>,
    pub path: TreePath,
    /// The first undone commit that changed the entry.
    pub first: usize,
    /// The newest other commit that changed it since.
    pub by_other: Option<Sequence>,
    /// Somebody else has changed it between two of the undone commits.
    pub is_broken: bool,
    /// Another commit had put `before` there, after the first undone commit.
    pub put_by: Option<Sequence>,
    /// It was in a removed directory: see `Changes::add_taken_out`.
    pub is_taken_out: bool,
}

/// An update and the former state in a step's record, by their places there.
#[derive(Clone, Copy)]
pub(super) struct ChangeRef {
    pub step: usize,
    pub update: usize,
    pub former: usize,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Touch {
    pub step: usize,
    /// The change time before, if the record has it.
    pub before: Option<Timestamp>,
    /// The modification time before, and after it, if the record has them.
    pub modified_before: Option<Timestamp>,
    pub modified: Option<Timestamp>,
    /// It changed the object itself, not only its names or the names in it, and is not undone.
    pub is_others: bool,
    /// It changed names in this directory, and is not undone.
    pub is_others_entry: bool,
    /// It has no effect any more, but explains times.
    pub is_neutral: bool,
    /// Its update of the object.
    pub change: Option<ChangeRef>,
}

impl Changes {
    pub fn new(since: &Since, selection: &Selection) -> Changes {
        let mut changes = Changes {
            between: between(since, selection),
            ..Changes::default()
        };
        for (number, step) in since.steps.iter().enumerate() {
            changes.add_places(step);
            changes.add_made(step);
            if step.is_neutral {
                changes.add_neutral(number, step);
                continue;
            }
            changes.add_origins(number, step, selection);
            changes.forget_passing(number, step, selection);
            changes.add_successions(step, number, selection);
            changes.add_entries(number, step, selection);
            changes.add_objects(number, step, selection);
        }
        let names = std::mem::take(&mut changes.names).into_iter();
        let (changed, same) = names.partition(|(_, name)| name.before != name.after);
        changes.names = changed;
        let same: BTreeMap<Key, NameUndone> = same;
        let broken = same.into_iter().filter(|(_, name)| name.is_broken);
        changes.broken = broken.collect();
        changes
    }

    fn add_successions(&mut self, step: &Step, number: usize, selection: &Selection) {
        let entries = step.entries().iter().enumerate();
        let undone =
            entries.filter(|(place, _)| step.is_undone && selection.has_entry(number, *place));
        let undone: HashSet<Identity> = undone.filter_map(|(_, entry)| step.after(entry)).collect();
        for (before, after) in step.successions() {
            // It may be under a name that no record mentions, in a removed directory.
            self.places.entry(before).or_default();
            let by_other = (!undone.contains(&after)).then_some(step.sequence);
            if by_other.is_none() {
                self.replaced.entry(before).or_insert(number);
                self.replaced.entry(after).or_insert(number);
            }
            self.successions.push(Succession {
                before,
                after,
                step: number,
                by_other,
            });
        }
    }

    fn add_places(&mut self, step: &Step) {
        for (identity, locator) in step.mentioned() {
            if let Some(key) = step.place(locator) {
                self.add_place(identity, key);
            }
        }
        for entry in step.entries() {
            let key = (step.directory(entry.directory), entry.name.clone());
            for identity in entry.before.into_iter().chain(step.after(entry)) {
                self.add_place(identity, key.clone());
            }
        }
    }

    fn add_place(&mut self, identity: Identity, key: Key) {
        let places = self.places.entry(identity).or_default();
        places.retain(|known| *known != key);
        places.push(key);
    }

    fn add_entries(&mut self, number: usize, step: &Step, selection: &Selection) {
        let mut touched: HashMap<Identity, bool> = HashMap::new();
        self.add_taken_out(number, step, selection);
        for (place, entry) in step.entries().iter().enumerate() {
            let directory = step.directory(entry.directory);
            let key = (directory, entry.name.clone());
            let after = step.after(entry);
            let is_undone = step.is_undone && selection.has_entry(number, place);
            *touched.entry(directory).or_default() |= !is_undone;
            for object in entry.before.into_iter().chain(after) {
                touched.entry(object).or_default();
            }
            if let Some(after) = after
                && let Some(None) = self.buried.remove(&after)
                && !is_undone
            {
                self.brought_back.insert(after, step.sequence);
            }
            if after.is_some_and(|after| {
                let taken_out = self.taken_out.get(&key);
                taken_out.is_some_and(|(object, _)| *object == after)
            }) {
                self.taken_out.remove(&key);
            }
            self.touched_names
                .entry(key.clone())
                .or_default()
                .push(number);
            match is_undone {
                true => self.add_undone((number, step), entry, key),
                false => self.add_others(step, entry, key),
            }
        }
        let succeeded: HashSet<Identity> = step.successions().map(|(before, _)| before).collect();
        for (place, entry) in step.entries().iter().enumerate() {
            let is_undone = step.is_undone && selection.has_entry(number, place);
            if let Some(before) = entry.before.filter(|_| entry.buries) {
                let by = (!is_undone).then_some(step.sequence);
                match by {
                    Some(by) => drop(self.removed_by.insert(before, by)),
                    None => drop(self.first_removed.entry(before).or_insert(step.sequence)),
                }
                self.buried.insert(before, by);
                // A file that was brought back and then written whole has not gone back to what it
                // was.
                if is_undone || !succeeded.contains(&before) {
                    self.brought_back.remove(&before);
                } else if let Some(known) = self.brought_back.get_mut(&before) {
                    *known = step.sequence;
                }
            }
        }
        for (identity, is_others_entry) in touched {
            let touches = self.touched.entry(identity).or_default();
            touch(touches, number).is_others_entry = is_others_entry;
        }
    }

    fn add_undone(&mut self, (number, step): (usize, &Step), entry: &EntryChange, key: Key) {
        let after = step.after(entry);
        let others = self.others.get(&key);
        let put_by = others.filter(|others| others.after.is_some() && others.after == entry.before);
        let known = self.names.entry(key).or_insert_with(|| NameUndone {
            before: entry.before,
            after: entry.before,
            path: step.path(entry.directory, &entry.name),
            first: number,
            by_other: None,
            is_broken: false,
            put_by: put_by.map(|others| others.newest),
            is_taken_out: false,
        });
        known.is_broken |= known.by_other.is_some() || known.after != entry.before;
        known.after = after;
    }

    fn add_others(&mut self, step: &Step, entry: &EntryChange, key: Key) {
        let after = step.after(entry);
        self.named_by
            .extend(after.map(|object| (object, step.sequence)));
        self.unnamed_by
            .extend(entry.before.map(|object| (object, step.sequence)));
        let change = self.others.entry(key.clone()).or_insert(OthersEntry {
            before: entry.before,
            after,
            newest: step.sequence,
        });
        (change.after, change.newest) = (after, step.sequence);
        if let Some(known) = self.names.get_mut(&key) {
            known.by_other = Some(step.sequence);
        }
    }

    /// A directory that comes back out of a removed one is gone from there. The record says it only
    /// by where it was.
    fn add_taken_out(&mut self, number: usize, step: &Step, selection: &Selection) {
        let entries = step.entries();
        let changed: HashSet<Key> = entries
            .iter()
            .map(|entry| (step.directory(entry.directory), entry.name.clone()))
            .collect();
        for (place, entry) in entries.iter().enumerate() {
            let moved = entry.after.map(|index| &step.objects()[index as usize]);
            let Some(moved) = moved.filter(|moved| moved.kind == Kind::Directory) else {
                continue;
            };
            let key = step.place(&moved.locator);
            let Some(key) = key.filter(|key| !changed.contains(key)) else {
                continue;
            };
            if step.is_undone && selection.has_entry(number, place) {
                let known = self.names.entry(key).or_insert_with(|| NameUndone {
                    before: Some(moved.identity),
                    after: None,
                    path: step.path(entry.directory, &entry.name),
                    first: number,
                    by_other: None,
                    is_broken: false,
                    put_by: None,
                    is_taken_out: true,
                });
                known.after = None;
            } else {
                if let Some(known) = self.names.get_mut(&key) {
                    known.by_other = known.after.map(|_| step.sequence);
                }
                let taken_out = (moved.identity, step.sequence);
                self.taken_out.insert(key, taken_out);
            }
        }
    }

    fn add_objects(&mut self, number: usize, step: &Step, selection: &Selection) {
        let updates = step.update_places();
        for object in updates.keys() {
            let touches = self.touched.entry(step.object(*object)).or_default();
            touch(touches, number);
        }
        let former = step.before().into_iter().flat_map(|before| &before.objects);
        for (place, former) in former.enumerate() {
            let identity = step.object(former.object);
            let update = updates.get(&former.object).copied();
            let is_undone =
                step.is_undone && update.is_some_and(|update| selection.has_update(number, update));
            let change = update.map(|update| ChangeRef {
                step: number,
                update,
                former: place,
            });
            if let (Some(change), true) = (change, is_undone) {
                self.objects.entry(identity).or_default().push(change);
            }
            let locator = &step.objects()[former.object as usize].locator;
            if let (Some(key), true) = (step.place(locator), update.is_some()) {
                self.touched_names.entry(key).or_default().push(number);
            }
            let touches = self.touched.entry(identity).or_default();
            let touch = touch(touches, number);
            touch.before = Some(former.changed);
            touch.modified_before = Some(former.attributes.times.modified);
            touch.modified = modified_by(step, update).or(touch.modified_before);
            touch.is_others = update.is_some() && !is_undone;
            touch.change = change;
        }
    }

    /// A step that has no effect explains the times of objects all the same. If other undone commits
    /// need what an undo among them has removed, that undo is named.
    fn add_neutral(&mut self, number: usize, step: &Step) {
        for entry in step.entries() {
            let objects = entry.before.into_iter().chain(step.after(entry));
            for identity in objects.chain([step.directory(entry.directory)]) {
                self.touch_neutrally(identity, number);
            }
            if let Some(before) = entry.before.filter(|_| entry.buries) {
                self.removed_by.insert(before, step.sequence);
            }
        }
        let updates = step.update_places();
        for object in updates.keys() {
            self.touch_neutrally(step.object(*object), number);
        }
        for former in step.before().into_iter().flat_map(|before| &before.objects) {
            let update = updates.get(&former.object).copied();
            let touch = self.touch_neutrally(step.object(former.object), number);
            touch.before = Some(former.changed);
            touch.modified_before = Some(former.attributes.times.modified);
            touch.modified = modified_by(step, update).or(touch.modified_before);
        }
    }

    fn touch_neutrally(&mut self, identity: Identity, number: usize) -> &mut Touch {
        let touch = touch(self.touched.entry(identity).or_default(), number);
        touch.is_neutral = true;
        touch
    }

    /// The objects that names shall be again, each with these names.
    pub fn returning(&self) -> HashMap<Identity, Vec<&Key>> {
        let mut returning: HashMap<Identity, Vec<&Key>> = HashMap::new();
        for (key, name) in &self.names {
            if let Some(before) = name.before {
                returning.entry(before).or_default().push(key);
            }
        }
        returning
    }

    /// Whether commits that are not undone have put this object there.
    pub fn is_put_by_others(&self, key: &Key, object: Identity) -> bool {
        let change = self.others.get(key);
        change.is_some_and(|change| change.after == Some(object) && change.before != Some(object))
    }

    /// The directories in which others have changed entries after undone commits had removed them, or
    /// directories above; each with the newest such commit.
    pub fn changed_since_removed(&self) -> BTreeMap<Identity, Sequence> {
        let lasting = self.others.iter().filter(|(key, change)| {
            change.before != change.after && !self.names.contains_key(*key)
        });
        let mut changed = BTreeMap::new();
        for ((directory, _), OthersEntry { newest, .. }) in lasting {
            let mut above = self.with_what_is_above(*directory);
            let removed = above.find_map(|one| self.first_removed.get(&one));
            if removed.is_some_and(|by| by < newest) {
                let known = changed.entry(*directory).or_insert(*newest);
                *known = (*known).max(*newest);
            }
        }
        changed
    }

    /// What the first commit did with an object that has still an effect.
    pub fn first_touch(&self, identity: Identity) -> Option<&Touch> {
        let touches = self.touched.get(&identity)?;
        touches.iter().find(|touch| !touch.is_neutral)
    }

    /// A path of an entry that shall be this object again.
    pub fn path_of(&self, identity: Identity) -> Option<TreePath> {
        let mut names = self.names.values();
        let found = names.find(|name| name.before == Some(identity));
        found.map(|name| name.path.clone())
    }

    /// The objects that names are now and shall not be, and how many.
    pub fn leaving(&self) -> HashMap<Identity, u32> {
        let mut leaving: HashMap<Identity, u32> = HashMap::new();
        for name in self.names.values() {
            if let Some(after) = name.after {
                *leaving.entry(after).or_default() += 1;
            }
        }
        leaving
    }
}

/// The modification time that an update sets.
fn modified_by(step: &Step, update: Option<usize>) -> Option<Timestamp> {
    step.updates()[update?].attributes.modified
}

/// The last touch, which is this step's.
fn touch(touches: &mut Vec<Touch>, step: usize) -> &mut Touch {
    if touches.last().is_none_or(|last| last.step != step) {
        touches.push(Touch {
            step,
            ..Touch::default()
        });
    }
    touches.last_mut().expect("there is one now")
}

impl Since {
    pub fn change(&self, change: ChangeRef) -> (&Step, &Update, &Former) {
        let step = &self.steps[change.step];
        let update = &step.updates()[change.update];
        let before = step.before();
        let former = before.map(|before| &before.objects[change.former]);
        (step, update, former.expect("the change has a former state"))
    }
}
