//! The real [`Disk`]: system calls on the running kernel.

mod acting;
mod ahead;
mod attachment;
mod attributes;
mod charge;
mod contents;
mod file_system_id;
mod handing_down;
mod in_use;
mod listing;
mod mounting;
mod open;
mod placement;
#[cfg(test)]
mod tests;
mod xattrs;

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, StatVfsMountFlags};
use rustix::io::retry_on_intr;

use crate::{
    Access, Attachment, Charge, DirectoryEntry, Disk, Errno, Extent, FileSystemStatus, FileUsers,
    Name, NewNode, Owner, PartLock, Placement, RenameMode, Result, Stat, Times,
};

/// Linux's `include/uapi/linux/magic.h`
const OVERLAYFS_SUPER_MAGIC: rustix::fs::FsWord = 0x794c_7630;

/// The machine's file systems.
///
/// Needs a mounted `/proc`: it is the only way to the mode and the extended
/// attributes of an object opened with [`Access::Path`]. Without it, those calls
/// fail with `ENOSYS`.
#[derive(Debug, Clone, Copy)]
pub struct LinuxDisk {
    opener: open::Opener,
}

impl LinuxDisk {
    pub fn new() -> LinuxDisk {
        LinuxDisk {
            opener: open::Opener::probe(),
        }
    }

    /// How other programs use a file that is open for reading. Only makes system calls, and allocates
    /// nothing.
    pub fn users(file: &OwnedFd) -> FileUsers {
        in_use::users(file)
    }

    /// Opens the directory at `path`, from which the [`Disk`] calls start. This
    /// is the only call that takes a path, and the only one that follows symbolic
    /// links.
    pub fn open_root(path: &Path) -> Result<OwnedFd> {
        open::directory_at_path(path)
    }
}

impl Default for LinuxDisk {
    fn default() -> LinuxDisk {
        LinuxDisk::new()
    }
}

impl Disk for LinuxDisk {
    type Handle = OwnedFd;

    fn open(&self, directory: &OwnedFd, name: &Name, access: Access) -> Result<OwnedFd> {
        self.opener.open(directory, name, access)
    }

    fn open_waiting(&self, directory: &OwnedFd, name: &Name, access: Access) -> Result<OwnedFd> {
        self.opener.open_waiting(directory, name, access)
    }

    fn charge(&self, user: u32) -> Result<Charge> {
        Ok(Charge::new(charge::Charged::begin(user)?))
    }

    fn act_as(&self, user: u32, groups: &[u32]) -> Result<Charge> {
        Ok(Charge::new(acting::Acting::begin(user, groups)?))
    }

    fn create(&self, directory: &OwnedFd, name: &Name, mode: u32) -> Result<OwnedFd> {
        open::create(directory, name, mode)
    }

    fn make(&self, directory: &OwnedFd, name: &Name, node: &NewNode, mode: u32) -> Result<()> {
        self.opener.make(directory, name, node, mode)
    }

