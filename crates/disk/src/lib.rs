//! The only way the engine reaches a file system.
//!
//! [`Disk`] is the trait; [`LinuxDisk`] is the real one. Every operation names
//! an object by a handle, or by a directory handle and one [`Name`]: no paths,
//! no `..`, no symbolic link is ever followed, so nothing below can be led out
//! of the store.
//!
//! # What is durable when
//!
//! A call that returned is seen by every later call. After a crash:
//!
//! 1. **Contents and length** of a regular file written before a successful
//!    [`Disk::sync`] or [`Disk::sync_data`] of it are kept. Anything written
//!    since may be kept, lost or torn at 512-byte sectors, in any order.
//! 2. **Attributes** (mode, owner, times, extended attributes) are kept by
//!    [`Disk::sync`] of the object; `sync_data` promises only what is needed
//!    to read the contents back.
//! 3. **Entries** (create, mkdir, symlink, mknod, link, unlink, rename) are
//!    kept by [`Disk::sync_directory`] of the directory they are in, together
//!    with the existence and identity of the object they name. One call is
//!    atomic: a rename, also between two directories or an exchange, is kept
//!    or lost as a whole; syncing either directory keeps it.
//!    It also does 2 for the directory itself.
//! 4. Entry changes not yet synced survive or vanish one by one, in any order,
//!    except that a change never survives without an earlier one it depends
//!    on: one that touched the same entry, or that gave the object its name;
//!    and moves of directories survive in the order in which they were made.
//! 5. [`Disk::sync_file_system`] does 1 to 3 for everything.
//! 6. A failed sync may have lost anything it was asked to keep; calling it
//!    again proves nothing.

mod charge;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod linux;
mod name;
mod reason;
mod types;

pub use charge::Charge;
pub use linux::LinuxDisk;
pub use name::{Name, NameError};
pub use reason::reason;
pub use rustix::io::Errno;
pub use types::{
    Access, Attributes, DirectoryEntry, Extent, FileSystemStatus, Identity, Kind, Mounting,
    NewNode, Owner, RenameMode, Stat, Times, Timestamp,
};

pub type Result<T> = std::result::Result<T, Errno>;

