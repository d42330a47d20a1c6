//! The simulated [`Disk`].

mod attributes;
mod contents;
mod entries;

use atomdir_disk::sync;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};

use atomdir_disk::{
    Access, Attachment, DirectoryEntry, Disk, Errno, Extent, FileSystemStatus, Name, NewNode,
    Owner, RenameMode, Result, Stat, Times, Timestamp,
};
use atomdir_engine::Clock;

use crate::effect::{Keep, Ordering, Scope, Volatile};
use crate::fault::{AfterFailedSync, Call, Fault, Struck};
use crate::image::{Image, Number, ROOT};
use crate::trace::Trace;
use crate::world::{Site, World};

/// A file system in memory. All clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<World>>);

pub struct Handle {
    world: Arc<Mutex<World>>,
    number: Number,
    access: Access,
    id: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut world = lock(&self.world);
        if world.locks.get(&self.number) == Some(&self.id) {
            world.locks.remove(&self.number);
        }
        world.release(self.number);
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    sync::lock(world)
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// Makes an empty file system.
    pub fn new() -> SimDisk {
        SimDisk(Arc::new(Mutex::new(World::new())))
    }

    /// Starts the machine on the disk that a crash has left.
    pub fn boot(image: Image, ordering: Ordering) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(World::boot(image, ordering))))
    }

    /// Starts a program after another one has died. Everything that the dead one wrote is there,
    /// whether or not it is on the disk.
    pub(crate) fn restart(live: Image, disk: Volatile) -> SimDisk {
        let mut world = World::boot(live, disk.ordering);
        world.live.boots -= 1;
        world.disk = disk;
        SimDisk(Arc::new(Mutex::new(world)))
    }

    pub fn root(&self) -> Handle {
        self.handle(&mut self.world(), ROOT, Access::Directory)
    }

    /// Adds a second, empty file system. Nothing that is flushed on one says anything of the other.
    pub fn add_file_system(&self) {
        self.world().add_file_system();
    }

    /// The root of the second file system, if there is one.
    pub fn second_root(&self) -> Option<Handle> {
        let mut world = self.world();
        let number = world.live.second?;
        Some(self.handle(&mut world, number, Access::Directory))
    }

    /// The file system as programs see it.
    pub fn image(&self) -> Image {
        let mut image = self.world().live.clone();
        image.repair();
        image
    }

    /// The disk after a crash that keeps everything, or only what it must keep.
    pub fn crash(&self, keeps_all: bool) -> Image {
        let world = self.world();
        let keep = if keeps_all { Keep::All } else { Keep::Nothing };
        world.disk.crash(&vec![keep; world.disk.pending.len()])
    }

    /// Starts to record what happens.
    pub fn start_trace(&self) {
        let mut world = self.world();
        world.trace = Some(Trace::new(world.disk.clone()));
    }

    /// Returns what has happened since [`SimDisk::start_trace`].
    pub fn take_trace(&self) -> Trace {
        let mut world = self.world();
        let disk = world.disk.clone();
        world.trace.take().unwrap_or_else(|| Trace::new(disk))
    }

    /// Notes in the trace which trees a crash from here on may leave.
    pub fn allow(&self, trees: &[usize]) {
        self.world().allow(trees);
    }

    /// How many calls there have been.
    pub fn calls(&self) -> u64 {
        self.world().calls
    }

    /// From now on another program has the file at this path open for writing.
    pub fn use_file(&self, path: &str) {
        let mut world = self.world();
        let number = world.object_at(path);
        world.in_use.insert(number);
    }

    pub fn set_ordering(&self, ordering: Ordering) {
        self.world().disk.ordering = ordering;
    }

    pub fn set_faults(&self, faults: Vec<Fault>, after_failed_sync: AfterFailedSync) {
        let mut world = self.world();
        world.struck = Struck::Nothing;
        world.faults = faults;
        world.after_failed_sync = after_failed_sync;
    }

    /// Runs `act` without faults, and without counting its calls.
    pub(crate) fn undisturbed<T>(&self, act: impl FnOnce() -> T) -> T {
        let (faults, calls) = {
            let mut world = self.world();
            (std::mem::take(&mut world.faults), world.calls)
        };
        let done = act();
        let mut world = self.world();
        (world.faults, world.calls) = (faults, calls);
        done
    }

    /// What the faults have struck, which is a sync if any sync is among it.
    pub fn struck(&self) -> Struck {
        self.world().struck
    }

    /// Skips the syncs that this line of the program asks for.
    pub fn skip_sync(&self, site: Option<Site>) {
        self.world().skipped = site;
    }

    /// The lines that have asked for a sync.
    pub fn sync_sites(&self) -> Vec<Site> {
        self.world().sites.iter().copied().collect()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.0)
    }

    fn enter(&self, call: Call) -> Result<MutexGuard<'_, World>> {
        let mut world = self.world();
        world.enter(call)?;
        Ok(world)
    }

    fn handle(&self, world: &mut World, number: Number, access: Access) -> Handle {
        world.hold(number);
        world.next_handle += 1;
        Handle {
            world: self.0.clone(),
            number,
            access,
            id: world.next_handle,
        }
    }

    fn sync_scope(
        &self,
        object: &Handle,
        scope: Scope,
        site: &'static Location<'static>,
    ) -> Result<()> {
        if object.access == Access::Path {
            return Err(Errno::BADF);
        }
        self.world().sync(object.number, scope, site)
    }
}

