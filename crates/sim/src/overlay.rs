//! A stand-in for overlayfs. It changes a transaction's upper layer as the
//! kernel does when a program changes a native view, as far as the final layer
//! shows it (fs/overlayfs, with `index`, `redirect_dir` and `metacopy`).

use std::cell::RefCell;
use std::collections::HashMap;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, NewNode, Owner, RenameMode, Result, Times};
use atomdir_engine::{Entry, NodeId, Transaction};

use crate::disk::{Handle, SimDisk};
use crate::operation::{
    CAPABILITY, CAPABILITY_VALUE, Operation, Target, XATTR, at, name_of, pattern, split,
};
use crate::tree::{CALLER, CONTROL};

const OPAQUE: &[u8] = b"trusted.overlay.opaque";
const REDIRECT: &[u8] = b"trusted.overlay.redirect";
const METACOPY: &[u8] = b"trusted.overlay.metacopy";
const IMPURE: &[u8] = b"trusted.overlay.impure";
const ORIGIN: &[u8] = b"trusted.overlay.origin";

pub(crate) struct Overlay<'a> {
    disk: &'a SimDisk,
    lower: &'a Transaction<SimDisk>,
    /// A path from the disk's root, as `index` is.
    upper: String,
    index: String,
    /// For each file in the index, by inode: its name in the index, and how
    /// many names it has in the overlay.
    indexed: RefCell<HashMap<u64, (Name, u32)>>,
}

/// What a path of the overlay leads to.
struct Found {
    /// The object's directory in the upper layer and its name there, if it is
    /// in that layer.
    upper: Option<(Handle, Name)>,
    /// The path of the lower object that this one is, copies, or is merged with.
    lower: Option<String>,
}

/// How much of a file to copy up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    Attributes,
    Contents,
}

