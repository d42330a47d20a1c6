//! A tree in memory, as a program sees it through the guard or in a view.

use std::collections::{BTreeMap, BTreeSet};

use atomdir_disk::RenameMode;
use atomdir_testing::Random;

pub type Path = Vec<String>;

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Directory(BTreeMap<String, usize>),
    File(Vec<u8>),
    Symlink(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub body: Body,
    pub mode: u32,
    /// The value of an extended attribute.
    pub mark: Option<u8>,
}

impl Object {
    fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    fn is_symlink(&self) -> bool {
        matches!(self.body, Body::Symlink(_))
    }
}

#[derive(Debug, Clone)]
pub enum Operation {
    Write(Path, usize, usize, u8),
    Append(Path, usize, u8),
    Cut(Path, usize),
    Mode(Path, u32),
    Mark(Path, Option<u8>),
    File(Path, u32),
    Directory(Path, u32),
    Symlink(Path, usize),
    Link(Path, Path),
    Unlink(Path),
    RemoveDirectory(Path),
    Rename(Path, Path, RenameMode),
}

/// Objects by number; a directory's entries by name. Numbers are not used again in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Model(BTreeMap<usize, Object>);

/// Each path's description.
pub type Tree = BTreeMap<String, String>;

const ROOT: usize = 0;

pub fn describe(object: &Object, first: &str) -> String {
    let mark = object.mark;
    match &object.body {
        Body::Directory(_) => format!("directory {:o} {mark:?}", object.mode),
        Body::Symlink(target) => format!("symlink to {}", target.escape_ascii()),
        Body::File(contents) => {
            let runs = contents.chunk_by(|one, next| one == next);
            let runs: Vec<String> = runs
                .map(|run| format!("{}x{}", run.len(), run[0].escape_ascii()))
                .collect();
            let runs = runs.join(" ");
            format!("file {:o} {mark:?} {runs} linked to {first}", object.mode)
        }
    }
}

pub fn join(path: &[String]) -> String {
    path.join("/")
}

impl Model {
    pub fn new() -> Model {
        let root = Object {
            body: Body::Directory(BTreeMap::new()),
            mode: 0o755,
            mark: None,
        };
        Model(BTreeMap::from([(ROOT, root)]))
    }

    fn entries(&self, directory: usize) -> Option<&BTreeMap<String, usize>> {
        match &self.0.get(&directory)?.body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, directory: usize) -> &mut BTreeMap<String, usize> {
        match self.0.get_mut(&directory).map(|object| &mut object.body) {
            Some(Body::Directory(entries)) => entries,
            _ => panic!("{directory} is no directory"),
        }
    }

    fn find(&self, path: &[String]) -> Option<usize> {
        let mut at = ROOT;
        for name in path {
            at = *self.entries(at)?.get(name)?;
        }
        Some(at)
    }