/// The clock of the simulated machine.
impl Clock for SimDisk {
    fn now(&self) -> Timestamp {
        self.world().time()
    }
}

impl Disk for SimDisk {
    type Handle = Handle;

    fn open(&self, directory: &Handle, name: &Name, access: Access) -> Result<Handle> {
        let mut world = self.enter(Call::Look)?;
        let number = entries::open(&world, directory.number, name, access)?;
        Ok(self.handle(&mut world, number, access))
    }

    fn create(&self, directory: &Handle, name: &Name, mode: u32) -> Result<Handle> {
        let mut world = self.enter(Call::Grow)?;
        let number = entries::create(&mut world, directory.number, name, mode)?;
        Ok(self.handle(&mut world, number, Access::ReadWrite))
    }

    fn make(&self, directory: &Handle, name: &Name, node: &NewNode, mode: u32) -> Result<()> {
        entries::make(
            &mut *self.enter(Call::Grow)?,
            directory.number,
            name,
            node,
            mode,
        )
    }

    fn link(&self, from: (&Handle, &Name), to: (&Handle, &Name)) -> Result<()> {
        let mut world = self.enter(Call::Grow)?;
        entries::link(&mut world, (from.0.number, from.1), (to.0.number, to.1))
    }

    fn rename(&self, from: (&Handle, &Name), to: (&Handle, &Name), mode: RenameMode) -> Result<()> {
        let mut world = self.enter(Call::Grow)?;
        entries::rename(
            &mut world,
            (from.0.number, from.1),
            (to.0.number, to.1),
            mode,
        )
    }

    fn unlink(&self, directory: &Handle, name: &Name) -> Result<()> {
        entries::unlink(&mut *self.enter(Call::Change)?, directory.number, name)
    }

    fn remove_directory(&self, directory: &Handle, name: &Name) -> Result<()> {
        entries::remove_directory(&mut *self.enter(Call::Change)?, directory.number, name)
    }

    fn stat(&self, object: &Handle) -> Result<Stat> {
        attributes::stat(&*self.enter(Call::Look)?, object.number)
    }

    fn stat_at(&self, directory: &Handle, name: &Name) -> Result<Stat> {
        let world = self.enter(Call::Look)?;
        attributes::stat(&world, world.find(directory.number, name)?)
    }

    fn list(&self, directory: &Handle) -> Result<Vec<DirectoryEntry>> {
        entries::list(&*self.enter(Call::Look)?, directory.number)
    }

    fn read_link(&self, directory: &Handle, name: &Name) -> Result<Vec<u8>> {
        entries::read_link(&*self.enter(Call::Look)?, directory.number, name)
    }