    fn link(&self, from: (&OwnedFd, &Name), to: (&OwnedFd, &Name)) -> Result<()> {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        retry_on_intr(|| rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()))
    }

    fn rename(
        &self,
        from: (&OwnedFd, &Name),
        to: (&OwnedFd, &Name),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        retry_on_intr(|| rustix::fs::renameat_with(from.0, from.1, to.0, to.1, mode.into()))
    }

    fn uncover(&self, directory: &OwnedFd, name: &Name) -> Result<bool> {
        mounting::uncover(directory, name)
    }

    fn unlink(&self, directory: &OwnedFd, name: &Name) -> Result<()> {
        retry_on_intr(|| rustix::fs::unlinkat(directory, name.as_bytes(), AtFlags::empty()))
    }

    fn remove_directory(&self, directory: &OwnedFd, name: &Name) -> Result<()> {
        retry_on_intr(|| rustix::fs::unlinkat(directory, name.as_bytes(), AtFlags::REMOVEDIR))
    }

    fn stat(&self, object: &OwnedFd) -> Result<Stat> {
        attributes::stat(object)
    }

    fn stat_at(&self, directory: &OwnedFd, name: &Name) -> Result<Stat> {
        attributes::stat_at(directory, name)
    }

    fn list(&self, directory: &OwnedFd) -> Result<Vec<DirectoryEntry>> {
        listing::list(directory)
    }

    fn read_link(&self, directory: &OwnedFd, name: &Name) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(directory, name.as_bytes(), Vec::new())?;
        Ok(target.into_bytes())
    }

    fn read_at(&self, file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
        contents::read_at(file, buffer, offset)
    }

    fn write_at(&self, file: &OwnedFd, data: &[u8], offset: u64) -> Result<()> {
        contents::write_at(file, data, offset)
    }

    fn set_length(&self, file: &OwnedFd, length: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(file, length))
    }

    fn allocate(&self, file: &OwnedFd, offset: u64, length: u64) -> Result<()> {
        let flags = FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length))
    }

    fn punch_hole(&self, file: &OwnedFd, offset: u64, length: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length))
    }

    fn next_data(&self, file: &OwnedFd, offset: u64) -> Result<Option<Extent>> {
        contents::next_data(file, offset)
    }

    fn copy_range(&self, from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<u64> {
        contents::copy_range(from, to, length)
    }

    fn set_mode(&self, object: &OwnedFd, mode: u32) -> Result<()> {
        attributes::set_mode(object, mode)
    }

    fn set_owner(&self, object: &OwnedFd, owner: Owner) -> Result<()> {
        attributes::set_owner(object, owner)
    }

    fn set_times(&self, object: &OwnedFd, times: Times) -> Result<()> {
        attributes::set_times(object, times)
    }

    fn touch(&self, object: &OwnedFd) -> Result<()> {
        attributes::touch(object)
    }

    fn xattr(&self, object: &OwnedFd, name: &[u8]) -> Result<Vec<u8>> {
        xattrs::get(object, name)
    }

    fn xattr_names(&self, object: &OwnedFd) -> Result<Vec<Vec<u8>>> {
        xattrs::names(object)
    }

    fn xattr_names_at(&self, directory: &OwnedFd, name: &Name) -> Result<Vec<Vec<u8>>> {
        match xattrs::names_at(directory, name) {
            // The kernel is older than 6.13, or a container forbids the call.
            Err(Errno::NOSYS | Errno::PERM) => {
                self.xattr_names(&self.open(directory, name, Access::Path)?)
            }
            names => names,
        }
    }

    fn xattrs_at(&self, directory: &OwnedFd, name: &Name) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match xattrs::all_at(directory, name) {
            Err(Errno::NOSYS | Errno::PERM) => {
                self.xattrs(&self.open(directory, name, Access::Path)?)
            }
            xattrs => xattrs,
        }
    }

    fn set_xattr(&self, object: &OwnedFd, name: &[u8], value: &[u8]) -> Result<()> {
        xattrs::set(object, name, value)
    }

    fn remove_xattr(&self, object: &OwnedFd, name: &[u8]) -> Result<()> {
        xattrs::remove(object, name)
    }

    fn has_flags(&self, file: &OwnedFd) -> Result<bool> {
        attributes::has_flags(file)
    }

    fn is_open_for_writing(&self, file: &OwnedFd) -> Result<bool> {
        Ok(in_use::is_open_for_writing(file))
    }

    fn is_locked(&self, file: &OwnedFd) -> Result<bool> {
        in_use::is_locked(file)
    }

    fn part_lock(&self, file: &OwnedFd) -> Result<Option<PartLock>> {
        in_use::part_lock(file)
    }

    fn write_back(&self, file: &OwnedFd) -> Result<()> {
        in_use::write_back(file)
    }

    fn placement(&self, object: &OwnedFd) -> Result<Placement> {
        placement::of(object)
    }

    fn sync(&self, file: &OwnedFd) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsync(file))
    }

    fn sync_data(&self, file: &OwnedFd) -> Result<()> {
        retry_on_intr(|| rustix::fs::fdatasync(file))
    }

    fn sync_directory(&self, directory: &OwnedFd) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsync(directory))
    }

    fn sync_file_system(&self, object: &OwnedFd) -> Result<()> {
        retry_on_intr(|| rustix::fs::syncfs(object))
    }

    fn start_writing(&self, directory: &OwnedFd, files_min: usize) {
        ahead::start_writing(directory, files_min);
    }

    fn attachment(&self, object: &OwnedFd) -> Result<Option<Attachment>> {
        attachment::of(object)
    }

    fn status(&self, object: &OwnedFd) -> Result<FileSystemStatus> {
        let status = retry_on_intr(|| rustix::fs::fstatvfs(object))?;
        let kind = retry_on_intr(|| rustix::fs::fstatfs(object))?.f_type;
        Ok(FileSystemStatus {
            block_size: status.f_frsize,
            blocks: status.f_blocks,
            blocks_free: status.f_bfree,
            blocks_available: status.f_bavail,
            files: status.f_files,
            files_free: status.f_ffree,
            name_length_max: u32::try_from(status.f_namemax).unwrap_or(u32::MAX),
            read_only: status.f_flag.contains(StatVfsMountFlags::RDONLY),
            layered: kind == OVERLAYFS_SUPER_MAGIC,
            id: file_system_id::of(object, kind, status.f_fsid),
        })
    }

    fn stop_handing_down(
        &self,
        directory: &OwnedFd,
        like: &OwnedFd,
    ) -> Result<Option<&'static str>> {
        handing_down::stop(directory, like)
    }

    fn try_lock(&self, file: &OwnedFd) -> Result<()> {
        retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive))
    }

    fn unlock(&self, file: &OwnedFd) -> Result<()> {
        rustix::fs::flock(file, FlockOperation::Unlock)
    }

    fn may_access(&self, object: &OwnedFd, bits: u32) -> Result<bool> {
        match attributes::check_access(object, bits) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The error of the system call that was just made through libc.
fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
