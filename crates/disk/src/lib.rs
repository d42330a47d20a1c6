//! The only way the engine reaches a file system.
//!
//! [`Disk`] is the trait; [`LinuxDisk`] is the real one. Every operation names an object
//! by a handle, or by a directory handle and one [`Name`].
//!
//! Invariants, which every implementation keeps
//! - There are no paths and no `..`, and no symbolic link is ever followed. So no operation
//!   can be led out of the store.
//! - Every later call sees the effect of a call that has returned.
//! - A crash loses only what the following list allows.
//!
//! # What is durable when
//!
//! 1. **Contents and length** of a regular file: whatever was written before a
//!    successful [`Disk::sync`] or [`Disk::sync_data`] of the file is kept. Anything
//!    written since may be kept, lost or torn at 512-byte sectors, in any order.
//! 2. **Attributes** (mode, owner, times, extended attributes): [`Disk::sync`] of the
//!    object keeps them. `sync_data` promises only those that are needed to read the
//!    contents back.
//! 3. **Entries** (create, mkdir, symlink, mknod, link, unlink, rename):
//!    [`Disk::sync_directory`] of their directory keeps them, together with the
//!    existence and identity of the objects they name. One call is atomic: a rename,
//!    also between two directories or an exchange, is kept or lost as a whole; syncing
//!    either directory keeps it. The call also does 2 for the directory itself.
//! 4. Entry changes that are not yet synced survive or vanish one by one, in any order,
//!    with two exceptions. A change survives only together with the earlier ones that it
//!    depends on: those that touched the same entry, or that gave the object its name.
//!    And moves of directories survive in the order in which they were made.
//! 5. [`Disk::sync_file_system`] does 1 to 3 for everything.
//! 6. A failed sync may have lost anything that it had to keep. If the next one
//!    succeeds, that proves nothing.
//!
//! Modules
//! - `linux`, `charge`: the real disk; writing at a user's expense, and acting as a user
//! - `contract`: the contract as a test, which the tests of other disks include
//! - `name`, `types`, `node`: names of entries; arguments and results; those of trees that views and
//!   FUSE serve
//! - `mounts`, `reason`: the mount table; error numbers as text

mod charge;
#[cfg(test)]
mod contract;
mod linux;
pub mod mounts;
mod name;
mod node;
mod reason;
mod types;

pub use atomdir_types::{Kind, Timestamp, sync};
pub use charge::Charge;
pub use linux::LinuxDisk;
pub use name::{Name, NameError};
pub use node::{ListEntry, NodeAttributes, SetAttributes, SetTime};
pub use reason::{io_reason, reason};
pub use rustix::io::Errno;
pub use types::{
    Access, Attachment, Attributes, DirectoryEntry, Extent, FileSystemId, FileSystemStatus,
    FileUsers, Identity, NewNode, Owner, PartLock, Placement, RenameMode, Stat, Times,
};

pub type Result<T> = std::result::Result<T, Errno>;

