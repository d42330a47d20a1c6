//! A small file system in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atomdir_disk::{
    Errno, FileSystemId, FileSystemStatus, Kind, Name, Owner, RenameMode, Timestamp,
};
use atomdir_fuse::{
    Entry, Filesystem, ListEntry, NewNode, NodeAttributes, Notifier, ROOT_NODE, Request, Result,
    Seek, SetAttributes, SetTime, Validity,
};

use super::put_off::PutOff;

pub struct Memory {
    state: Mutex<State>,
    /// How long each write takes.
    pub write_milliseconds: AtomicU64,
    pub put_off: PutOff,
    /// The first request for the root's attributes takes and uses it.
    notifier: Mutex<Option<Notifier>>,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

struct Node {
    attributes: NodeAttributes,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanoseconds: since.subsec_nanos(),
    }
}

impl State {
    fn node(&mut self, node: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&node).ok_or(Errno::STALE)
    }

    fn child(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        self.node(parent)?
            .entries
            .get(name)
            .copied()
            .ok_or(Errno::NOENT)
    }

    fn make(&mut self, kind: Kind, mode: u32, owner: Owner) -> u64 {
        let number = self.next;
        self.next += 1;
        let attributes = NodeAttributes {
            inode: number,
            kind,
            mode,
            links: if kind == Kind::Directory { 2 } else { 0 },
            owner,
            device_number: 0,
            length: 0,
            blocks: 0,
            accessed: now(),
            modified: now(),
            changed: now(),
        };
        let node = Node {
            attributes,
            data: Vec::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            lookups: 0,
        };
        self.nodes.insert(number, node);
        number
    }

    fn entry(&mut self, number: u64) -> Result<Entry> {
        let node = self.node(number)?;
        node.lookups += 1;
        let attributes = node.attributes;
        Ok(Entry {
            node: number,
            generation: 0,
            valid: Validity::Forever,
            attributes,
            attributes_valid: Validity::Forever,
        })
    }

    fn insert(&mut self, parent: u64, name: &[u8], number: u64) -> Result<()> {
        self.node(parent)?.entries.insert(name.to_vec(), number);
        let node = self.node(number)?;
        if node.attributes.kind != Kind::Directory {
            node.attributes.links += 1;
        }
        Ok(())
    }

    fn remove(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        let number = self.child(parent, name)?;
        self.node(parent)?.entries.remove(name);
        let node = self.node(number)?;
        node.attributes.links = match node.attributes.kind {
            Kind::Directory => 0,
            _ => node.attributes.links - 1,
        };
        self.collect(number);
        Ok(())
    }

    fn collect(&mut self, number: u64) {
        let gone = |node: &Node| node.lookups == 0 && node.attributes.links == 0;
        if self.nodes.get(&number).is_some_and(gone) {
            self.nodes.remove(&number);
        }
    }
}

