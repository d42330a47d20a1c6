//! The result of several transactions according to the guarantee: each is the difference
//! between its tree and its snapshot, and commits are merged part by part. Objects have
//! numbers, so all names of a file have one number.

mod transaction;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

const ROOT: usize = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The entries of a directory.
    entries: Option<BTreeMap<String, usize>>,
    contents: Vec<u8>,
    mode: u32,
    k: String,
}

#[derive(Debug, Clone, Default)]
pub struct Tree(BTreeMap<usize, Object>);

/// What a transaction wrote of an object of its snapshot.
#[derive(Debug, Clone, Default)]
struct Writes {
    pages: BTreeSet<u64>,
    /// If contents were written, how many bytes of the snapshot's contents still show.
    keep: Option<usize>,
    attributes: bool,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    at: u64,
    before: Tree,
    pub now: Tree,
    writes: BTreeMap<usize, Writes>,
}

/// The committed state, and which commit last changed each part.
pub struct World {
    pub tree: Tree,
    next: usize,
    sequence: u64,
    entries: BTreeMap<(usize, String), u64>,
    attributes: BTreeMap<usize, u64>,
    /// Written ranges of pages: the object, the first page, the end (exclusive), and the commit.
    pages: Vec<(usize, u64, u64, u64)>,
    dead: BTreeMap<usize, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Commits,
    Conflicts,
    /// It may commit or conflict: a file that it changes has lost a name that its snapshot had, and
    /// the transaction may know the file by that name.
    Either,
}

impl Object {
    fn new(is_directory: bool) -> Object {
        Object {
            entries: is_directory.then(BTreeMap::new),
            contents: Vec::new(),
            mode: if is_directory { 0o755 } else { 0o644 },
            k: String::new(),
        }
    }
}

impl World {
    /// Fills the state as the `given` lines fill the base.
    pub fn new(given: &[&str]) -> World {
        let root = Object::new(true);
        let mut world = World {
            tree: Tree(BTreeMap::from([(ROOT, root)])),
            next: 1,
            sequence: 0,
            entries: BTreeMap::new(),
            attributes: BTreeMap::new(),
            pages: Vec::new(),
            dead: BTreeMap::new(),
        };
        let mut all = world.begin();
        for line in given {
            assert!(world.act(&mut all, line), "{line}");
        }
        world.tree = all.now;
        world
    }

    pub fn begin(&self) -> Transaction {
        Transaction {
            at: self.sequence,
            before: self.tree.clone(),
            now: self.tree.clone(),
            writes: BTreeMap::new(),
        }
    }

    /// Returns false and does nothing if a plain file or directory would refuse it.
    pub fn act(&mut self, one: &mut Transaction, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        self.try_act(one, &words).is_some()
    }

    fn try_act(&mut self, one: &mut Transaction, words: &[&str]) -> Option<()> {
        match *words {
            ["mkdir", path] => self.make(one, path, true).map(drop),
            ["put", path, text] => {
                let file = match one.now.find(path) {
                    Some(_) => one.file(path)?,
                    None => self.make(one, path, false)?,
                };
                one.cut(file, 0)?;
                one.write(file, 0, text.as_bytes())
            }
            ["renew", path, text] => {
                let is_file = |file: usize| one.now.0[&file].entries.is_none();
                one.now.find(path).filter(|file| is_file(*file))?;
                self.try_act(one, &["put", "renewed", text])?;
                self.try_act(one, &["mv", "renewed", path])
            }
            _ => one.act(words),
        }
    }

    fn make(&mut self, one: &mut Transaction, path: &str, is_directory: bool) -> Option<usize> {
        let place = one.now.split(path)?;
        one.now.0[&place.0].entries.as_ref()?;
        if one.now.find(path).is_some() {
            return None;
        }
        let id = self.next;
        self.next += 1;
        one.now.0.insert(id, Object::new(is_directory));
        one.now.set(place, Some(id));
        Some(id)
    }

    /// Whether others have created an object of the same looks at a name at which the transaction has.
    pub fn has_equal_creation(&self, one: &Transaction) -> bool {
        let (old, new, now) = (
            one.before.all_entries(),
            one.now.all_entries(),
            self.tree.all_entries(),
        );
        new.iter().any(|(key, mine)| {
            let theirs = now.get(key).filter(|_| !old.contains_key(key));
            theirs.is_some_and(|theirs| {
                let (mine, theirs) = (&one.now.0[mine], &self.tree.0[theirs]);
                mine.contents == theirs.contents
                    && (mine.mode, &mine.k) == (theirs.mode, &theirs.k)
                    && mine.entries.is_some() == theirs.entries.is_some()
            })
        })
    }

