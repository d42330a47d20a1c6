//! Passes each request to the transaction it belongs to.

use atomdir_disk::sync;

use atomdir_disk::{Disk, Errno, FileSystemId, FileSystemStatus, Kind, Name, RenameMode};
use atomdir_engine::{self as engine, Isolation, NodeId, Transaction, TransactionId};

use super::slots::{Borrowed, Within};
use super::{Views, root_attributes, wrapper_attributes, wrapper_inode};
use atomdir_fuse::{
    Entry, Filesystem, ListEntry, NewNode, NodeAttributes, Notifier, ROOT_NODE, Request, Result,
    Seek, SetAttributes, Validity,
};

/// What a node number stands for.
enum ServedNode<D: Disk> {
    Root,
    Wrapper(Borrowed<D>),
    View(Borrowed<D>, NodeId),
}

impl<D: Disk> Views<D> {
    fn served_node(&self, node: u64) -> Result<ServedNode<D>> {
        if node == ROOT_NODE {
            return Ok(ServedNode::Root);
        }
        Ok(match self.slots.by_node(node).ok_or(Errno::STALE)? {
            (borrowed, Within::Wrapper) => ServedNode::Wrapper(borrowed),
            (borrowed, Within::Node(node)) => ServedNode::View(borrowed, node),
        })
    }

    /// A node within a view. All other nodes cannot be changed.
    fn view(&self, node: u64) -> Result<(Borrowed<D>, NodeId)> {
        match self.served_node(node)? {
            ServedNode::View(borrowed, node) => Ok((borrowed, node)),
            ServedNode::Root | ServedNode::Wrapper(_) => Err(Errno::PERM),
        }
    }

    fn lookup_transaction(&self, name: &[u8]) -> Result<Option<Entry>> {
        // The kernel must not cache that an id is missing: its transaction may begin later.
        let id = parse_id(name).ok_or(Errno::NOENT)?;
        let borrowed = self.slots.by_id(id).ok_or(Errno::NOENT)?;
        let attributes = wrapper_attributes(&borrowed.transaction);
        let node = borrowed.give(Within::Wrapper);
        Ok(Some(Entry {
            node,
            generation: 0,
            valid: Validity::Forever,
            attributes,
            attributes_valid: Validity::Forever,
        }))
    }

    fn lookup_view(&self, borrowed: &Borrowed<D>, name: &[u8]) -> Result<Option<Entry>> {
        if name != self.name {
            return Ok(None);
        }
        let attributes = borrowed.transaction.attributes(NodeId::ROOT)?;
        Ok(Some(entry(
            borrowed,
            engine::Entry {
                node: NodeId::ROOT,
                generation: 0,
                attributes,
            },
        )))
    }

    fn list_transactions(&self) -> Result<Vec<ListEntry>> {
        let list = self.slots.ids().into_iter().map(|id| {
            let name = Name::new(id.to_string().as_bytes()).map_err(|_| Errno::IO)?;
            Ok(ListEntry {
                name,
                inode: wrapper_inode(id),
                kind: Kind::Directory,
            })
        });
        list.collect()
    }

    fn list_view(&self, borrowed: &Borrowed<D>) -> Result<Vec<ListEntry>> {
        let inode = borrowed.transaction.attributes(NodeId::ROOT)?.inode;
        let name = Name::new(&self.name).map_err(|_| Errno::IO)?;
        Ok(vec![ListEntry {
            name,
            inode,
            kind: Kind::Directory,
        }])
    }
}

/// Parses a transaction's id exactly as its directory is named; no other spelling is
/// accepted.
fn parse_id(name: &[u8]) -> Option<TransactionId> {
    let id: u64 = std::str::from_utf8(name).ok()?.parse().ok()?;
    (id.to_string().as_bytes() == name).then_some(TransactionId(id))
}

fn caller_of(request: &Request) -> engine::Caller {
    engine::Caller {
        user: request.user,
        group: request.group,
    }
}

