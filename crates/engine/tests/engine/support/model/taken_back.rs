//! The tree that remains when commits are undone, found by comparing whole trees by object.

use std::collections::{BTreeMap, BTreeSet};

use super::{Model, Object, ROOT};

const PAGE: usize = 4096;

type Changed<T> = (T, T);
type Entries = BTreeMap<(usize, Vec<u8>), Changed<Option<usize>>>;

/// A commit: the trees before it and after it.
pub type Step<'a> = (&'a Model, &'a Model);

/// What several commits have changed together: the state of each part before the first and after
/// the last.
#[derive(Default)]
struct Composed {
    entries: Entries,
    modes: BTreeMap<usize, Changed<u32>>,
    lengths: BTreeMap<usize, Changed<usize>>,
    pages: BTreeMap<(usize, usize), Changed<Vec<u8>>>,
    /// Each object after the last commit that changed it, or moved it into or out of the tree.
    left: BTreeMap<usize, Object>,
    /// Each object before the first such commit.
    first: BTreeMap<usize, Object>,
    /// Whether each object was in the tree before the first such commit, and after the last.
    in_tree: BTreeMap<usize, Changed<bool>>,
    /// Whether each object was in the tree before the first commit that has it in a tree.
    is_old: BTreeMap<usize, bool>,
}

fn note<K: Ord, T: PartialEq>(of: &mut BTreeMap<K, Changed<T>>, key: K, before: T, after: T) {
    if before == after {
        return;
    }
    match of.get_mut(&key) {
        Some(known) => known.1 = after,
        None => drop(of.insert(key, (before, after))),
    }
}

/// A page, with zeros after the end of the file.
fn page(contents: &[u8], number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = contents
        .iter()
        .skip(number * PAGE)
        .take(PAGE)
        .copied()
        .collect();
    bytes.resize(PAGE, 0);
    bytes
}

impl Composed {
    fn add(&mut self, (before, after): Step<'_>) {
        let in_tree = (before.in_tree(), after.in_tree());
        for id in in_tree.0.union(&in_tree.1) {
            let was = in_tree.0.contains(id);
            self.is_old.entry(*id).or_insert(was);
            // Other commits have brought the object back after these commits made and removed it.
            if was && self.in_tree.get(id) == Some(&(false, false)) {
                self.in_tree.remove(id);
                self.forget_changes_of(&BTreeSet::from([*id]));
            }
        }
        for (id, new) in &after.objects {
            let old = before.objects.get(id);
            if old != Some(new) || in_tree.0.contains(id) != in_tree.1.contains(id) {
                self.left.insert(*id, new.clone());
                if let Some(old) = old {
                    self.first.entry(*id).or_insert_with(|| old.clone());
                }
                let (was, is) = (in_tree.0.contains(id), in_tree.1.contains(id));
                self.in_tree.entry(*id).or_insert((was, is)).1 = is;
            }
            self.add_object(*id, old, new);
        }
    }

    /// Forgets changes of objects that these commits both made and removed.
    fn forget_passing(&mut self) {
        let in_tree = self.in_tree.iter();
        let passing = in_tree.filter(|(_, change)| **change == (false, false));
        let passing: BTreeSet<usize> = passing.map(|(id, _)| *id).collect();
        self.forget_changes_of(&passing);
    }

    /// Keeps entries of older objects that were moved into these directories: they go back.
    fn forget_changes_of(&mut self, passing: &BTreeSet<usize>) {
        let is_old = &self.is_old;
        let stays = |id: &usize| !passing.contains(id);
        self.entries.retain(|(id, _), (_, after)| {
            let moved = after.is_some_and(|after| is_old.get(&after) == Some(&true));
            stays(id) || moved
        });
        self.modes.retain(|id, _| stays(id));
        self.lengths.retain(|id, _| stays(id));
        self.pages.retain(|(id, _), _| stays(id));
    }

    fn forget_changes_of_new_files(&mut self) {
        let is_old = &self.is_old;
        let stays = |id: &usize| is_old.get(id) != Some(&false);
        self.modes.retain(|id, _| stays(id));
        self.lengths.retain(|id, _| stays(id));
        self.pages.retain(|(id, _), _| stays(id));
    }

    fn add_object(&mut self, id: usize, old: Option<&Object>, new: &Object) {
        match (old, new) {
            (old, Object::Directory { entries, mode }) => {
                let none = BTreeMap::new();
                let (before, old_mode) = match old {
                    Some(Object::Directory { entries, mode }) => (entries, *mode),
                    _ => (&none, *mode),
                };
                note(&mut self.modes, id, old_mode, *mode);
                let names: BTreeSet<&Vec<u8>> = before.keys().chain(entries.keys()).collect();
                for name in names {
                    let (was, is) = (before.get(name).copied(), entries.get(name).copied());
                    note(&mut self.entries, (id, name.clone()), was, is);
                }
            }
            (
                Some(Object::File {
                    contents: was,
                    mode: old_mode,
                }),
                Object::File { contents, mode },
            ) => {
                note(&mut self.modes, id, *old_mode, *mode);
                note(&mut self.lengths, id, was.len(), contents.len());
                for number in 0..was.len().max(contents.len()).div_ceil(PAGE) {
                    let (was, is) = (page(was, number), page(contents, number));
                    note(&mut self.pages, (id, number), was, is);
                }
            }
            _ => {}
        }
    }
}