/// A file system as the engine uses it. See the crate's head for durability.
pub trait Disk: Send + Sync + 'static {
    /// An open object. A directory's handle follows it when it is renamed.
    type Handle: Send + Sync + 'static;

    /// Opens the object itself; a symbolic link only with [`Access::Path`].
    /// `ELOOP` if it is a symbolic link otherwise, `EXDEV` if another file
    /// system is mounted there. Never waits for another process: `EAGAIN` while one
    /// holds a lease on the file, which is then on its way back.
    fn open(&self, directory: &Self::Handle, name: &Name, access: Access) -> Result<Self::Handle>;
    /// As [`Disk::open`], but waits for a lease to be given back: for those who must
    /// have the file, since a commit that changes it is in the log.
    fn open_waiting(
        &self,
        directory: &Self::Handle,
        name: &Name,
        access: Access,
    ) -> Result<Self::Handle> {
        self.open(directory, name, access)
    }
    /// Until the result is dropped, what this thread creates belongs to the user, and
    /// what it writes is bound by the quota of the file's owner and by what the file
    /// system reserves for others, as if the user wrote it. What the thread may reach
    /// stays the same. `EPERM` without root's rights. A disk without users does nothing.
    fn charge(&self, _user: u32) -> Result<Charge> {
        Ok(Charge::none())
    }
    /// Creates a regular file that must not exist (`EEXIST`), for reading and
    /// writing. Here and in `make` the mode ends exactly as asked, as far as
    /// chmod(2) lets the caller: neither the umask nor the directory's
    /// set-group-id bit changes it.
    fn create(&self, directory: &Self::Handle, name: &Name, mode: u32) -> Result<Self::Handle>;
    /// Creates anything but a regular file. A symbolic link has no mode.
    fn make(&self, directory: &Self::Handle, name: &Name, node: &NewNode, mode: u32) -> Result<()>;
    /// Gives the object at `from` another name. Never follows a symbolic link.
    fn link(&self, from: (&Self::Handle, &Name), to: (&Self::Handle, &Name)) -> Result<()>;
    fn rename(
        &self,
        from: (&Self::Handle, &Name),
        to: (&Self::Handle, &Name),
        mode: RenameMode,
    ) -> Result<()>;
    fn unlink(&self, directory: &Self::Handle, name: &Name) -> Result<()>;
    fn remove_directory(&self, directory: &Self::Handle, name: &Name) -> Result<()>;

    fn stat(&self, object: &Self::Handle) -> Result<Stat>;
    /// Of a mount point only that it is one is certain: what is mounted is not asked.
    fn stat_at(&self, directory: &Self::Handle, name: &Name) -> Result<Stat>;
    /// Every entry but `.` and `..`, in no particular order.
    fn list(&self, directory: &Self::Handle) -> Result<Vec<DirectoryEntry>>;
    fn read_link(&self, directory: &Self::Handle, name: &Name) -> Result<Vec<u8>>;

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, file: &Self::Handle, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `data` or fails; a failed write may have written a part.
    /// Writing nothing tells whether the file can be written.
    fn write_at(&self, file: &Self::Handle, data: &[u8], offset: u64) -> Result<()>;
    fn set_length(&self, file: &Self::Handle, length: u64) -> Result<()>;
    /// Reserves blocks for a range without changing the file's length.
    fn allocate(&self, file: &Self::Handle, offset: u64, length: u64) -> Result<()>;
    /// Frees the blocks of a range, which then reads as zeros; the length stays.
    fn punch_hole(&self, file: &Self::Handle, offset: u64, length: u64) -> Result<()>;
    /// The next run of data at or after `offset`; `None` when only a hole is left.
    fn next_data(&self, file: &Self::Handle, offset: u64) -> Result<Option<Extent>>;
    /// Copies a range between files, sharing blocks where the file system can;
    /// returns how much was copied, less than asked only at the end of `from`.
    fn copy_range(
        &self,
        from: (&Self::Handle, u64),
        to: (&Self::Handle, u64),
        length: u64,
    ) -> Result<u64>;

    /// `EOPNOTSUPP` on a symbolic link.
    fn set_mode(&self, object: &Self::Handle, mode: u32) -> Result<()>;
    /// Clears the set-user-id and set-group-id bits as chown(2) does.
    fn set_owner(&self, object: &Self::Handle, owner: Owner) -> Result<()>;
    fn set_times(&self, object: &Self::Handle, times: Times) -> Result<()>;
    /// `ENODATA` when there is none of that name.
    fn xattr(&self, object: &Self::Handle, name: &[u8]) -> Result<Vec<u8>>;
    fn xattr_names(&self, object: &Self::Handle) -> Result<Vec<Vec<u8>>>;
    fn set_xattr(&self, object: &Self::Handle, name: &[u8], value: &[u8]) -> Result<()>;
    fn remove_xattr(&self, object: &Self::Handle, name: &[u8]) -> Result<()>;

    /// This and the other syncs: `EBADF` on a handle opened with [`Access::Path`].
    /// A simulated disk knows by the caller's place which sync of a program it is.
    #[track_caller]
    fn sync(&self, file: &Self::Handle) -> Result<()>;
    #[track_caller]
    fn sync_data(&self, file: &Self::Handle) -> Result<()>;
    #[track_caller]
    fn sync_directory(&self, directory: &Self::Handle) -> Result<()>;
    #[track_caller]
    fn sync_file_system(&self, object: &Self::Handle) -> Result<()>;

    /// Starts to write what was written, if at least so many files lie below a
    /// directory, and does not wait. Only a hint: nothing counts as durable by it,
    /// and no error is told, nor kept from a sync by a handle opened before.
    fn start_writing(&self, _directory: &Self::Handle, _files_min: usize) {}

    fn status(&self, object: &Self::Handle) -> Result<FileSystemStatus>;
    /// Which mounting of the file system this is; `None` where that cannot be told.
    fn mounting(&self, object: &Self::Handle) -> Result<Option<Mounting>>;
    /// Takes the advisory lock of an open file for as long as the handle
    /// lives; `EWOULDBLOCK` when another process has it.
    fn try_lock(&self, file: &Self::Handle) -> Result<()>;
    /// Whether this process may read, write and search (for a directory:
    /// change entries in) the object: bits 4, 2 and 1.
    fn may_access(&self, object: &Self::Handle, bits: u32) -> Result<bool>;
}