/// An entry for a node whose lookup count the engine has raised.
fn entry<D: Disk>(borrowed: &Borrowed<D>, from: engine::Entry) -> Entry {
    Entry {
        node: borrowed.give(Within::Node(from.node)),
        generation: u64::from(from.generation),
        valid: Validity::Forever,
        attributes: from.attributes,
        attributes_valid: attributes_valid(&borrowed.transaction, from.node),
    }
}

/// How long the kernel may cache attributes that a reply carries although no program has read
/// them. If the read set must record their first read, that read must reach the service.
fn attributes_valid<D: Disk>(transaction: &Transaction<D>, node: NodeId) -> Validity {
    match transaction.isolation() {
        Isolation::Serializable if !transaction.attributes_noted(node) => Validity::No,
        _ => Validity::Forever,
    }
}

impl<D: Disk> Filesystem for Views<D> {
    fn mounted(&self, notifier: Notifier) {
        self.slots.forget_all();
        *sync::lock(&self.notifier) = Some(notifier);
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Option<Entry>> {
        match self.served_node(parent)? {
            ServedNode::Root => self.lookup_transaction(name),
            ServedNode::Wrapper(borrowed) => self.lookup_view(&borrowed, name),
            ServedNode::View(borrowed, parent) => match borrowed.transaction.lookup(parent, name) {
                Ok(found) => Ok(Some(entry(&borrowed, found))),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(errno),
            },
        }
    }

    fn forget(&self, node: u64, count: u64) {
        match self.slots.forget(node, count) {
            // The engine does not count the root's lookups.
            Some((_, Within::Wrapper | Within::Node(NodeId::ROOT))) | None => {}
            Some((transaction, Within::Node(node))) => transaction.forget(node, count),
        }
    }

    fn attributes(&self, _: &Request, node: u64) -> Result<(NodeAttributes, Validity)> {
        let attributes = match self.served_node(node)? {
            ServedNode::Root => root_attributes(),
            ServedNode::Wrapper(borrowed) => wrapper_attributes(&borrowed.transaction),
            ServedNode::View(borrowed, node) => borrowed.transaction.attributes(node)?,
        };
        Ok((attributes, Validity::Forever))
    }

    fn set_attributes(
        &self,
        request: &Request,
        node: u64,
        change: SetAttributes,
    ) -> Result<(NodeAttributes, Validity)> {
        let (borrowed, node) = self.view(node)?;
        let caller = caller_of(request);
        let attributes = borrowed.transaction.set_attributes(node, change, caller)?;
        let valid = attributes_valid(&borrowed.transaction, node);
        Ok((attributes, valid))
    }

    fn read_link(&self, _: &Request, node: u64) -> Result<Vec<u8>> {
        let (borrowed, node) = self.view(node)?;
        borrowed.transaction.read_link(node)
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
        let (borrowed, parent) = self.view(parent)?;
        let caller = caller_of(request);
        let made = borrowed
            .transaction
            .create(parent, name, what, mode, umask, caller)?;
        Ok(entry(&borrowed, made))
    }

    fn create_unnamed(
        &self,
        request: &Request,
        parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let (borrowed, parent) = self.view(parent)?;
        let caller = caller_of(request);
        let made = borrowed
            .transaction
            .create_unnamed(parent, mode, umask, caller)?;
        Ok(entry(&borrowed, made))
    }

    fn link(&self, _: &Request, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let ((from, node), (to, parent)) = (self.view(node)?, self.view(parent)?);
        if !from.is_same_slot(&to) {
            return Err(Errno::XDEV);
        }
        Ok(entry(&to, to.transaction.link(node, parent, name)?))
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let (borrowed, parent) = self.view(parent)?;
        borrowed.transaction.unlink(parent, name)
    }

    fn remove_directory(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let (borrowed, parent) = self.view(parent)?;
        borrowed.transaction.remove_directory(parent, name)
    }

    fn rename(
        &self,
        _: &Request,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let ((borrowed, parent), (other, new_parent)) = (self.view(from.0)?, self.view(to.0)?);
        if !borrowed.is_same_slot(&other) {
            return Err(Errno::XDEV);
        }
        borrowed
            .transaction
            .rename(parent, from.1, new_parent, to.1, mode)
    }

    fn read(&self, request: &Request, node: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let (borrowed, node) = self.view(node)?;
        borrowed
            .transaction
            .read(node, offset, buffer, caller_of(request))
    }

    fn write(
        &self,
        _: &Request,
        node: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        let (borrowed, inner) = self.view(node)?;
        if borrowed
            .transaction
            .write(inner, offset, data, kill_set_id)?
        {
            // After a write the kernel keeps the mode it has cached.
            self.notify(|notifier| notifier.invalidate_inode(node, -1, 0));
        }
        Ok(())
    }

    fn allocate(&self, _: &Request, node: u64, mode: u32, offset: u64, length: u64) -> Result<()> {
        let (borrowed, node) = self.view(node)?;
        borrowed.transaction.allocate(node, mode, offset, length)
    }

    fn seek(&self, _: &Request, node: u64, offset: u64, what: Seek) -> Result<u64> {
        let (borrowed, node) = self.view(node)?;
        borrowed.transaction.seek(node, offset, what == Seek::Hole)
    }

    fn list(&self, _: &Request, node: u64) -> Result<Vec<ListEntry>> {
        match self.served_node(node)? {
            ServedNode::Root => self.list_transactions(),
            ServedNode::Wrapper(borrowed) => self.list_view(&borrowed),
            ServedNode::View(borrowed, node) => {
                let list = borrowed.transaction.list(node)?;
                Ok(list)
            }
        }
    }

    fn xattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        match self.served_node(node)? {
            ServedNode::Root | ServedNode::Wrapper(_) => Err(Errno::NODATA),
            ServedNode::View(borrowed, node) => borrowed.transaction.xattr(node, name),
        }
    }