/// A file system as the engine uses it. The crate's head says what is durable when.
pub trait Disk: Send + Sync + 'static {
    /// An open object. A directory's handle follows it when it is renamed.
    type Handle: Send + Sync + 'static;

    /// Opens the object itself. Opens a symbolic link only with [`Access::Path`], and
    /// fails with `ELOOP` otherwise. Fails with `EXDEV` if another file system is
    /// mounted there. Never waits for another process: if one holds a lease on the file,
    /// fails with `EAGAIN`, and the kernel asks for the lease back.
    fn open(&self, directory: &Self::Handle, name: &Name, access: Access) -> Result<Self::Handle>;
    /// Like [`Disk::open`], but waits until a lease is given back. For callers that must
    /// have the file, since a commit that changes it is in the log.
    fn open_waiting(
        &self,
        directory: &Self::Handle,
        name: &Name,
        access: Access,
    ) -> Result<Self::Handle> {
        self.open(directory, name, access)
    }
    /// Until the result is dropped, what this thread creates belongs to the user. What
    /// it writes is limited by the quota of the file's owner and by the space that the
    /// file system reserves for others, as if the user wrote it. What the thread may
    /// access stays the same. Fails with `EPERM` without root's rights. A disk without
    /// users does nothing.
    fn charge(&self, _user: u32) -> Result<Charge> {
        Ok(Charge::none())
    }
    /// Until the result is dropped, the kernel lets this thread do with files only what the user
    /// may, who has these groups, the primary one last. Quotas and reservations do not limit it.
    /// Fails with `EPERM` without root's rights. A disk without users does nothing.
    fn act_as(&self, _user: u32, _groups: &[u32]) -> Result<Charge> {
        Ok(Charge::none())
    }
    /// Creates a regular file for reading and writing; fails with `EEXIST` if it exists.
    /// Here and in `make` the object gets exactly this mode, as far as chmod(2) lets the
    /// caller: neither the umask nor the directory's set-group-id bit changes it.
    fn create(&self, directory: &Self::Handle, name: &Name, mode: u32) -> Result<Self::Handle>;
    /// Creates any object; a file is empty. A symbolic link has no mode.
    fn make(&self, directory: &Self::Handle, name: &Name, node: &NewNode, mode: u32) -> Result<()>;
    /// Gives the object at `from` another name. Never follows a symbolic link.
    fn link(&self, from: (&Self::Handle, &Name), to: (&Self::Handle, &Name)) -> Result<()>;
    fn rename(
        &self,
        from: (&Self::Handle, &Name),
        to: (&Self::Handle, &Name),
        mode: RenameMode,
    ) -> Result<()>;
    /// Unmounts the file systems that ordinary users have mounted on the name, unless this
    /// process lacks root's rights. Returns whether any was unmounted.
    fn uncover(&self, _directory: &Self::Handle, _name: &Name) -> Result<bool> {
        Ok(false)
    }
    fn unlink(&self, directory: &Self::Handle, name: &Name) -> Result<()>;
    fn remove_directory(&self, directory: &Self::Handle, name: &Name) -> Result<()>;

    fn stat(&self, object: &Self::Handle) -> Result<Stat>;
    /// Does not ask a file system that is mounted there: for a mount point, only
    /// `mount_point` is certain.
    fn stat_at(&self, directory: &Self::Handle, name: &Name) -> Result<Stat>;
    /// Lists every entry except `.` and `..`, in no particular order.
    fn list(&self, directory: &Self::Handle) -> Result<Vec<DirectoryEntry>>;
    fn read_link(&self, directory: &Self::Handle, name: &Name) -> Result<Vec<u8>>;

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, file: &Self::Handle, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `data` or fails; a failed write may have written a part.
    /// Writing no bytes shows whether the file can be written.
    fn write_at(&self, file: &Self::Handle, data: &[u8], offset: u64) -> Result<()>;
    fn set_length(&self, file: &Self::Handle, length: u64) -> Result<()>;
    /// Reserves blocks for a range without changing the file's length.
    fn allocate(&self, file: &Self::Handle, offset: u64, length: u64) -> Result<()>;
    /// Frees the blocks of a range, which then reads as zeros; the length stays.
    fn punch_hole(&self, file: &Self::Handle, offset: u64, length: u64) -> Result<()>;
    /// Finds the next run of data at or after `offset`; `None` if only a hole follows.
    fn next_data(&self, file: &Self::Handle, offset: u64) -> Result<Option<Extent>>;
    /// Copies a range between files, sharing blocks where the file system can. Returns how much was
    /// copied: less than requested only at the end of `from`.
    fn copy_range(
        &self,
        from: (&Self::Handle, u64),
        to: (&Self::Handle, u64),
        length: u64,
    ) -> Result<u64>;

    /// Fails with `EOPNOTSUPP` on a symbolic link.
    fn set_mode(&self, object: &Self::Handle, mode: u32) -> Result<()>;
    /// Clears the set-user-id and set-group-id bits as chown(2) does.
    fn set_owner(&self, object: &Self::Handle, owner: Owner) -> Result<()>;
    /// Only the object's owner may do this.
    fn set_times(&self, object: &Self::Handle, times: Times) -> Result<()>;
    /// Sets both times to the present. Whoever may write to the object may do this.
    fn touch(&self, object: &Self::Handle) -> Result<()>;
    /// Fails with `ENODATA` if there is no such attribute.
    fn xattr(&self, object: &Self::Handle, name: &[u8]) -> Result<Vec<u8>>;
    fn xattr_names(&self, object: &Self::Handle) -> Result<Vec<Vec<u8>>>;
    /// Those of an object that need not be open. Never follows a symbolic link.
    fn xattr_names_at(&self, directory: &Self::Handle, name: &Name) -> Result<Vec<Vec<u8>>> {
        self.xattr_names(&self.open(directory, name, Access::Path)?)
    }
    /// All extended attributes of an object that need not be open. Never follows a symbolic link.
    fn xattrs_at(&self, directory: &Self::Handle, name: &Name) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.xattrs(&self.open(directory, name, Access::Path)?)
    }
    /// All extended attributes.
    fn xattrs(&self, object: &Self::Handle) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let names = self.xattr_names(object)?;
        types::with_values(names, |name| self.xattr(object, name))
    }
    fn set_xattr(&self, object: &Self::Handle, name: &[u8], value: &[u8]) -> Result<()>;
    fn remove_xattr(&self, object: &Self::Handle, name: &[u8]) -> Result<()>;

    /// Whether an open file has flags that only its inode keeps and that chattr(1) sets, for
    /// instance to leave it out of backups. Does not count those that forbid changes.
    fn has_flags(&self, _file: &Self::Handle) -> Result<bool> {
        Ok(false)
    }

    /// Whether somebody has a file open for writing, or has mapped it for writing. Also true if this
    /// cannot be found out. The file was opened with [`Access::Read`]. Handles of this process count
    /// if they were opened for writing. A disk that no other program uses returns false.
    fn is_open_for_writing(&self, _file: &Self::Handle) -> Result<bool> {
        Ok(false)
    }
    /// Whether somebody has locked a file or a part of it, by any kind of advisory lock. The file was
    /// opened for this question only. A disk that no other program uses returns false.
    fn is_locked(&self, _file: &Self::Handle) -> Result<bool> {
        Ok(false)
    }
    /// The lock of POSIX or OFD that somebody has on a part of a file, not on the whole of it. If there are
    /// several, an exclusive one. A disk that no other program uses has none.
    fn part_lock(&self, _file: &Self::Handle) -> Result<Option<PartLock>> {
        Ok(None)
    }
    /// Writes the pages of a file to the disk, so that the next store by another program through a
    /// shared mapping changes the file's times. Makes nothing durable, and does nothing on a file
    /// system that is only in memory.
    fn write_back(&self, _file: &Self::Handle) -> Result<()> {
        Ok(())
    }

    /// What decides whether the object can be moved, for one that was not opened with
    /// [`Access::Path`]. A disk without projects and encryption has one placement for all.
    fn placement(&self, _object: &Self::Handle) -> Result<Placement> {
        Ok(Placement::default())
    }

    /// This and the other syncs fail with `EBADF` on a handle opened with
    /// [`Access::Path`]. A simulated disk tells a program's syncs apart by the caller's
    /// place in the code.
    #[track_caller]
    fn sync(&self, file: &Self::Handle) -> Result<()>;
    #[track_caller]
    fn sync_data(&self, file: &Self::Handle) -> Result<()>;
    #[track_caller]
    fn sync_directory(&self, directory: &Self::Handle) -> Result<()>;
    #[track_caller]
    fn sync_file_system(&self, object: &Self::Handle) -> Result<()>;

    /// Starts to write files below a directory, if there are at least `_files_min`, and
    /// does not wait. This is only a hint: it makes nothing durable and reports no
    /// error. A later sync by a handle that was open before still reports every error.
    fn start_writing(&self, _directory: &Self::Handle, _files_min: usize) {}

    fn status(&self, object: &Self::Handle) -> Result<FileSystemStatus>;
    /// Makes a directory hand down nothing to what is made in it: no default ACL, no flags, no project.
    /// It gets the security label of `like`. Returns what it still hands down, in words, if that
    /// cannot be taken from it and `like` does not have it as well.
    fn stop_handing_down(
        &self,
        _directory: &Self::Handle,
        _like: &Self::Handle,
    ) -> Result<Option<&'static str>> {
        Ok(None)
    }
    /// Identifies the boot and the disk under the file system; `None` if the boot is not known.
    fn attachment(&self, object: &Self::Handle) -> Result<Option<Attachment>>;
    /// Takes the advisory lock of an open file for as long as the handle lives. Fails
    /// with `EWOULDBLOCK` if another process holds it.
    fn try_lock(&self, file: &Self::Handle) -> Result<()>;
    /// Releases the lock, even if a forked process has inherited the handle.
    fn unlock(&self, file: &Self::Handle) -> Result<()>;
    /// Whether this process may read, write and search (for a directory:
    /// change entries in) the object: bits 4, 2 and 1.
    fn may_access(&self, object: &Self::Handle, bits: u32) -> Result<bool>;
}