impl Object {
    /// Whether this object has nothing that `other` has not. A directory may have lost names.
    fn is_within(&self, other: &Object) -> bool {
        match (self, other) {
            (
                Object::Directory { entries, mode },
                Object::Directory {
                    entries: were,
                    mode: was,
                },
            ) => mode == was && entries.iter().all(|(name, id)| were.get(name) == Some(id)),
            _ => self == other,
        }
    }
}

/// Returns false if another change has been made since.
fn replace<T: PartialEq + Clone>(now: &mut T, (before, after): &Changed<T>) -> bool {
    let is_free = before == after || *now == *after || *now == *before;
    if is_free && before != after {
        *now = before.clone();
    }
    is_free
}

/// Choices that an undo has for files, depending on whether a commit wrote a file in place or gave
/// it a new inode.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// A file comes back as it was before these commits. Otherwise it keeps what later commits
    /// changed.
    pub as_removed: bool,
    /// A file that these commits brought into the tree and that stays, because it has got another
    /// name since, keeps what they changed in it.
    pub keep_new: bool,
}

impl Files {
    pub const ALL: [Files; 4] = [
        Files::new(true, false),
        Files::new(false, false),
        Files::new(true, true),
        Files::new(false, true),
    ];

    const fn new(as_removed: bool, keep_new: bool) -> Files {
        Files {
            as_removed,
            keep_new,
        }
    }
}

impl Model {
    fn in_tree(&self) -> BTreeSet<usize> {
        self.with_what_is_below(BTreeSet::from([ROOT]))
    }

    /// These objects and everything in them.
    pub fn with_what_is_below(&self, mut found: BTreeSet<usize>) -> BTreeSet<usize> {
        let mut open: Vec<usize> = found.iter().copied().collect();
        while let Some(id) = open.pop() {
            if let Some(Object::Directory { entries, .. }) = self.objects.get(&id) {
                open.extend(entries.values().filter(|id| found.insert(**id)));
            }
        }
        found
    }

    /// An object that a transaction removes is kept as it was before the transaction.
    pub fn forget_changes_of_removed(&mut self, before: &Model) {
        let kept = self.in_tree();
        for id in before.in_tree().difference(&kept) {
            let mut was = before.objects[id].clone();
            if let Object::Directory { entries, .. } = &mut was {
                entries.retain(|_, child| !kept.contains(child));
            }
            self.objects.insert(*id, was);
        }
    }

