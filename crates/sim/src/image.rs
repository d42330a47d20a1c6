//! A file system's state: that of the disk, or the one that programs see.

use std::collections::BTreeMap;
use std::sync::Arc;

use atomdir_disk::{Kind, Name, Owner, Times, Timestamp};

use crate::contents::Contents;
use crate::hash::{Hasher, Known};

pub(crate) type Number = u64;
pub(crate) const ROOT: Number = 1;
/// The number of a file system.
pub(crate) type Device = u64;
/// That of the root. A second one has the next number.
pub(crate) const DEVICE: Device = 0x801;

#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub owner: Owner,
    pub times: Times,
    pub changed: Timestamp,
    /// Nanoseconds since 1970.
    pub birth: u64,
    pub links: u32,
    pub device_number: u64,
    pub device: Device,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub body: Body,
    pub hash: Known,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    File(Contents),
    Directory(BTreeMap<Name, Number>),
    Symlink(Vec<u8>),
    Other,
}

impl Inode {
    pub fn entries(&self) -> Option<&BTreeMap<Name, Number>> {
        match &self.body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn contents(&self) -> Option<&Contents> {
        match &self.body {
            Body::File(contents) => Some(contents),
            _ => None,
        }
    }
}

/// Cheap to copy: images share inodes until one of them changes them.
#[derive(Debug, Clone)]
pub struct Image {
    inodes: Vec<Option<Arc<Inode>>>,
    /// The root of a second file system.
    pub(crate) second: Option<Number>,
    /// How often a machine has started on this image.
    pub(crate) boots: u64,
}

impl Image {
    pub(crate) fn new(root: Inode) -> Image {
        Image {
            inodes: vec![None, Some(Arc::new(root))],
            second: None,
            boots: 0,
        }
    }

    pub(crate) fn get(&self, number: Number) -> Option<&Inode> {
        self.inodes.get(number as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut Inode> {
        let inode = self.inodes.get_mut(number as usize)?.as_mut()?;
        Some(changed(inode))
    }

    pub(crate) fn insert(&mut self, number: Number, inode: Arc<Inode>) {
        let index = number as usize;
        if self.inodes.len() <= index {
            self.inodes.resize(index + 1, None);
        }
        self.inodes[index] = Some(inode);
    }

    pub(crate) fn remove(&mut self, number: Number) {
        self.inodes[number as usize] = None;
    }

    /// One past the highest inode number.
    pub(crate) fn end(&self) -> Number {
        self.inodes.len() as Number
    }

    /// Does what a file system's own recovery does: it removes objects without
    /// a name, sets link counts to the number of names, and drops what is
    /// beyond a file's end.
    pub(crate) fn repair(&mut self) {
        let mut links = vec![0; self.inodes.len()];
        let mut directories = vec![ROOT];
        directories.extend(self.second);
        for root in &directories {
            links[*root as usize] = 2;
        }
        while let Some(directory) = directories.pop() {
            let Some(entries) = self.get(directory).and_then(Inode::entries) else {
                continue;
            };
            for child in entries.values() {
                let is_directory = self
                    .get(*child)
                    .is_some_and(|inode| inode.entries().is_some());
                if is_directory && links[*child as usize] == 0 {
                    links[*child as usize] = 2;
                    links[directory as usize] += 1;
                    directories.push(*child);
                } else if !is_directory {
                    links[*child as usize] += 1;
                }
            }
        }
        for (slot, links) in self.inodes.iter_mut().zip(links) {
            if links == 0 {
                *slot = None;
            }
            let Some(inode) = slot else { continue };
            let loose = inode.contents().is_some_and(|contents| {
                let last = contents.sectors.last_key_value();
                last.is_some_and(|(last, _)| (last + 1) * crate::contents::SECTOR > contents.length)
            });
            if inode.links != links || loose {
                let inode = changed(inode);
                inode.links = links;
                if let Body::File(contents) = &mut inode.body {
                    contents.trim();
                }
            }
        }
    }

    /// The same for two images that no program could tell apart.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = Hasher::default();
        for (number, inode) in self.inodes.iter().enumerate() {
            if let Some(inode) = inode {
                hasher.number(number as u64);
                hasher.number(inode.hash.or_computed(|| hash_of(inode)));
            }
        }
        hasher.finish()
    }

    /// Covers what [`Image::hash`] leaves out and a program can learn. That hash chooses the states
    /// whose recovery is crashed, too.
    pub(crate) fn hash_of_rest(&self) -> u64 {
        let mut hasher = Hasher::default();
        hasher.number(self.boots);
        for inode in self.inodes.iter().flatten() {
            hasher.number(inode.kind as u64);
            hasher.number(inode.contents().map_or(0, |contents| contents.reserved));
        }
        hasher.finish()
    }
}

/// For a change: copied if other images share it.
fn changed(inode: &mut Arc<Inode>) -> &mut Inode {
    let inode = Arc::make_mut(inode);
    inode.hash = Known::default();
    inode
}

fn hash_of(inode: &Inode) -> u64 {
    let mut hasher = Hasher::default();
    hasher.number(u64::from(inode.mode));
    hasher.number(u64::from(inode.owner.user) << 32 | u64::from(inode.owner.group));
    for time in [inode.times.accessed, inode.times.modified, inode.changed] {
        hasher.number(time.seconds as u64);
        hasher.number(u64::from(time.nanoseconds));
    }
    hasher.number(inode.birth);
    hasher.number(inode.xattrs.len() as u64);
    for (name, value) in &inode.xattrs {
        hasher.bytes(name);
        hasher.bytes(value);
    }
    match &inode.body {
        Body::Directory(entries) => {
            for (name, child) in entries {
                hasher.bytes(name.as_bytes());
                hasher.number(*child);
            }
        }
        Body::File(contents) => {
            hasher.number(contents.length);
            for (number, sector) in &contents.sectors {
                hasher.number(*number);
                hasher.bytes(&sector[..]);
            }
        }
        Body::Symlink(target) => hasher.bytes(target),
        Body::Other => hasher.number(inode.device_number),
    }
    hasher.finish()
}