    /// Whether it can commit, and the merged tree.
    pub fn verdict(&self, one: &Transaction) -> (Verdict, Tree) {
        let (old, new) = (one.before.all_entries(), one.now.all_entries());
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let changed = keys.into_iter().filter(|key| old.get(key) != new.get(key));
        let mut merged = self.tree.clone();
        for (id, object) in &one.now.0 {
            if !one.before.0.contains_key(id) {
                merged.0.insert(*id, object.clone());
            }
        }
        let since = |changed: Option<&u64>| changed.is_some_and(|changed| *changed > one.at);
        let mut conflicts = false;
        let mut may = false;
        let mut touched: BTreeSet<usize> = one.writes.keys().copied().collect();
        for key in changed {
            conflicts |= since(self.entries.get(key)) || since(self.dead.get(&key.0));
            let after = new.get(key).copied();
            conflicts |= after.is_some_and(|after| since(self.dead.get(&after)));
            touched.extend(after.filter(|after| one.before.0.contains_key(after)));
            if merged.0.contains_key(&key.0) {
                merged.set((key.0, &key.1), after);
            }
        }
        for (id, writes) in &one.writes {
            if !one.now.names(*id).is_empty() {
                conflicts |= since(self.dead.get(id)) || self.overlaps(one, *id, writes);
                if !conflicts {
                    one.merge(*id, writes, &mut merged);
                }
            }
        }
        for id in touched {
            let lost = one.before.names(id).into_iter();
            may |= lost.into_iter().any(|name| since(self.entries.get(&name)));
        }
        for id in one
            .before
            .0
            .keys()
            .filter(|id| self.tree.0.contains_key(id))
        {
            if merged.names(*id).is_empty() && !self.tree.names(*id).is_empty() {
                let pages = self
                    .pages
                    .iter()
                    .any(|(of, .., by)| of == id && *by > one.at);
                conflicts |= pages || since(self.attributes.get(id));
                // An object without a name matters if it is a written file, or a directory, which
                // is then in a ring.
                let matters = one.writes.contains_key(id) || merged.0[id].entries.is_some();
                conflicts |= matters && !one.now.names(*id).is_empty();
                let entries = merged.0[id].entries.iter().flatten();
                conflicts |= entries.count() > 0;
            }
        }
        let verdict = match (conflicts, may) {
            (true, _) => Verdict::Conflicts,
            (false, true) => Verdict::Either,
            (false, false) => Verdict::Commits,
        };
        (verdict, merged)
    }

    fn overlaps(&self, one: &Transaction, id: usize, writes: &Writes) -> bool {
        let attributes = self.attributes.get(&id).is_some_and(|by| *by > one.at);
        let ours = one.written(id, writes);
        let pages = self.pages.iter().any(|(of, start, end, by)| {
            let meets = |(from, to): &(u64, u64)| from < end && start < to;
            *of == id && *by > one.at && ours.iter().any(meets)
        });
        (writes.attributes && attributes) || pages
    }

    pub fn commit(&mut self, one: &Transaction, merged: Tree) {
        let (old, new) = (one.before.all_entries(), one.now.all_entries());
        if old == new && one.writes.is_empty() {
            return;
        }
        self.sequence += 1;
        for key in old.keys().chain(new.keys()) {
            if old.get(key) != new.get(key) {
                self.entries.insert(key.clone(), self.sequence);
            }
        }
        for (id, writes) in &one.writes {
            if one.now.names(*id).is_empty() {
                continue;
            }
            if writes.attributes {
                self.attributes.insert(*id, self.sequence);
            }
            for (start, end) in one.written(*id, writes) {
                self.pages.push((*id, start, end, self.sequence));
            }
        }
        for id in self.tree.0.keys().filter(|id| **id != ROOT) {
            if merged.names(*id).is_empty() && !self.tree.names(*id).is_empty() {
                self.dead.insert(*id, self.sequence);
            }
        }
        self.tree = merged;
    }
}