    /// The tree after these commits are undone. Fails if that would lose later changes.
    pub fn taken_back(&self, undone: &[Step<'_>], files: Files) -> Result<Model, String> {
        let mut composed = Composed::default();
        undone.iter().for_each(|step| composed.add(*step));
        composed.forget_passing();
        if files.keep_new {
            composed.forget_changes_of_new_files();
        }
        let mut model = self.clone();
        let mut changed_since = model.replace_names(&composed);
        changed_since.extend(model.replace_attributes(&composed));
        changed_since.extend(model.replace_pages(&composed));
        let (before, after) = (self.in_tree(), model.in_tree());
        for (id, what) in changed_since {
            let is_file_of_then = files.as_removed && !self.is_directory(id);
            if before.contains(&id) || after.contains(&id) && !is_file_of_then {
                return Err(format!("{what} was changed since"));
            }
        }
        for id in before.difference(&after) {
            let (left, now) = (composed.left.get(id), self.objects.get(id));
            if !left.zip(now).is_some_and(|(left, now)| now.is_within(left)) {
                return Err(format!("object {id} would be lost"));
            }
        }
        for id in after.difference(&before).filter(|_| files.as_removed) {
            let first = undone
                .first()
                .and_then(|(before, _)| before.objects.get(id));
            if let Some(file @ Object::File { .. }) = composed.first.get(id).or(first) {
                model.objects.insert(*id, file.clone());
            }
        }
        for (id, was) in &self.objects {
            if !after.contains(id) {
                let mut kept = was.clone();
                if let Object::Directory { entries, .. } = &mut kept {
                    let has_left = |child| {
                        let is_single = before.contains(id) || self.is_directory(child);
                        after.contains(&child) && is_single
                    };
                    entries.retain(|_, child| !has_left(*child));
                }
                model.objects.insert(*id, kept);
            }
        }
        Ok(model)
    }

    /// Returns the names that were changed since, each with its object.
    fn replace_names(&mut self, composed: &Composed) -> Vec<(usize, String)> {
        let mut changed_since = Vec::new();
        for ((id, name), change) in &composed.entries {
            let entries = self.entries_mut(*id);
            let mut now = entries.remove(name);
            if !replace(&mut now, change) {
                let what = format!("{} in directory {id}", name.escape_ascii());
                changed_since.push((*id, what));
            }
            now.map(|now| entries.insert(name.clone(), now));
        }
        changed_since
    }

    fn replace_attributes(&mut self, composed: &Composed) -> Vec<(usize, String)> {
        let mut changed_since = Vec::new();
        for (id, change) in &composed.modes {
            let (Some(Object::Directory { mode, .. }) | Some(Object::File { mode, .. })) =
                self.objects.get_mut(id)
            else {
                continue;
            };
            if !replace(mode, change) {
                changed_since.push((*id, format!("the mode of {id}")));
            }
        }
        changed_since
    }

    fn replace_pages(&mut self, composed: &Composed) -> Vec<(usize, String)> {
        let mut changed_since = Vec::new();
        let files = self.objects.clone();
        for (id, change) in &composed.lengths {
            if let Some(Object::File { contents, .. }) = self.objects.get_mut(id) {
                let mut length = contents.len();
                if !replace(&mut length, change) {
                    changed_since.push((*id, format!("the length of {id}")));
                }
                contents.resize(length, 0);
            }
        }
        for ((id, number), change) in &composed.pages {
            let (
                Some(Object::File {
                    contents: before, ..
                }),
                Some(Object::File { contents, .. }),
            ) = (files.get(id), self.objects.get_mut(id))
            else {
                continue;
            };
            let mut now = page(before, *number);
            if !replace(&mut now, change) {
                changed_since.push((*id, format!("page {number} of {id}")));
            }
            for (byte, old) in contents.iter_mut().skip(number * PAGE).zip(now) {
                *byte = old;
            }
        }
        changed_since
    }

    /// These objects and the directories above them.
    pub fn with_what_is_above(&self, mut found: BTreeSet<usize>) -> BTreeSet<usize> {
        loop {
            let above = self.objects.iter().filter(|(_, object)| match object {
                Object::Directory { entries, .. } => {
                    entries.values().any(|child| found.contains(child))
                }
                _ => false,
            });
            let above: Vec<usize> = above.map(|(id, _)| *id).collect();
            let known = found.len();
            found.extend(above);
            if found.len() == known {
                return found;
            }
        }
    }

    /// The objects that are in this tree and not in the other one.
    pub fn removed_by(&self, other: &Model) -> BTreeSet<usize> {
        &self.in_tree() - &other.in_tree()
    }

    /// The entries that differ between two trees. A file that is written whole is another inode,
    /// so the entries of changed files count.
    pub fn differing_entries(&self, other: &Model) -> BTreeSet<(usize, Vec<u8>)> {
        let mut composed = Composed::default();
        composed.add((self, other));
        let changed = composed.left.keys().copied();
        let changed: BTreeSet<usize> = changed.filter(|id| !other.is_directory(*id)).collect();
        let mut differing: BTreeSet<(usize, Vec<u8>)> = composed.entries.into_keys().collect();
        for (directory, object) in self.objects.iter().chain(&other.objects) {
            let Object::Directory { entries, .. } = object else {
                continue;
            };
            let leading = entries.iter().filter(|(_, id)| changed.contains(id));
            differing.extend(leading.map(|(name, _)| (*directory, name.clone())));
        }
        differing
    }

    /// The objects that differ between two trees, are in one only, or have another name.
    pub fn differing(&self, other: &Model) -> BTreeSet<usize> {
        let mut composed = Composed::default();
        composed.add((self, other));
        let named = composed.entries.values();
        let named = named.flat_map(|(before, after)| before.iter().chain(after));
        named.chain(composed.left.keys()).copied().collect()
    }

    /// Describes the differences between two trees by object numbers, for debugging a run.
    pub fn describe_changes(&self, after: &Model) -> String {
        let mut composed = Composed::default();
        composed.add((self, after));
        let mut lines = Vec::new();
        for ((id, name), (before, after)) in &composed.entries {
            let name = name.escape_ascii();
            lines.push(format!("  {id}/{name}: {before:?} -> {after:?}"));
        }
        for (id, (before, after)) in &composed.modes {
            lines.push(format!("  mode of {id}: {before:o} -> {after:o}"));
        }
        for (id, (before, after)) in &composed.lengths {
            lines.push(format!("  length of {id}: {before} -> {after}"));
        }
        let pages = composed.pages.keys();
        lines.extend(pages.map(|(id, number)| format!("  page {number} of {id}")));
        let kinds = composed.in_tree.iter().filter(|(_, (was, is))| was != is);
        for (id, (was, _)) in kinds {
            let what = if *was { "removed" } else { "made" };
            let kind = if self.is_in(*id) { self } else { after };
            let kind = match &kind.objects[id] {
                Object::Directory { .. } => "directory",
                Object::File { .. } => "file",
                Object::Symlink(_) => "link",
            };
            lines.push(format!("  {what}: {kind} {id}"));
        }
        lines.join("\n")
    }

    fn is_in(&self, id: usize) -> bool {
        self.objects.contains_key(&id)
    }

    /// How many directories and files there are.
    pub fn size(&self) -> usize {
        self.in_tree().len()
    }
}