    /// The directory of a path that has a name, and the name.
    fn above<'a>(&self, path: &'a [String]) -> Option<(usize, &'a String)> {
        let (name, above) = path.split_last()?;
        let directory = self.find(above)?;
        self.entries(directory)?;
        Some((directory, name))
    }

    /// All paths, each with its object. A directory comes before what is in it.
    pub fn paths(&self) -> Vec<(Path, usize)> {
        let mut found = vec![(Path::new(), ROOT)];
        let mut next = 0;
        while let Some((path, id)) = found.get(next).cloned() {
            for (name, child) in self.entries(id).into_iter().flatten() {
                let path = [&path[..], std::slice::from_ref(name)].concat();
                found.push((path, *child));
            }
            next += 1;
        }
        found
    }

    pub fn tree(&self) -> Tree {
        let mut firsts = BTreeMap::new();
        let mut paths = self.paths();
        paths.sort();
        let described = paths.iter().filter(|(path, _)| !path.is_empty());
        let described = described.map(|(path, id)| {
            let path = join(path);
            let first: &String = firsts.entry(*id).or_insert_with(|| path.clone());
            (path.clone(), describe(&self.0[id], first))
        });
        described.collect()
    }

    fn is_below(&self, above: usize, id: usize) -> bool {
        let entries = self.entries(above).into_iter().flatten();
        above == id
            || entries
                .into_iter()
                .any(|(_, child)| self.is_below(*child, id))
    }

    /// Whether it was possible. `next`: the number of the next new object.
    pub fn apply(&mut self, operation: &Operation, next: &mut usize) -> bool {
        match operation {
            Operation::Write(path, offset, length, byte) => {
                self.write(path, Some(*offset), *length, *byte)
            }
            Operation::Append(path, length, byte) => self.write(path, None, *length, *byte),
            Operation::Cut(path, length) => {
                let cut = |contents: &mut Vec<u8>| contents.resize(*length, 0);
                self.contents(path).map(cut).is_some()
            }
            Operation::Mode(path, mode) => {
                let object = self.object(path).filter(|object| !object.is_symlink());
                object.map(|object| object.mode = *mode).is_some()
            }
            Operation::Mark(path, mark) => match self.object(path) {
                Some(object)
                    if !object.is_symlink() && (mark.is_some() || object.mark.is_some()) =>
                {
                    object.mark = *mark;
                    true
                }
                _ => false,
            },
            Operation::File(path, mode) => self.add(path, Body::File(Vec::new()), *mode, next),
            Operation::Directory(path, mode) => {
                self.add(path, Body::Directory(BTreeMap::new()), *mode, next)
            }
            Operation::Symlink(path, to) => self.add(
                path,
                Body::Symlink(to.to_string().into_bytes()),
                0o777,
                next,
            ),
            Operation::Link(from, to) => self.link(from, to),
            Operation::Unlink(path) => self.remove(path, |object| !object.is_directory()),
            Operation::RemoveDirectory(path) => self.remove(
                path,
                |object| matches!(&object.body, Body::Directory(entries) if entries.is_empty()),
            ),
            Operation::Rename(from, to, mode) => self.rename(from, to, *mode).is_some(),
        }
    }

    fn object(&mut self, path: &[String]) -> Option<&mut Object> {
        let id = self.find(path)?;
        self.0.get_mut(&id)
    }

    fn contents(&mut self, path: &[String]) -> Option<&mut Vec<u8>> {
        match &mut self.object(path)?.body {
            Body::File(contents) => Some(contents),
            _ => None,
        }
    }

    fn write(&mut self, path: &[String], offset: Option<usize>, length: usize, byte: u8) -> bool {
        let Some(contents) = self.contents(path) else {
            return false;
        };
        let offset = offset.unwrap_or(contents.len());
        contents.resize(contents.len().max(offset + length), 0);
        contents[offset..offset + length].fill(byte);
        true
    }

    fn add(&mut self, path: &[String], body: Body, mode: u32, next: &mut usize) -> bool {
        let Some((directory, name)) = self.above(path) else {
            return false;
        };
        if self.entries_mut(directory).contains_key(name) {
            return false;
        }
        let id = *next;
        *next += 1;
        let mark = None;
        self.0.insert(id, Object { body, mode, mark });
        self.entries_mut(directory).insert(name.clone(), id);
        true
    }

    fn link(&mut self, from: &[String], to: &[String]) -> bool {
        let (Some(id), Some((directory, name))) = (self.find(from), self.above(to)) else {
            return false;
        };
        if self.0[&id].is_directory() || self.entries_mut(directory).contains_key(name) {
            return false;
        }
        self.entries_mut(directory).insert(name.clone(), id);
        true
    }

    fn remove(&mut self, path: &[String], may_go: impl Fn(&Object) -> bool) -> bool {
        let (Some(id), Some((directory, name))) = (self.find(path), self.above(path)) else {
            return false;
        };
        let may_go = may_go(&self.0[&id]);
        if may_go {
            self.entries_mut(directory).remove(name);
        }
        may_go
    }

    fn rename(&mut self, from: &[String], to: &[String], mode: RenameMode) -> Option<()> {
        let source = self.find(from)?;
        let ((old, name), (new, new_name)) = (self.above(from)?, self.above(to)?);
        let target = self.entries(new)?.get(new_name).copied();
        if self.0[&source].is_directory() && self.is_below(source, new) {
            return None;
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None) => return None,
            (RenameMode::Exchange, Some(target)) => {
                if self.0[&target].is_directory() && self.is_below(target, old) {
                    return None;
                }
                self.entries_mut(old).insert(name.clone(), target);
                self.entries_mut(new).insert(new_name.clone(), source);
                return Some(());
            }
            (_, Some(target)) if target == source => return Some(()),
            (_, Some(target)) => {
                let (source, target) = (&self.0[&source], &self.0[&target]);
                let may_go = match &target.body {
                    Body::Directory(entries) => source.is_directory() && entries.is_empty(),
                    _ => !source.is_directory(),
                };
                may_go.then_some(())?;
            }
            (_, None) => {}
        }
        self.entries_mut(old).remove(name);
        self.entries_mut(new).insert(new_name.clone(), source);
        Some(())
    }

    /// One that is mostly possible, and mostly below names of the root that are preferred.
    pub fn some_operation(&self, random: &mut Random, preferred: &[&str]) -> Operation {
        let mut paths = self.paths();
        let is_preferred = !random.chance(4);
        if is_preferred {
            paths.retain(|(path, _)| {
                path.first()
                    .is_none_or(|name| preferred.contains(&name.as_str()))
            });
        }
        let directories: Vec<&Path> = paths
            .iter()
            .filter(|(path, id)| path.len() < 3 && self.0[id].is_directory())
            .map(|(path, _)| path)
            .collect();
        let new = |random: &mut Random| {
            let above = random.choose(&directories);
            let name = match is_preferred && above.is_empty() {
                true => (*random.choose(preferred)).to_owned(),
                false => char::from(b'a' + random.below(6) as u8).to_string(),
            };
            [&above[..], &[name]].concat()
        };
        let of = |random: &mut Random, wanted: &dyn Fn(&Body) -> bool| -> Path {
            let fitting = paths
                .iter()
                .filter(|(path, id)| !path.is_empty() && wanted(&self.0[id].body));
            let fitting: Vec<&Path> = fitting.map(|(path, _)| path).collect();
            match fitting.is_empty() || random.chance(20) {
                true => new(random),
                false => random.choose(&fitting).to_vec(),
            }
        };
        let file = |body: &Body| matches!(body, Body::File(_));
        let directory = |body: &Body| matches!(body, Body::Directory(_));
        let marked = |body: &Body| !matches!(body, Body::Symlink(_));
        let byte = b'A' + random.below(26) as u8;
        // Both sides may make the same: so no two objects are made alike.
        let mode = 0o700 | random.below(0o100) as u32;
        match random.below(30) {
            0..=5 => {
                let offset = *random.choose(&[0, 0, 100, 4096, 5000, 8192, 12_000]);
                let length = 1 + random.below(5000);
                Operation::Write(of(random, &file), offset, length, byte)
            }
            6 | 7 => Operation::Append(of(random, &file), 1 + random.below(300), byte),
            8 | 9 => Operation::Cut(of(random, &file), random.below(9000)),
            10 | 11 => Operation::Mode(of(random, &marked), mode),
            12 => Operation::Mark(of(random, &marked), (!random.chance(3)).then_some(byte)),
            13..=16 => Operation::File(new(random), mode),
            17 | 18 => Operation::Directory(new(random), mode),
            19 => Operation::Symlink(new(random), random.below(1 << 20)),
            20 => Operation::Link(of(random, &|body| !directory(body)), new(random)),
            21 | 22 => Operation::Unlink(of(random, &|body| !directory(body))),
            23 => Operation::RemoveDirectory(of(random, &directory)),
            24 => {
                let (from, to) = (of(random, &|_| true), of(random, &|_| true));
                Operation::Rename(from, to, RenameMode::Exchange)
            }
            25 => Operation::Rename(of(random, &|_| true), new(random), RenameMode::NoReplace),
            26 => {
                let (from, to) = (of(random, &file), of(random, &file));
                Operation::Rename(from, to, RenameMode::Replace)
            }
            _ => Operation::Rename(of(random, &|_| true), new(random), RenameMode::Replace),
        }
    }

    /// The tree after both sides' changes since `fork`. An error says which change would be lost.
    pub fn merge(fork: &Model, inside: &Model, now: &Model) -> Result<Model, String> {
        let (before, mine, others) = (fork.reached(), inside.reached(), now.reached());
        let mut merged = Model(BTreeMap::new());
        let mut changed = BTreeSet::new();
        for id in mine.union(&others) {
            let of = |model: &Model, reached: &BTreeSet<usize>| {
                reached.contains(id).then(|| model.0[id].clone())
            };
            let sides = (of(fork, &before), of(inside, &mine), of(now, &others));
            let object = match sides {
                (None, Some(new), _) | (None, None, Some(new)) => new,
                (Some(fork), Some(mine), Some(others)) => {
                    let merged = merge_objects(&fork, &mine, &others);
                    merged.ok_or_else(|| format!("both changed {mine:?} and {others:?}"))?
                }
                (Some(fork), Some(left), None) | (Some(fork), None, Some(left)) => {
                    // One side has removed it. The other may have moved something out of it.
                    if left.differs_itself(&fork) {
                        changed.insert(*id);
                    }
                    left
                }
                (_, None, None) => unreachable!("one side has it"),
            };
            merged.0.insert(*id, object);
        }
        let left = merged.reached();
        let is_lost = |id: &usize| {
            let removed = before.contains(id) && !(mine.contains(id) && others.contains(id));
            // A file of which each side has removed another name.
            let may_go = !removed && before.contains(id) && !fork.0[id].is_directory();
            !left.contains(id) && !may_go && (!removed || changed.contains(id))
        };
        if let Some(lost) = mine.union(&others).find(|id| is_lost(id)) {
            return Err(format!("{:?} is lost", merged.0[lost]));
        }
        if !merged.has_one_name_each() {
            return Err("a directory has two names".to_owned());
        }
        merged.0.retain(|id, _| left.contains(id));
        Ok(merged)
    }

    /// This tree with what another has made of the file that has the same names in both. `None`: it is none.
    pub fn with_contents_of(&self, other: &Model, path: &[String]) -> Option<Model> {
        let id = self.find(path)?;
        let names = |model: &Model| -> Vec<Path> {
            let paths = model.paths().into_iter().filter(|(_, of)| *of == id);
            paths.map(|(path, _)| path).collect()
        };
        // A part takes other names along.
        if names(self) != names(other) {
            return None;
        }
        let object = other.0[&id].clone();
        let mut part = self.clone();
        let is_file = matches!(object.body, Body::File(_));
        part.0.insert(id, object);
        is_file.then_some(part)
    }

    /// All that has a path. Ends also if directories are below themselves.
    fn reached(&self) -> BTreeSet<usize> {
        let (mut reached, mut next) = (BTreeSet::from([ROOT]), vec![ROOT]);
        while let Some(id) = next.pop() {
            let below = self.entries(id).into_iter().flatten().map(|(_, id)| *id);
            next.extend(below.filter(|id| self.0.contains_key(id) && reached.insert(*id)));
        }
        reached
    }

    fn has_one_name_each(&self) -> bool {
        let mut seen = BTreeSet::new();
        let reached = self.reached();
        let names = reached
            .iter()
            .flat_map(|id| self.entries(*id).into_iter().flatten());
        let mut below = names.map(|(_, id)| *id);
        below.all(|id| self.0.contains_key(&id) && (!self.0[&id].is_directory() || seen.insert(id)))
    }
}