    fn xattr_names(&self, _: &Request, node: u64) -> Result<Vec<Vec<u8>>> {
        match self.served_node(node)? {
            ServedNode::Root | ServedNode::Wrapper(_) => Ok(Vec::new()),
            ServedNode::View(borrowed, node) => borrowed.transaction.xattr_names(node),
        }
    }

    fn set_xattr(
        &self,
        _: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Result<()> {
        let (borrowed, node) = self.view(node)?;
        borrowed
            .transaction
            .set_xattr(node, name, value, flags, kill_set_group_id)
    }

    fn remove_xattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<()> {
        let (borrowed, node) = self.view(node)?;
        borrowed.transaction.remove_xattr(node, name)
    }

    /// Flushes the whole view if its transaction survives the service, and succeeds without
    /// doing anything if not. After an `ENOSYS` the kernel would send no more fsync requests.
    fn flush(&self, _: &Request, node: u64) -> Result<()> {
        match self.served_node(node)? {
            ServedNode::View(borrowed, _) => borrowed.transaction.flush(),
            ServedNode::Root | ServedNode::Wrapper(_) => Ok(()),
        }
    }

    fn status(&self, _: &Request, node: u64) -> Result<FileSystemStatus> {
        match self.served_node(node)? {
            ServedNode::Wrapper(borrowed) | ServedNode::View(borrowed, _) => {
                borrowed.transaction.status()
            }
            ServedNode::Root => Ok(FileSystemStatus {
                block_size: 4096,
                blocks: 0,
                blocks_free: 0,
                blocks_available: 0,
                files: 0,
                files_free: 0,
                name_length_max: Name::LENGTH_MAX as u32,
                read_only: false,
                layered: false,
                id: FileSystemId::default(),
            }),
        }
    }
}