impl<'a> Overlay<'a> {
    pub fn mount(disk: &'a SimDisk, lower: &'a Transaction<SimDisk>) -> Result<Overlay<'a>> {
        lower.become_lower()?;
        let layers = lower.layers().ok_or(Errno::NOENT)?;
        let control = std::str::from_utf8(CONTROL).map_err(|_| Errno::INVAL)?;
        let layers = format!("{control}/{}", layers.display());
        let work = disk.directory_at(&format!("{layers}/work"))?;
        disk.make(&work, &name_of("index")?, &NewNode::Directory, 0o700)?;
        Ok(Overlay {
            disk,
            lower,
            upper: format!("{layers}/upper"),
            index: format!("{layers}/work/index"),
            indexed: RefCell::default(),
        })
    }

    fn lower_entry(&self, path: &str) -> Result<Option<Entry>> {
        let (parent, name) = split(path);
        let Some(parent) = self.lower.resolve(parent.as_bytes())? else {
            return Ok(None);
        };
        match self.lower.lookup(parent, name.as_bytes()) {
            Ok(entry) => Ok(Some(entry)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn is_lower_directory(&self, path: &str) -> Result<bool> {
        let entry = self.lower_entry(path)?;
        Ok(entry.is_some_and(|entry| entry.attributes.kind == Kind::Directory))
    }

    fn overlay_attribute(&self, object: &Handle, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.disk.xattr(object, name) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Copies the directory up if needed, and returns it and its lower one.
    fn directory(&self, path: &str) -> Result<(Handle, Option<String>)> {
        if path.is_empty() {
            return Ok((self.disk.directory_at(&self.upper)?, Some(String::new())));
        }
        let found = self.copy_up(path, Copy::Attributes)?;
        let (parent, name) = found.upper.ok_or(Errno::NOENT)?;
        Ok((
            self.disk.open(&parent, &name, Access::Directory)?,
            found.lower,
        ))
    }

    /// Finds the object at a path, and copies its directory up.
    fn find(&self, path: &str) -> Result<Found> {
        let (parent, name) = split(path);
        let (directory, lower) = self.directory(parent)?;
        let name = name_of(name)?;
        let beneath = lower.map(|lower| join(&lower, split(path).1));
        let stat = match self.disk.stat_at(&directory, &name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                let is_there = match &beneath {
                    Some(path) => self.lower_entry(path)?.is_some(),
                    None => false,
                };
                return match is_there {
                    true => Ok(Found {
                        upper: None,
                        lower: beneath,
                    }),
                    false => Err(Errno::NOENT),
                };
            }
            Err(errno) => return Err(errno),
        };
        if stat.kind == Kind::CharacterDevice && stat.device_number == 0 {
            return Err(Errno::NOENT);
        }
        let object = self.disk.open(&directory, &name, Access::Path)?;
        let redirect = self.overlay_attribute(&object, REDIRECT)?;
        let lower = match redirect {
            Some(to) => {
                let to = String::from_utf8(to).map_err(|_| Errno::INVAL)?;
                Some(to.trim_start_matches('/').to_owned())
            }
            None if stat.kind != Kind::Directory => beneath,
            None if self.overlay_attribute(&object, OPAQUE)?.is_some() => None,
            None => match beneath {
                Some(path) if self.is_lower_directory(&path)? => Some(path),
                _ => None,
            },
        };
        Ok(Found {
            upper: Some((directory, name)),
            lower,
        })
    }

    /// Copies an object up; a file's contents only on request.
    fn copy_up(&self, path: &str, copy: Copy) -> Result<Found> {
        let mut found = self.find(path)?;
        if found.upper.is_none() {
            let (parent, name) = split(path);
            let (directory, _) = self.directory(parent)?;
            let name = name_of(name)?;
            let lower = found.lower.clone().ok_or(Errno::NOENT)?;
            let times = self.disk.stat(&directory)?.attributes.times;
            self.copy(&lower, &directory, &name, copy)?;
            self.disk.set_xattr(&directory, IMPURE, b"y")?;
            self.disk.set_times(&directory, times)?;
            found.upper = Some((directory, name));
        }
        if copy == Copy::Contents {
            self.complete(&found)?;
        }
        Ok(found)
    }

    fn open_upper(&self, path: &str, copy: Copy, access: Access) -> Result<Handle> {
        if path.is_empty() {
            return self.disk.directory_at(&self.upper);
        }
        let (directory, name) = self.copy_up(path, copy)?.upper.ok_or(Errno::NOENT)?;
        self.disk.open(&directory, &name, access)
    }

    fn copy(&self, lower: &str, to: &Handle, name: &Name, copy: Copy) -> Result<()> {
        let entry = self.lower_entry(lower)?.ok_or(Errno::NOENT)?;
        let attributes = entry.attributes;
        let has_names = attributes.kind != Kind::Directory && attributes.links > 1;
        // All names share one copy, which the index names after the lower
        // object.
        let indexed = name_of(&format!("{:x}", entry.node.0))?;
        let index = self.disk.directory_at(&self.index)?;
        if has_names && self.disk.stat_at(&index, &indexed).is_ok() {
            return self.disk.link((&index, &indexed), (to, name));
        }
        let (place, own) = if has_names {
            (&index, &indexed)
        } else {
            (to, name)
        };
        match attributes.kind {
            Kind::File => drop(self.disk.create(place, own, attributes.mode)?),
            Kind::Directory => {
                self.disk
                    .make(place, own, &NewNode::Directory, attributes.mode)?;
            }
            Kind::Symlink => {
                let target = self.lower.read_link(entry.node)?;
                self.disk.make(place, own, &NewNode::Symlink(target), 0)?;
            }
            Kind::Fifo => self
                .disk
                .make(place, own, &NewNode::Fifo, attributes.mode)?,
            Kind::Socket => self
                .disk
                .make(place, own, &NewNode::Socket, attributes.mode)?,
            Kind::CharacterDevice => {
                let device = NewNode::CharacterDevice(attributes.device_number);
                self.disk.make(place, own, &device, attributes.mode)?;
            }
            Kind::BlockDevice => {
                let device = NewNode::BlockDevice(attributes.device_number);
                self.disk.make(place, own, &device, attributes.mode)?;
            }
        }
        let object = self.disk.open(place, own, Access::Path)?;
        for xattr in self.lower.xattr_names(entry.node)? {
            let value = self.lower.xattr(entry.node, &xattr)?;
            self.disk.set_xattr(&object, &xattr, &value)?;
        }
        self.disk.set_xattr(&object, ORIGIN, &origin(&entry))?;
        if attributes.kind == Kind::File {
            let file = self.disk.open(place, own, Access::ReadWrite)?;
            self.disk.set_length(&file, attributes.length)?;
            match copy {
                Copy::Attributes => self.disk.set_xattr(&object, METACOPY, b"")?,
                Copy::Contents => self.copy_contents(&entry, &file)?,
            }
        }
        self.disk.set_owner(&object, attributes.owner)?;
        if attributes.kind != Kind::Symlink {
            self.disk.set_mode(&object, attributes.mode)?;
        }
        let (accessed, modified) = (attributes.accessed, attributes.modified);
        self.disk.set_times(&object, Times { accessed, modified })?;
        if has_names {
            self.disk.link((place, own), (to, name))?;
            let inode = self.disk.stat(&object)?.identity.inode;
            let known = (indexed, attributes.links);
            self.indexed.borrow_mut().insert(inode, known);
        }
        Ok(())
    }

    fn copy_contents(&self, entry: &Entry, file: &Handle) -> Result<()> {
        let mut bytes = vec![0; entry.attributes.length as usize];
        self.lower.read(entry.node, 0, &mut bytes, CALLER)?;
        self.disk.write_at(file, &bytes, 0)
    }

    /// Adds the contents to a file of which only the attributes were copied.
    fn complete(&self, found: &Found) -> Result<()> {
        let (directory, name) = found.upper.as_ref().ok_or(Errno::NOENT)?;
        let object = self.disk.open(directory, name, Access::Path)?;
        if self.overlay_attribute(&object, METACOPY)?.is_none() {
            return Ok(());
        }
        let times = self.disk.stat(&object)?.attributes.times;
        let lower = found.lower.as_deref().ok_or(Errno::NOENT)?;
        let entry = self.lower_entry(lower)?.ok_or(Errno::NOENT)?;
        let file = self.disk.open(directory, name, Access::ReadWrite)?;
        self.copy_contents(&entry, &file)?;
        self.disk.remove_xattr(&object, METACOPY)?;
        self.disk.set_times(&object, times)
    }

    /// Whether the lower layer would show something at a path.
    fn shows_through(&self, path: &str) -> Result<bool> {
        let (parent, name) = split(path);
        match self.directory(parent)?.1 {
            Some(lower) => Ok(self.lower_entry(&join(&lower, name))?.is_some()),
            None => Ok(false),
        }
    }

    /// Frees the name in the upper layer, and returns its place.
    fn vacate(&self, path: &str) -> Result<(Handle, Name)> {
        match self.find(path) {
            Ok(found) => self.lose_name(path, &found)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let (directory, _) = self.directory(split(path).0)?;
        let name = name_of(split(path).1)?;
        if self.disk.stat_at(&directory, &name).is_ok() {
            self.clear(&directory, &name)?;
        }
        Ok((directory, name))
    }

    /// A file with several names is copied up even when it only loses one, since the index counts
    /// names.
    fn lose_name(&self, path: &str, found: &Found) -> Result<()> {
        if found.upper.is_none() {
            let lower = found.lower.as_deref().ok_or(Errno::NOENT)?;
            let entry = self.lower_entry(lower)?.ok_or(Errno::NOENT)?;
            if entry.attributes.kind == Kind::Directory || entry.attributes.links < 2 {
                return Ok(());
            }
        }
        let Some((directory, name)) = self.copy_up(path, Copy::Attributes)?.upper else {
            return Ok(());
        };
        let inode = self.disk.stat_at(&directory, &name)?.identity.inode;
        let mut indexed = self.indexed.borrow_mut();
        let Some((own, names)) = indexed.get_mut(&inode) else {
            return Ok(());
        };
        *names -= 1;
        if *names == 0 {
            let index = self.disk.directory_at(&self.index)?;
            self.disk.unlink(&index, own)?;
            indexed.remove(&inode);
        }
        Ok(())
    }

    /// Removes a name from the upper layer, and hides it in the lower one.
    fn remove(&self, path: &str) -> Result<()> {
        let (directory, name) = self.vacate(path)?;
        if self.shows_through(path)? {
            let whiteout = NewNode::CharacterDevice(0);
            self.disk.make(&directory, &name, &whiteout, 0)?;
        }
        Ok(())
    }

    /// Removes a whiteout, a file, or a directory of whiteouts only.
    fn clear(&self, directory: &Handle, name: &Name) -> Result<()> {
        if self.disk.stat_at(directory, name)?.kind != Kind::Directory {
            return self.disk.unlink(directory, name);
        }
        let inside = self.disk.open(directory, name, Access::Directory)?;
        for entry in self.disk.list(&inside)? {
            self.disk.unlink(&inside, &entry.name)?;
        }
        self.disk.remove_directory(directory, name)
    }

    /// Lets a moved object find its lower object. A directory without one hides what the lower
    /// layer has at its new place.
    fn tie(&self, found: &Found, new_path: &str) -> Result<()> {
        let (directory, name) = found.upper.as_ref().ok_or(Errno::NOENT)?;
        let object = self.disk.open(directory, name, Access::Path)?;
        let is_directory = self.disk.stat(&object)?.kind == Kind::Directory;
        let is_metacopy = self.overlay_attribute(&object, METACOPY)?.is_some();
        match &found.lower {
            Some(lower) if is_directory || is_metacopy => {
                self.disk
                    .set_xattr(&object, REDIRECT, format!("/{lower}").as_bytes())?;
            }
            None if is_directory && self.shows_through(new_path)? => {
                self.disk.set_xattr(&object, OPAQUE, b"y")?;
            }
            _ => {}
        }
        let (to, _) = self.directory(split(new_path).0)?;
        if self.overlay_attribute(&object, ORIGIN)?.is_some() {
            self.disk.set_xattr(&to, IMPURE, b"y")?;
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let moved = self.copy_up(from, Copy::Attributes)?;
        if self.is_same(&moved, to)? {
            return Ok(());
        }
        let shows_through = self.shows_through(from)?;
        self.tie(&moved, to)?;
        let (directory, name) = moved.upper.ok_or(Errno::NOENT)?;
        let (new_directory, new_name) = self.vacate(to)?;
        let mode = RenameMode::Replace;
        self.disk
            .rename((&directory, &name), (&new_directory, &new_name), mode)?;
        if shows_through {
            let whiteout = NewNode::CharacterDevice(0);
            self.disk.make(&directory, &name, &whiteout, 0)?;
        }
        Ok(())
    }

    /// Whether another path leads to the same copied-up object.
    fn is_same(&self, found: &Found, path: &str) -> Result<bool> {
        if matches!(self.find(path), Err(Errno::NOENT)) {
            return Ok(false);
        }
        let other = self.copy_up(path, Copy::Attributes)?;
        let inode = |found: &Found| {
            let (directory, name) = found.upper.as_ref().ok_or(Errno::NOENT)?;
            Ok::<u64, Errno>(self.disk.stat_at(directory, name)?.identity.inode)
        };
        Ok(inode(found)? == inode(&other)?)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let found = self.copy_up(from, Copy::Attributes)?;
        self.tie(&found, to)?;
        let (directory, name) = found.upper.ok_or(Errno::NOENT)?;
        let (to_directory, to_name) = self.vacate(to)?;
        self.disk
            .link((&directory, &name), (&to_directory, &to_name))?;
        let inode = self.disk.stat_at(&directory, &name)?.identity.inode;
        if let Some((_, names)) = self.indexed.borrow_mut().get_mut(&inode) {
            *names += 1;
        }
        Ok(())
    }

    fn exchange(&self, one: &str, other: &str) -> Result<()> {
        let first = self.copy_up(one, Copy::Attributes)?;
        let second = self.copy_up(other, Copy::Attributes)?;
        self.tie(&first, other)?;
        self.tie(&second, one)?;
        let (directory, name) = first.upper.ok_or(Errno::NOENT)?;
        let (other_directory, other_name) = second.upper.ok_or(Errno::NOENT)?;
        let mode = RenameMode::Exchange;
        self.disk
            .rename((&directory, &name), (&other_directory, &other_name), mode)
    }

    fn make_new(&self, path: &str, node: &NewNode) -> Result<()> {
        let (directory, name) = self.vacate(path)?;
        self.disk.make(&directory, &name, node, 0o755)?;
        if *node == NewNode::Directory && self.shows_through(path)? {
            let made = self.disk.open(&directory, &name, Access::Directory)?;
            self.disk.set_xattr(&made, OPAQUE, b"y")?;
        }
        Ok(())
    }
}

impl Target for Overlay<'_> {
    fn act(&self, operation: &Operation, salt: u64) -> Result<()> {
        let attributes = |path: &str| self.open_upper(path, Copy::Attributes, Access::Path);
        let contents = |path: &str| self.open_upper(path, Copy::Contents, Access::ReadWrite);
        match operation {
            Operation::File(path, length) => {
                let (directory, name) = self.vacate(path)?;
                let file = self.disk.create(&directory, &name, 0o644)?;
                self.disk.write_at(&file, &pattern(salt, 0, *length), 0)
            }
            Operation::Write(path, offset, length) => {
                let data = pattern(salt, *offset, *length);
                self.disk.write_at(&contents(path)?, &data, *offset)
            }
            Operation::Truncate(path, length) => self.disk.set_length(&contents(path)?, *length),
            Operation::Make(path, what) => self.make_new(path, &what.new_node()),
            Operation::Mode(path, mode) => self.disk.set_mode(&attributes(path)?, *mode),
            Operation::Owner(path, user, group) => {
                let (user, group) = (*user, *group);
                self.disk
                    .set_owner(&attributes(path)?, Owner { user, group })
            }
            Operation::Modified(path, seconds) => {
                let object = attributes(path)?;
                let accessed = self.disk.stat(&object)?.attributes.times.accessed;
                let modified = at(*seconds);
                self.disk.set_times(&object, Times { accessed, modified })
            }
            Operation::Xattr(path, Some(value)) => {
                self.disk
                    .set_xattr(&attributes(path)?, XATTR, value.as_bytes())
            }
            Operation::Xattr(path, None) => self.disk.remove_xattr(&attributes(path)?, XATTR),
            Operation::Capability(path) => {
                self.disk
                    .set_xattr(&attributes(path)?, CAPABILITY, CAPABILITY_VALUE)
            }
            Operation::Rename(from, to) => self.rename(from, to),
            Operation::Exchange(one, other) => self.exchange(one, other),
            Operation::Link(from, to) => self.link(from, to),
            Operation::Unlink(path) | Operation::RemoveDirectory(path) => self.remove(path),
        }
    }
}

fn join(directory: &str, name: &str) -> String {
    match directory {
        "" => name.to_owned(),
        _ => format!("{directory}/{name}"),
    }
}

/// Builds struct ovl_fb, as `OverlayAttributes` of the engine reads it.
fn origin(entry: &Entry) -> Vec<u8> {
    let NodeId(node) = entry.node;
    let mut bytes = vec![0, 0xfb, 33, 0, 0x81];
    bytes.extend([0; 16]);
    for word in [(node >> 32) as u32, node as u32, entry.generation] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}
