//! Everything of a tree that a transaction promises to keep.

use std::collections::BTreeMap;
use std::fmt;

use atomdir_disk::{Kind, Owner, Result, Timestamp};
use atomdir_engine::{Caller, NodeId, Transaction};

use crate::contents::{Contents, SECTOR};
use crate::disk::SimDisk;
use crate::hash::Hasher;
use crate::image::{Body, Image, Number, ROOT};

pub(crate) const CALLER: Caller = Caller { user: 0, group: 0 };
/// The control directory: it is in the root, and not part of the tree.
pub(crate) const CONTROL: &[u8] = b".atomdir";

/// Objects by path; the root's path is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tree(BTreeMap<Vec<u8>, Object>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Object {
    kind: Kind,
    mode: u32,
    owner: Owner,
    modified: Timestamp,
    device_number: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    length: u64,
    /// A hash of a file's contents or a link's target.
    hash: u64,
    /// The first path of the object: the same for all its names.
    first: Vec<u8>,
}

impl fmt::Debug for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Object {
            kind, mode, owner, ..
        } = self;
        let Timestamp {
            seconds,
            nanoseconds,
        } = self.modified;
        write!(
            formatter,
            "{kind:?} {mode:o} {}:{} of {seconds}.{nanoseconds:09}, {} bytes #{:x}, {} xattrs, met at {}",
            owner.user,
            owner.group,
            self.length,
            self.hash & 0xffff,
            self.xattrs.len(),
            self.first.escape_ascii()
        )
    }
}

impl Tree {
    /// The root's name, every path, and the last part of each.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let paths = self.0.keys().map(move |path| text(path));
        let names = paths.flat_map(move |path| [last(&path), path]);
        names
            .chain([".".to_owned()])
            .filter(|name| !name.is_empty())
    }

    /// The tree that programs find on the disk, without the control directory.
    pub(crate) fn of_image(image: &Image) -> Tree {
        let mut tree = Tree::default();
        tree.add(image, ROOT, b"", &mut BTreeMap::new());
        tree
    }

    fn add(
        &mut self,
        image: &Image,
        number: Number,
        path: &[u8],
        firsts: &mut BTreeMap<Number, Vec<u8>>,
    ) {
        let Some(inode) = image.get(number) else {
            return;
        };
        let (length, hash) = match &inode.body {
            Body::File(contents) => (contents.length, contents.hash()),
            Body::Symlink(target) => (target.len() as u64, hash_of(target)),
            _ => (0, 0),
        };
        let object = Object {
            kind: inode.kind,
            mode: inode.mode,
            owner: inode.owner,
            modified: inode.times.modified,
            device_number: inode.device_number,
            xattrs: inode.xattrs.clone(),
            length,
            hash,
            first: firsts
                .entry(number)
                .or_insert_with(|| path.to_vec())
                .clone(),
        };
        self.0.insert(path.to_vec(), object);
        for (name, child) in inode.entries().into_iter().flatten() {
            if !(path.is_empty() && name.as_bytes() == CONTROL) {
                self.add(image, *child, &join(path, name.as_bytes()), firsts);
            }
        }
    }

    /// The tree that a transaction shows.
    pub(crate) fn of_view(view: &Transaction<SimDisk>) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.add_node(view, NodeId::ROOT, b"", &mut BTreeMap::new())?;
        Ok(tree)
    }

    fn add_node(
        &mut self,
        view: &Transaction<SimDisk>,
        node: NodeId,
        path: &[u8],
        firsts: &mut BTreeMap<Number, Vec<u8>>,
    ) -> Result<()> {
        let attributes = view.attributes(node)?;
        let mut bytes = Vec::new();
        match attributes.kind {
            Kind::File => {
                bytes.resize(attributes.length as usize, 0);
                view.read(node, 0, &mut bytes, CALLER)?;
            }
            Kind::Symlink => bytes = view.read_link(node)?,
            _ => {}
        }
        let mut xattrs = BTreeMap::new();
        for name in view.xattr_names(node)? {
            let value = view.xattr(node, &name)?;
            xattrs.insert(name, value);
        }
        let first = firsts.entry(attributes.inode);
        let object = Object {
            kind: attributes.kind,
            mode: attributes.mode,
            owner: attributes.owner,
            modified: attributes.modified,
            device_number: attributes.device_number,
            xattrs,
            length: bytes.len() as u64,
            hash: match attributes.kind {
                Kind::File | Kind::Symlink => hash_of(&bytes),
                _ => 0,
            },
            first: first.or_insert_with(|| path.to_vec()).clone(),
        };
        self.0.insert(path.to_vec(), object);
        if attributes.kind == Kind::Directory {
            let mut listing = view.list(node)?;
            listing.sort_by(|a, b| a.name.cmp(&b.name));
            for entry in listing {
                let child = view.lookup(node, entry.name.as_bytes())?.node;
                self.add_node(view, child, &join(path, entry.name.as_bytes()), firsts)?;
                view.forget(child, 1);
            }
        }
        Ok(())
    }

    /// This tree with the changes that lead from `before` to `after`.
    pub(crate) fn with_changes(&self, before: &Tree, after: &Tree) -> Tree {
        let mut tree = self.clone();
        for path in before.0.keys().chain(after.0.keys()) {
            match after.0.get(path) {
                object if object == before.0.get(path) => {}
                Some(object) => _ = tree.0.insert(path.clone(), object.clone()),
                None => _ = tree.0.remove(path),
            }
        }
        tree
    }

    /// Without times, since two disks get the same calls at different times.
    pub(crate) fn without_times(mut self) -> Tree {
        for object in self.0.values_mut() {
            object.modified = Timestamp::default();
        }
        self
    }

    pub(crate) fn forget_times_of_directories(&mut self) {
        for object in self.0.values_mut() {
            if object.kind == Kind::Directory {
                object.modified = Timestamp::default();
            }
        }
    }

    /// Describes the differences.
    pub(crate) fn difference(&self, expected: &Tree) -> String {
        let paths = self.0.keys().chain(expected.0.keys());
        let mut paths: Vec<&Vec<u8>> = paths.collect();
        paths.sort();
        paths.dedup();
        let differing = paths
            .into_iter()
            .filter(|path| self.0.get(*path) != expected.0.get(*path));
        let lines = differing.map(|path| {
            let (is, should) = (self.0.get(path), expected.0.get(path));
            format!(
                "  '{}': {is:?}\n    instead of {should:?}\n",
                path.escape_ascii()
            )
        });
        lines.collect()
    }
}

impl Contents {
    fn hash(&self) -> u64 {
        let written = self.sectors.iter();
        let sectors = written.map(|(number, sector)| (*number, &**sector));
        hash_of_sectors(sectors)
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let (sectors, rest) = bytes.as_chunks();
    let mut last = [0; SECTOR as usize];
    last[..rest.len()].copy_from_slice(rest);
    hash_of_sectors((0..).zip(sectors.iter().chain([&last])))
}

/// Holes and zeros read the same.
fn hash_of_sectors<'a>(sectors: impl Iterator<Item = (u64, &'a [u8; SECTOR as usize])>) -> u64 {
    let mut hasher = Hasher::default();
    for (number, bytes) in sectors {
        if *bytes != [0; SECTOR as usize] {
            hasher.number(number);
            hasher.bytes(bytes);
        }
    }
    hasher.finish()
}

pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return name.to_vec();
    }
    [path, name].join(&b'/')
}