impl Memory {
    pub fn new() -> Memory {
        let mut state = State {
            nodes: HashMap::new(),
            next: ROOT_NODE,
        };
        let owner = Owner {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        state.make(Kind::Directory, 0o755, owner);
        Memory {
            state: Mutex::new(state),
            write_milliseconds: AtomicU64::new(0),
            put_off: PutOff::default(),
            notifier: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file's contents in this file system, which the kernel's cache may differ from.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let mut state = self.state();
        let number = state.child(ROOT_NODE, name.as_bytes()).unwrap();
        state.node(number).unwrap().data.clone()
    }

    /// Changes a file without the kernel's knowledge.
    pub fn replace(&self, name: &str, data: &[u8]) -> u64 {
        let mut state = self.state();
        let number = state.child(ROOT_NODE, name.as_bytes()).unwrap();
        let node = state.node(number).unwrap();
        node.data = data.to_vec();
        node.attributes.length = data.len() as u64;
        number
    }

    pub fn forget_name(&self, name: &str) {
        self.state().remove(ROOT_NODE, name.as_bytes()).unwrap();
    }

    pub fn nodes_count(&self) -> usize {
        self.state().nodes.len()
    }
}

impl Filesystem for Memory {
    fn mounted(&self, notifier: Notifier) {
        self.put_off.mounted(notifier.clone());
        *self.notifier.lock().unwrap() = Some(notifier);
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Option<Entry>> {
        assert!(name != b"panic", "the test asked for this panic");
        let mut state = self.state();
        match state.child(parent, name) {
            Ok(number) => state.entry(number).map(Some),
            Err(Errno::NOENT) if name == b"surely not there" => Err(Errno::NOENT),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        let mut state = self.state();
        if let Ok(found) = state.node(node) {
            found.lookups = found
                .lookups
                .checked_sub(count)
                .expect("forgotten too often");
        }
        if node != ROOT_NODE {
            state.collect(node);
        }
    }

    fn attributes(&self, _: &Request, node: u64) -> Result<(NodeAttributes, Validity)> {
        if node == ROOT_NODE
            && let Some(notifier) = self.notifier.lock().unwrap().take()
        {
            // The kernel then discards the answer to this request. It has cached nothing of the
            // root yet, so the invalidation takes no lock.
            notifier.invalidate_inode(ROOT_NODE, 0, 0)?;
        }
        Ok((self.state().node(node)?.attributes, Validity::Forever))
    }

    fn set_attributes(
        &self,
        _: &Request,
        node: u64,
        change: SetAttributes,
    ) -> Result<(NodeAttributes, Validity)> {
        let mut state = self.state();
        let node = state.node(node)?;
        let attributes = &mut node.attributes;
        let time = |set| match set {
            SetTime::Now => now(),
            SetTime::At(at) => at,
        };
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.owner.user = change.user.unwrap_or(attributes.owner.user);
        attributes.owner.group = change.group.unwrap_or(attributes.owner.group);
        attributes.accessed = change.accessed.map_or(attributes.accessed, time);
        attributes.modified = change.modified.map_or(attributes.modified, time);
        attributes.changed = now();
        if let Some(length) = change.length {
            attributes.length = length;
            node.data.resize(length as usize, 0);
        }
        if change.kill_set_id {
            node.attributes.mode &= !0o6000;
        }
        Ok((node.attributes, Validity::Forever))
    }

    fn read_link(&self, _: &Request, node: u64) -> Result<Vec<u8>> {
        Ok(self.state().node(node)?.data.clone())
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        what: NewNode,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let mut state = self.state();
        if state.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let (kind, device, target) = match what {
            NewNode::File => (Kind::File, 0, Vec::new()),
            NewNode::Directory => (Kind::Directory, 0, Vec::new()),
            NewNode::Symlink(target) => (Kind::Symlink, 0, target),
            NewNode::Fifo => (Kind::Fifo, 0, Vec::new()),
            NewNode::Socket => (Kind::Socket, 0, Vec::new()),
            NewNode::CharacterDevice(device) => (Kind::CharacterDevice, device, Vec::new()),
            NewNode::BlockDevice(device) => (Kind::BlockDevice, device, Vec::new()),
        };
        let owner = Owner {
            user: request.user,
            group: request.group,
        };
        let number = state.make(kind, mode & !umask, owner);
        let node = state.node(number)?;
        node.attributes.device_number = device;
        node.attributes.length = target.len() as u64;
        node.data = target;
        state.insert(parent, name, number)?;
        state.entry(number)
    }

    fn create_unnamed(
        &self,
        request: &Request,
        _parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let mut state = self.state();
        let owner = Owner {
            user: request.user,
            group: request.group,
        };
        let number = state.make(Kind::File, mode & !umask, owner);
        state.entry(number)
    }

    fn link(&self, _: &Request, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let mut state = self.state();
        if state.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        state.insert(parent, name, node)?;
        state.entry(node)
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        self.state().remove(parent, name)
    }

    fn remove_directory(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let mut state = self.state();
        let number = state.child(parent, name)?;
        if !state.node(number)?.entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        state.remove(parent, name)
    }

    fn rename(
        &self,
        _: &Request,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let mut state = self.state();
        let moved = state.child(from.0, from.1)?;
        let target = state.child(to.0, to.1).ok();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            (RenameMode::Exchange, Some(other)) => {
                state.node(from.0)?.entries.insert(from.1.to_vec(), other);
            }
            (_, Some(_)) => {
                state.remove(to.0, to.1)?;
                state.node(from.0)?.entries.remove(from.1);
            }
            (_, None) => {
                state.node(from.0)?.entries.remove(from.1);
            }
        }
        state.node(to.0)?.entries.insert(to.1.to_vec(), moved);
        Ok(())
    }

    fn read(&self, _: &Request, node: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut state = self.state();
        let data = &state.node(node)?.data;
        let rest = data.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write(
        &self,
        _: &Request,
        node: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        let delay = self.write_milliseconds.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(delay));
        if self.put_off.applies_to(node, data) {
            return Err(Errno::RESTART);
        }
        let mut state = self.state();
        let node = state.node(node)?;
        let end = offset as usize + data.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[offset as usize..end].copy_from_slice(data);
        node.attributes.length = node.data.len() as u64;
        node.attributes.modified = now();
        if kill_set_id {
            node.attributes.mode &= !0o6000;
        }
        Ok(())
    }

    fn allocate(&self, _: &Request, node: u64, _: u32, offset: u64, length: u64) -> Result<()> {
        let mut state = self.state();
        let node = state.node(node)?;
        let end = (offset + length) as usize;
        if node.data.len() < end {
            node.data.resize(end, 0);
            node.attributes.length = end as u64;
        }
        Ok(())
    }

    fn seek(&self, _: &Request, node: u64, offset: u64, what: Seek) -> Result<u64> {
        let length = self.state().node(node)?.data.len() as u64;
        match what {
            _ if offset >= length => Err(Errno::NXIO),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(length),
        }
    }

    fn list(&self, _: &Request, node: u64) -> Result<Vec<ListEntry>> {
        let mut state = self.state();
        let entries = state.node(node)?.entries.clone();
        let list = entries.into_iter().map(|(name, number)| {
            let attributes = state.node(number)?.attributes;
            let name = Name::new(&name).unwrap();
            Ok(ListEntry {
                name,
                inode: attributes.inode,
                kind: attributes.kind,
            })
        });
        list.collect()
    }

    fn xattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.state()
            .node(node)?
            .xattrs
            .get(name)
            .cloned()
            .ok_or(Errno::NODATA)
    }

    fn xattr_names(&self, _: &Request, node: u64) -> Result<Vec<Vec<u8>>> {
        Ok(self.state().node(node)?.xattrs.keys().cloned().collect())
    }

    fn set_xattr(
        &self,
        _: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        _: u32,
        _: bool,
    ) -> Result<()> {
        self.state()
            .node(node)?
            .xattrs
            .insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove_xattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<()> {
        self.state()
            .node(node)?
            .xattrs
            .remove(name)
            .map(|_| ())
            .ok_or(Errno::NODATA)
    }

    fn status(&self, _: &Request, _: u64) -> Result<FileSystemStatus> {
        Ok(FileSystemStatus {
            block_size: 4096,
            blocks: 1000,
            blocks_free: 500,
            blocks_available: 400,
            files: 100,
            files_free: 50,
            name_length_max: 255,
            read_only: false,
            layered: false,
            id: FileSystemId::default(),
        })
    }
}
