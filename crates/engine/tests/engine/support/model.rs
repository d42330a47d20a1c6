//! A tree in memory, taken from a view, from the base, or grown by operations.

use std::collections::BTreeMap;

use atomdir_disk::{Disk, Errno, RenameMode};
use atomdir_engine::{Caller, Entry, NewNode, NodeId, SetAttributes, Transaction};

use super::Random;

mod join;
mod outside;
pub mod taken_back;
mod trees;

/// This process's user and group, so that the tests run as any user.
pub fn caller() -> Caller {
    Caller {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    }
}

/// Objects by number; a directory's entries by name.
#[derive(Debug, Clone)]
pub struct Model {
    objects: BTreeMap<usize, Object>,
    next: usize,
    /// What each object was last changed to: a number for a file or a link, a mode for a directory.
    stamps: BTreeMap<usize, usize>,
}

#[derive(Debug, Clone, PartialEq)]
enum Object {
    Directory {
        entries: BTreeMap<Vec<u8>, usize>,
        mode: u32,
    },
    File {
        contents: Vec<u8>,
        mode: u32,
    },
    Symlink(Vec<u8>),
}

/// A tree to compare: each path's description. Hard links are described by their first path.
pub type Tree = BTreeMap<Vec<u8>, String>;

const ROOT: usize = 0;

impl Model {
    pub fn new() -> Model {
        let root = Object::Directory {
            entries: BTreeMap::new(),
            mode: 0o755,
        };
        Model {
            objects: BTreeMap::from([(ROOT, root)]),
            next: 1,
            stamps: BTreeMap::new(),
        }
    }

