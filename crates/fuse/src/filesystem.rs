//! The trait of a file system. It answers requests; the session does everything else.

use atomdir_disk::{Errno, FileSystemStatus, RenameMode};
pub use atomdir_disk::{ListEntry, NewNode, NodeAttributes, SetAttributes, SetTime};

use crate::notifier::Notifier;
use rustix::fs::OFlags;

pub type Result<T> = std::result::Result<T, Errno>;

/// The process that makes a request. The kernel has already checked its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub unique: u64,
    pub user: u32,
    pub group: u32,
    pub process: u32,
}

/// How long the kernel may keep an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Until the kernel's own requests change it or a [`Notifier`](crate::Notifier)
    /// invalidates it.
    Forever,
    No,
}

/// The object that a name leads to, as lookup and creation return it. Each entry
/// returned raises the node's lookup count by one; [`Filesystem::forget`] lowers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Neither 0 nor `u64::MAX`. No other object gets this number before it is forgotten.
    pub node: u64,
    pub generation: u64,
    /// How long the kernel may cache the name.
    pub valid: Validity,
    pub attributes: NodeAttributes,
    pub attributes_valid: Validity,
}

/// What an open file asks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// Its cache is kept, and the file system does not learn of its end.
    Plainly,
    /// What is cached of it is dropped, and the file system learns when a descriptor of it is closed
    /// ([`Filesystem::closing`]), and when the last one has been ([`Filesystem::closed`]).
    UntilClosed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    Data,
    Hole,
}

/// A file system served by a [`Session`](crate::Session), from several
/// threads at once. Nodes are numbers; the root's is [`ROOT_NODE`](crate::ROOT_NODE).
///
/// Opens carry no state, unless the file system serves them ([`Filesystem::serves_opens`]): a node
/// stays usable while its lookup count is above
/// zero, whether or not a name still leads to it. Names hold no slash and no
/// NUL and have 1 to 255 bytes. Methods without a default are needed by every
/// file system.
///
/// Any method may return `ERESTART` if it cannot answer yet. The request is then tried
/// again after the next [`Notifier::retry`]. `EINPROGRESS` means the same, but a signal to the program
/// ends the wait: it gets `EINTR`, and the file system learns by [`gave_up`](Filesystem::gave_up) that
/// the request will not be tried again.
pub trait Filesystem: Send + Sync + 'static {
    /// A connection begins. Its kernel side knows no node yet.
    fn mounted(&self, _notifier: Notifier) {}

    /// `Ok(None)`: there is no such name, and the kernel may cache that.
    /// `Err(ENOENT)`: there is no such name, and the kernel must ask again.
    fn lookup(&self, request: &Request, parent: u64, name: &[u8]) -> Result<Option<Entry>>;
    /// A request that this answered with `EINPROGRESS` has been interrupted. `unique`: the request's.
    fn gave_up(&self, _unique: u64) {}
    /// Lowers the node's lookup count.
    fn forget(&self, node: u64, count: u64);

    fn attributes(&self, request: &Request, node: u64) -> Result<(NodeAttributes, Validity)>;
    fn set_attributes(
        &self,
        request: &Request,
        node: u64,
        change: SetAttributes,
    ) -> Result<(NodeAttributes, Validity)>;
    /// Whether opening a file and closing it are requests. The answer is always the same.
    fn serves_opens(&self) -> bool {
        false
    }
    /// After `ESTALE` the kernel looks up the path once more, name by name, and opens what it finds
    /// then.
    fn open(&self, _request: &Request, _node: u64, _flags: OFlags) -> Result<Opened> {
        Ok(Opened::Plainly)
    }
    /// Creates a regular file and opens it. `modes`: as of [`create`](Filesystem::create), and the
    /// flags.
    fn create_open(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        (mode, umask, _flags): (u32, u32, OFlags),
    ) -> Result<(Entry, Opened)> {
        let made = self.create(request, parent, name, NewNode::File, mode, umask)?;
        Ok((made, Opened::Plainly))
    }
    /// A process closes a descriptor, and gets this answer. If it ends with the descriptor open, it waits
    /// for the answer before it is gone.
    fn closing(&self, _request: &Request, _node: u64) -> Result<()> {
        Ok(())
    }
    fn closed(&self, _node: u64) {}

    fn read_link(&self, request: &Request, node: u64) -> Result<Vec<u8>>;

    /// `umask` applies unless the parent has a default ACL.
    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        what: NewNode,
        mode: u32,
        umask: u32,
    ) -> Result<Entry>;
    /// Creates a regular file without a name, in the file system of `parent` (O_TMPFILE).
    fn create_unnamed(
        &self,
        request: &Request,
        parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<Entry>;
    fn link(&self, request: &Request, node: u64, parent: u64, name: &[u8]) -> Result<Entry>;
    fn unlink(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()>;
    fn remove_directory(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()>;
    fn rename(
        &self,
        request: &Request,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<()>;

    /// Reads from `offset` on. It fills `buffer` unless the file ends before.
    fn read(&self, request: &Request, node: u64, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Writes all of `data` or fails. `kill_set_id` as in [`SetAttributes`].
    fn write(
        &self,
        request: &Request,
        node: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()>;
    /// Like [`write`](Filesystem::write), by a program that appends. `offset` is the end of the file
    /// as the kernel knows it. A file system whose files grow behind the kernel's back writes at their
    /// end.
    fn append(
        &self,
        request: &Request,
        node: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        self.write(request, node, offset, data, kill_set_id)
    }
    /// Like [`write`](Filesystem::write), of pages that a program has changed in memory. No program
    /// waits for it.
    fn write_back(
        &self,
        request: &Request,
        node: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        self.write(request, node, offset, data, kill_set_id)
    }
    /// `mode`: FALLOC_FL_*.
    fn allocate(
        &self,
        request: &Request,
        node: u64,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()>;
    fn seek(&self, request: &Request, node: u64, offset: u64, what: Seek) -> Result<u64>;

    /// Lists the whole directory without `.` and `..`, in any order.
    fn list(&self, request: &Request, node: u64) -> Result<Vec<ListEntry>>;

    /// Fails with `ENODATA` if there is no attribute of that name.
    fn xattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<Vec<u8>>;
    fn xattr_names(&self, request: &Request, node: u64) -> Result<Vec<Vec<u8>>>;
    /// `flags`: XATTR_CREATE, XATTR_REPLACE. `kill_set_group_id`: the caller
    /// sets an access ACL and is not in the file's group.
    fn set_xattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Result<()>;
    fn remove_xattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()>;

    fn status(&self, request: &Request, node: u64) -> Result<FileSystemStatus>;

    /// The kernel asks for the flags of chattr(1), which are not served. If this is a layer of an
    /// overlay, it does so while overlayfs copies the object, and otherwise only for lsattr(1). An
    /// error keeps overlayfs from copying it.
    fn before_copy_up(&self, _request: &Request, _node: u64) -> Result<()> {
        Ok(())
    }

    /// Answers fsync(2), after the kernel has sent the written data.
    fn flush(&self, _request: &Request, _node: u64) -> Result<()> {
        Ok(())
    }
}