    fn read_at(&self, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize> {
        contents::read_at(&*self.enter(Call::Look)?, file, buffer, offset)
    }

    fn write_at(&self, file: &Handle, data: &[u8], offset: u64) -> Result<()> {
        let mut world = self.world();
        match world.enter(Call::Grow) {
            Ok(()) => contents::write_at(&mut world, file, data, offset),
            Err(errno) => {
                // A failed write may have written a part. Here it writes half.
                contents::write_at(&mut world, file, &data[..data.len() / 2], offset)?;
                Err(errno)
            }
        }
    }

    fn set_length(&self, file: &Handle, length: u64) -> Result<()> {
        contents::set_length(&mut *self.enter(Call::Change)?, file, length)
    }

    fn allocate(&self, file: &Handle, offset: u64, length: u64) -> Result<()> {
        contents::allocate(&mut *self.enter(Call::Grow)?, file, offset, length)
    }

    fn punch_hole(&self, file: &Handle, offset: u64, length: u64) -> Result<()> {
        contents::punch_hole(&mut *self.enter(Call::Change)?, file, offset, length)
    }

    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<Extent>> {
        contents::next_data(&*self.enter(Call::Look)?, file, offset)
    }

    fn copy_range(&self, from: (&Handle, u64), to: (&Handle, u64), length: u64) -> Result<u64> {
        contents::copy_range(&mut *self.enter(Call::Grow)?, from, to, length)
    }

    fn set_mode(&self, object: &Handle, mode: u32) -> Result<()> {
        attributes::set_mode(&mut *self.enter(Call::Change)?, object.number, mode)
    }

    fn set_owner(&self, object: &Handle, owner: Owner) -> Result<()> {
        attributes::set_owner(&mut *self.enter(Call::Change)?, object.number, owner)
    }

    fn set_times(&self, object: &Handle, times: Times) -> Result<()> {
        attributes::set_times(&mut *self.enter(Call::Change)?, object.number, times)
    }

    fn touch(&self, object: &Handle) -> Result<()> {
        attributes::touch(&mut *self.enter(Call::Change)?, object.number)
    }

    fn xattr(&self, object: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        let world = self.enter(Call::Look)?;
        let value = world.inode(object.number)?.xattrs.get(name).cloned();
        value.ok_or(Errno::NODATA)
    }

    fn xattr_names(&self, object: &Handle) -> Result<Vec<Vec<u8>>> {
        let world = self.enter(Call::Look)?;
        Ok(world.inode(object.number)?.xattrs.keys().cloned().collect())
    }

    fn set_xattr(&self, object: &Handle, name: &[u8], value: &[u8]) -> Result<()> {
        attributes::set_xattr(&mut *self.enter(Call::Grow)?, object.number, name, value)
    }

    fn remove_xattr(&self, object: &Handle, name: &[u8]) -> Result<()> {
        attributes::remove_xattr(&mut *self.enter(Call::Change)?, object.number, name)
    }

    #[track_caller]
    fn sync(&self, file: &Handle) -> Result<()> {
        self.sync_scope(file, Scope::Object(file.number), Location::caller())
    }

    #[track_caller]
    fn sync_data(&self, file: &Handle) -> Result<()> {
        let caller = Location::caller();
        self.flush_in_company(|disk| disk.sync_scope(file, Scope::Data(file.number), caller))
    }

    #[track_caller]
    fn sync_directory(&self, directory: &Handle) -> Result<()> {
        self.sync_scope(
            directory,
            Scope::Directory(directory.number),
            Location::caller(),
        )
    }

    #[track_caller]
    fn sync_file_system(&self, object: &Handle) -> Result<()> {
        self.sync_scope(object, Scope::Everything, Location::caller())
    }

    fn attachment(&self, _: &Handle) -> Result<Option<Attachment>> {
        let world = self.enter(Call::Look)?;
        Ok(Some(Attachment {
            boot: [0; 16],
            disk: world.live.boots,
        }))
    }

    fn status(&self, _: &Handle) -> Result<FileSystemStatus> {
        drop(self.enter(Call::Look)?);
        Ok(attributes::STATUS)
    }

    fn try_lock(&self, file: &Handle) -> Result<()> {
        let mut world = self.enter(Call::Look)?;
        match world.locks.insert(file.number, file.id) {
            Some(holder) if holder != file.id => {
                world.locks.insert(file.number, holder);
                Err(Errno::WOULDBLOCK)
            }
            _ => Ok(()),
        }
    }

    fn unlock(&self, file: &Handle) -> Result<()> {
        let mut world = self.enter(Call::Look)?;
        if world.locks.get(&file.number) == Some(&file.id) {
            world.locks.remove(&file.number);
        }
        Ok(())
    }

    fn is_open_for_writing(&self, file: &Handle) -> Result<bool> {
        Ok(self.enter(Call::Look)?.in_use.contains(&file.number))
    }

    fn may_access(&self, object: &Handle, bits: u32) -> Result<bool> {
        attributes::may_access(&*self.enter(Call::Look)?, object.number, bits)
    }
}