    pub fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut firsts = BTreeMap::new();
        self.walk(ROOT, b"", &mut tree, &mut firsts);
        tree
    }

    fn walk(
        &self,
        directory: usize,
        path: &[u8],
        tree: &mut Tree,
        firsts: &mut BTreeMap<usize, Vec<u8>>,
    ) {
        let Object::Directory { entries, .. } = &self.objects[&directory] else {
            return;
        };
        for (name, id) in entries {
            let path = join(path, name);
            let description = match &self.objects[id] {
                Object::Directory { mode, .. } => format!("directory {mode:o}"),
                Object::Symlink(target) => format!("symlink {}", target.escape_ascii()),
                Object::File { contents, mode } => {
                    let first = firsts.entry(*id).or_insert_with(|| path.clone());
                    describe_file(contents, *mode, first)
                }
            };
            tree.insert(path.clone(), description);
            self.walk(*id, &path, tree, firsts);
        }
    }

    fn directories(&self) -> Vec<(Vec<u8>, usize)> {
        let mut found = vec![(Vec::new(), ROOT)];
        let mut at = 0;
        while at < found.len() {
            let (path, id) = found[at].clone();
            for (name, child) in self.entries(id) {
                if matches!(self.objects[child], Object::Directory { .. }) {
                    found.push((join(&path, name), *child));
                }
            }
            at += 1;
        }
        found
    }

    fn entries(&self, id: usize) -> &BTreeMap<Vec<u8>, usize> {
        match &self.objects[&id] {
            Object::Directory { entries, .. } => entries,
            _ => panic!("not a directory"),
        }
    }

    fn entries_mut(&mut self, id: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match self.objects.get_mut(&id) {
            Some(Object::Directory { entries, .. }) => entries,
            _ => panic!("not a directory"),
        }
    }

    fn add(&mut self, directory: usize, name: &[u8], object: Object) {
        let id = self.next;
        self.next += 1;
        self.objects.insert(id, object);
        self.touch(id);
        self.entries_mut(directory).insert(name.to_vec(), id);
    }

    /// Notes that the object itself has changed, or that a file or link has lost or got a name.
    fn touch(&mut self, id: usize) {
        let stamp = match self.objects[&id] {
            Object::Directory { mode, .. } => mode as usize,
            _ => self.next,
        };
        self.next += 1;
        self.stamps.insert(id, stamp);
    }

    fn touch_name(&mut self, id: usize) {
        if !self.is_directory(id) {
            self.touch(id);
        }
    }

    fn is_directory(&self, id: usize) -> bool {
        matches!(self.objects[&id], Object::Directory { .. })
    }

    fn is_below(&self, ancestor: usize, id: usize) -> bool {
        ancestor == id
            || (self.is_directory(ancestor)
                && self
                    .entries(ancestor)
                    .values()
                    .any(|child| self.is_below(*child, id)))
    }

    /// Does one random operation to the model and to the view, which must agree on whether it
    /// is possible.
    pub fn step<D: Disk>(&mut self, random: &mut Random, view: &Transaction<D>) {
        let directories = self.directories();
        let mut pick = || directories[random.below(directories.len())].clone();
        let ((from_path, from), (to_path, to)) = (pick(), pick());
        let name = name(random);
        let other = self.some_name(random, from);
        let parent = resolve(view, &from_path);
        let new_parent = resolve(view, &to_path);
        let context = format!(
            "in {:?}: {:?}, {:?} and {:?}",
            from_path.escape_ascii().to_string(),
            name.escape_ascii().to_string(),
            other.escape_ascii().to_string(),
            to_path.escape_ascii().to_string()
        );
        match random.below(16) {
            0..=2 => self.write(random, view, (parent, from), &other, &context),
            3 => {
                let result = view.create(parent, &name, NewNode::Directory, 0o755, 0, caller());
                if self.agree(
                    forget_some(view, result),
                    !self.entries(from).contains_key(&name),
                    &context,
                ) {
                    let entries = BTreeMap::new();
                    self.add(
                        from,
                        &name,
                        Object::Directory {
                            entries,
                            mode: 0o755,
                        },
                    );
                }
            }
            4 => {
                let what = NewNode::Symlink(b"some/target".to_vec());
                let result = view.create(parent, &name, what, 0o777, 0, caller());
                if self.agree(
                    forget_some(view, result),
                    !self.entries(from).contains_key(&name),
                    &context,
                ) {
                    self.add(from, &name, Object::Symlink(b"some/target".to_vec()));
                }
            }
            5 | 6 => {
                let known = self.entries(from).get(&other).copied();
                let is_file = known.is_some_and(|id| !self.is_directory(id));
                let done = self.agree(view.unlink(parent, &other), is_file, &context);
                if let (true, Some(id)) = (done, known) {
                    self.entries_mut(from).remove(&other);
                    self.touch_name(id);
                }
            }
            7 => {
                let known = self.entries(from).get(&other).copied();
                let can =
                    known.is_some_and(|id| self.is_directory(id) && self.entries(id).is_empty());
                if self.agree(view.remove_directory(parent, &other), can, &context) {
                    self.entries_mut(from).remove(&other);
                }
            }
            8..=11 => self.rename(
                view,
                (parent, from, &other),
                (new_parent, to, &name),
                &context,
            ),
            12 => {
                let target = self.some_name(random, to);
                self.exchange(
                    view,
                    (parent, from, &other),
                    (new_parent, to, &target),
                    &context,
                );
            }
            13 => {
                let known = self.entries(from).get(&other).copied();
                let Some(id) = known.filter(|id| !self.is_directory(*id)) else {
                    return;
                };
                let node = view.lookup(parent, &other).expect("it exists").node;
                let free = !self.entries(to).contains_key(&name);
                if self.agree(
                    forget_some(view, view.link(node, new_parent, &name)),
                    free,
                    &context,
                ) {
                    self.entries_mut(to).insert(name, id);
                    self.touch_name(id);
                }
            }
            14 => self.change_mode(random, view, (parent, from), &other),
            _ => self.truncate(random, view, (parent, from), &other),
        }
    }

    /// Changes contents or a mode, which programs can do while a transaction is nested.
    pub fn step_in_place<D: Disk>(&mut self, random: &mut Random, view: &Transaction<D>) {
        let directories = self.directories();
        let (path, id) = directories[random.below(directories.len())].clone();
        let names: Vec<Vec<u8>> = self.entries(id).keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[random.below(names.len())];
        let at = (resolve(view, &path), id);
        match random.below(3) {
            0 => self.write(random, view, at, name, "in place"),
            1 => self.truncate(random, view, at, name),
            _ => self.change_mode(random, view, at, name),
        }
    }

    /// A name that mostly exists.
    fn some_name(&self, random: &mut Random, directory: usize) -> Vec<u8> {
        let names: Vec<&Vec<u8>> = self.entries(directory).keys().collect();
        if names.is_empty() || random.below(8) == 0 {
            return name(random);
        }
        names[random.below(names.len())].clone()
    }

    fn agree(&self, result: Result<(), Errno>, expected: bool, context: &str) -> bool {
        assert_eq!(result.is_ok(), expected, "{context}: {result:?}");
        expected
    }

    fn write<D: Disk>(
        &mut self,
        random: &mut Random,
        view: &Transaction<D>,
        (parent, directory): (NodeId, usize),
        name: &[u8],
        context: &str,
    ) {
        let known = self.entries(directory).get(name).copied();
        let node = match known {
            None => {
                let made = view.create(parent, name, NewNode::File, 0o644, 0, caller());
                self.add(
                    directory,
                    name,
                    Object::File {
                        contents: Vec::new(),
                        mode: 0o644,
                    },
                );
                made.expect(context).node
            }
            Some(_) => view.lookup(parent, name).expect(context).node,
        };
        let id = self.entries(directory)[name];
        let Some(Object::File { contents, .. }) = self.objects.get_mut(&id) else {
            return;
        };
        let offset = random.below(4) * 3000;
        let data = vec![b'a' + random.below(26) as u8; 1 + random.below(9000)];
        view.write(node, offset as u64, &data, false)
            .expect(context);
        contents.resize(contents.len().max(offset + data.len()), 0);
        contents[offset..offset + data.len()].copy_from_slice(&data);
        self.touch(id);
    }

    fn truncate<D: Disk>(
        &mut self,
        random: &mut Random,
        view: &Transaction<D>,
        (parent, directory): (NodeId, usize),
        name: &[u8],
    ) {
        let Some(id) = self.entries(directory).get(name).copied() else {
            return;
        };
        let Some(Object::File { contents, .. }) = self.objects.get_mut(&id) else {
            return;
        };
        let length = random.below(12_000);
        let node = view.lookup(parent, name).expect("it exists").node;
        let change = SetAttributes {
            length: Some(length as u64),
            ..Default::default()
        };
        view.set_attributes(node, change, caller())
            .expect("a file can be cut");
        contents.resize(length, 0);
        self.touch(id);
    }

    fn change_mode<D: Disk>(
        &mut self,
        random: &mut Random,
        view: &Transaction<D>,
        (parent, directory): (NodeId, usize),
        name: &[u8],
    ) {
        let Some(id) = self.entries(directory).get(name).copied() else {
            return;
        };
        let new = 0o600 + random.below(0o100) as u32;
        match self.objects.get_mut(&id) {
            Some(Object::File { mode, .. }) => *mode = new,
            Some(Object::Directory { mode, .. }) => *mode = 0o700 | new,
            _ => return,
        }
        self.touch(id);
        let new = if self.is_directory(id) {
            0o700 | new
        } else {
            new
        };
        let node = view.lookup(parent, name).expect("it exists").node;
        let change = SetAttributes {
            mode: Some(new),
            ..Default::default()
        };
        view.set_attributes(node, change, caller())
            .expect("a mode can be set");
    }

    fn rename<D: Disk>(
        &mut self,
        view: &Transaction<D>,
        (parent, from, name): (NodeId, usize, &[u8]),
        (new_parent, to, new_name): (NodeId, usize, &[u8]),
        context: &str,
    ) {
        let source = self.entries(from).get(name).copied();
        let target = self.entries(to).get(new_name).copied();
        let can = source.is_some_and(|source| {
            !self.is_below_directory(source, to)
                && target.is_none_or(|target| {
                    target == source
                        || match (self.is_directory(source), self.is_directory(target)) {
                            (true, true) => self.entries(target).is_empty(),
                            (false, false) => true,
                            _ => false,
                        }
                })
        });
        let result = view.rename(parent, name, new_parent, new_name, RenameMode::Replace);
        if self.agree(result, can, &format!("rename {context}")) && source != target {
            let source = source.expect("it can be renamed");
            self.entries_mut(from).remove(name);
            self.entries_mut(to).insert(new_name.to_vec(), source);
            self.touch_name(source);
            target
                .into_iter()
                .for_each(|target| self.touch_name(target));
        }
    }

    fn is_below_directory(&self, source: usize, directory: usize) -> bool {
        self.is_directory(source) && self.is_below(source, directory)
    }

    fn exchange<D: Disk>(
        &mut self,
        view: &Transaction<D>,
        (parent, from, name): (NodeId, usize, &[u8]),
        (new_parent, to, new_name): (NodeId, usize, &[u8]),
        context: &str,
    ) {
        let source = self.entries(from).get(name).copied();
        let target = self.entries(to).get(new_name).copied();
        let can = match (source, target) {
            (Some(source), Some(target)) => {
                !self.is_below_directory(source, to)
                    && (source == target || !self.is_below_directory(target, from))
            }
            _ => false,
        };
        let result = view.rename(parent, name, new_parent, new_name, RenameMode::Exchange);
        if let (true, Some(source), Some(target)) = (
            self.agree(result, can, &format!("exchange {context}")),
            source,
            target,
        ) {
            self.entries_mut(from).insert(name.to_vec(), target);
            self.entries_mut(to).insert(new_name.to_vec(), source);
            if source != target {
                self.touch_name(source);
                self.touch_name(target);
            }
        }
    }
}

/// The kernel may forget nodes at any time. Here it forgets every second one at once.
fn forget_some<D: Disk>(view: &Transaction<D>, made: Result<Entry, Errno>) -> Result<(), Errno> {
    let node = made?.node;
    if node.0.is_multiple_of(2) {
        view.forget(node, 1);
    }
    Ok(())
}

fn name(random: &mut Random) -> Vec<u8> {
    vec![b'a' + random.below(7) as u8]
}

pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        name.to_vec()
    } else {
        [path, name].join(&b'/')
    }
}

fn resolve<D: Disk>(view: &Transaction<D>, path: &[u8]) -> NodeId {
    let found = view.resolve(path).expect("the view resolves");
    found.unwrap_or_else(|| panic!("{} is in the model only", path.escape_ascii()))
}

pub fn describe_file(contents: &[u8], mode: u32, first: &[u8]) -> String {
    let sum = contents
        .iter()
        .fold(7u64, |sum, byte| sum.wrapping_mul(31) ^ u64::from(*byte));
    format!(
        "file {mode:o} {} bytes {sum:x} linked to {}",
        contents.len(),
        first.escape_ascii()
    )
}