impl Object {
    /// But for the entries of a directory.
    fn differs_itself(&self, other: &Object) -> bool {
        let is_other = match (&self.body, &other.body) {
            (Body::File(one), Body::File(other)) => one != other,
            _ => false,
        };
        is_other || (self.mode, self.mark) != (other.mode, other.mark)
    }
}

/// The value that one side has changed, or the common one. `None`: both have changed it, each to
/// something else.
fn merge<T: PartialEq + Clone>(fork: &T, mine: &T, others: &T) -> Option<T> {
    match (mine == fork, others == fork) {
        (true, _) => Some(others.clone()),
        (false, true) => Some(mine.clone()),
        (false, false) => (mine == others).then(|| mine.clone()),
    }
}

fn merge_objects(fork: &Object, mine: &Object, others: &Object) -> Option<Object> {
    let body = match (&fork.body, &mine.body, &others.body) {
        (Body::Directory(fork), Body::Directory(mine), Body::Directory(others)) => {
            let names: BTreeSet<&String> = mine.keys().chain(others.keys()).collect();
            let mut entries = BTreeMap::new();
            for name in names {
                let of = |entries: &BTreeMap<String, usize>| entries.get(name).copied();
                let merged = merge(&of(fork), &of(mine), &of(others))?;
                entries.extend(merged.map(|id| (name.clone(), id)));
            }
            Body::Directory(entries)
        }
        (Body::File(fork), Body::File(mine), Body::File(others)) => {
            let length = merge(&fork.len(), &mine.len(), &others.len())?;
            let of = |contents: &[u8], at: usize| contents.get(at).copied().unwrap_or(0);
            let byte = |at| merge(&of(fork, at), &of(mine, at), &of(others, at));
            Body::File((0..length).map(byte).collect::<Option<_>>()?)
        }
        _ => mine.body.clone(),
    };
    Some(Object {
        body,
        mode: merge(&fork.mode, &mine.mode, &others.mode)?,
        mark: merge(&fork.mark, &mine.mark, &others.mark)?,
    })
}
