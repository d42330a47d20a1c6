//! The engine over a disk whose flushes take longer, as on a slow disk.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use atomdir::hosting::{privileges, store_options};
use atomdir_disk::{
    Access, Attachment, Charge, DirectoryEntry, Disk, Errno, Extent, FileSystemStatus, LinuxDisk,
    Name, NewNode, Owner, PartLock, RenameMode, Stat, Times,
};
use atomdir_engine as engine;

use super::{Peer, Session, Work};
use crate::error::{Describe, Error, Result};

type Done<T> = atomdir_disk::Result<T>;

struct DelayedDisk {
    inner: LinuxDisk,
    delay: Duration,
}

impl DelayedDisk {
    fn delayed(&self, flush: impl FnOnce() -> Done<()>) -> Done<()> {
        flush()?;
        sleep(self.delay);
        Ok(())
    }
}

macro_rules! delegate {
    ($(fn $name:ident(&self, $($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            self.inner.$name($($argument),*)
        })*
    };
}

impl Disk for DelayedDisk {
    type Handle = OwnedFd;

    delegate! {
        fn open(&self, directory: &OwnedFd, name: &Name, access: Access) -> Done<OwnedFd>;
        fn open_waiting(&self, directory: &OwnedFd, name: &Name, access: Access) -> Done<OwnedFd>;
        fn charge(&self, user: u32) -> Done<Charge>;
        fn create(&self, directory: &OwnedFd, name: &Name, mode: u32) -> Done<OwnedFd>;
        fn make(&self, directory: &OwnedFd, name: &Name, node: &NewNode, mode: u32) -> Done<()>;
        fn link(&self, from: (&OwnedFd, &Name), to: (&OwnedFd, &Name)) -> Done<()>;
        fn rename(&self, from: (&OwnedFd, &Name), to: (&OwnedFd, &Name), mode: RenameMode) -> Done<()>;
        fn unlink(&self, directory: &OwnedFd, name: &Name) -> Done<()>;
        fn remove_directory(&self, directory: &OwnedFd, name: &Name) -> Done<()>;
        fn stat(&self, object: &OwnedFd) -> Done<Stat>;
        fn stat_at(&self, directory: &OwnedFd, name: &Name) -> Done<Stat>;
        fn list(&self, directory: &OwnedFd) -> Done<Vec<DirectoryEntry>>;
        fn read_link(&self, directory: &OwnedFd, name: &Name) -> Done<Vec<u8>>;
        fn read_at(&self, file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Done<usize>;
        fn write_at(&self, file: &OwnedFd, data: &[u8], offset: u64) -> Done<()>;
        fn set_length(&self, file: &OwnedFd, length: u64) -> Done<()>;
        fn allocate(&self, file: &OwnedFd, offset: u64, length: u64) -> Done<()>;
        fn punch_hole(&self, file: &OwnedFd, offset: u64, length: u64) -> Done<()>;
        fn next_data(&self, file: &OwnedFd, offset: u64) -> Done<Option<Extent>>;
        fn copy_range(&self, from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Done<u64>;
        fn set_mode(&self, object: &OwnedFd, mode: u32) -> Done<()>;
        fn set_owner(&self, object: &OwnedFd, owner: Owner) -> Done<()>;
        fn set_times(&self, object: &OwnedFd, times: Times) -> Done<()>;
        fn touch(&self, object: &OwnedFd) -> Done<()>;
        fn xattr(&self, object: &OwnedFd, name: &[u8]) -> Done<Vec<u8>>;
        fn xattr_names(&self, object: &OwnedFd) -> Done<Vec<Vec<u8>>>;
        fn set_xattr(&self, object: &OwnedFd, name: &[u8], value: &[u8]) -> Done<()>;
        fn remove_xattr(&self, object: &OwnedFd, name: &[u8]) -> Done<()>;
        fn start_writing(&self, directory: &OwnedFd, files_min: usize) -> ();
        fn status(&self, object: &OwnedFd) -> Done<FileSystemStatus>;
        fn attachment(&self, object: &OwnedFd) -> Done<Option<Attachment>>;
        fn try_lock(&self, file: &OwnedFd) -> Done<()>;
        fn is_open_for_writing(&self, file: &OwnedFd) -> Done<bool>;
        fn is_locked(&self, file: &OwnedFd) -> Done<bool>;
        fn part_lock(&self, file: &OwnedFd) -> Done<Option<PartLock>>;
        fn write_back(&self, file: &OwnedFd) -> Done<()>;
        fn unlock(&self, file: &OwnedFd) -> Done<()>;
        fn may_access(&self, object: &OwnedFd, bits: u32) -> Done<bool>;
    }

    fn sync(&self, file: &OwnedFd) -> Done<()> {
        self.delayed(|| self.inner.sync(file))
    }

    fn sync_data(&self, file: &OwnedFd) -> Done<()> {
        self.delayed(|| self.inner.sync_data(file))
    }

    fn sync_directory(&self, directory: &OwnedFd) -> Done<()> {
        self.delayed(|| self.inner.sync_directory(directory))
    }

    fn sync_file_system(&self, object: &OwnedFd) -> Done<()> {
        self.delayed(|| self.inner.sync_file_system(object))
    }
}

/// The engine with the library's settings, but another disk.
pub struct Engine {
    store: engine::Store<DelayedDisk>,
    durability: engine::Durability,
    ends: Arc<AtomicBool>,
    maintainer: Option<JoinHandle<()>>,
}

/// How often the library's thread maintains a store.
const MAINTENANCE_PERIOD: Duration = Duration::from_millis(50);
const DESCRIPTORS_RESERVED: u64 = 256;

impl Engine {
    pub fn open(work: &Work) -> Result<Engine> {
        let disk = DelayedDisk {
            inner: LinuxDisk::new(),
            delay: Duration::from_micros(work.delay_us),
        };
        let root = LinuxDisk::open_root(&work.directory).describe("open", &work.directory)?;
        let control = work.directory.join(atomdir::CONTROL_NAME);
        let control = File::open(&control).describe("open", &control)?;
        let options = store_options(&control, DESCRIPTORS_RESERVED);
        let options = options.describe("examine", &work.directory)?;
        let hidden = Name::new(atomdir::CONTROL_NAME.as_bytes()).ok();
        let opened = engine::Store::open(disk, root, control.into(), hidden, options);
        let (store, _) = opened.map_err(peer)?;
        let ends = Arc::new(AtomicBool::new(false));
        let maintain = {
            let (store, ends) = (store.clone(), ends.clone());
            move || {
                while !ends.load(Ordering::Acquire) {
                    sleep(MAINTENANCE_PERIOD);
                    if let Err(error) = store.maintain() {
                        eprintln!("maintenance of the store failed: {error}");
                    }
                }
            }
        };
        Ok(Engine {
            store,
            durability: match work.is_lazy {
                true => engine::Durability::Lazy,
                false => engine::Durability::Durable,
            },
            ends,
            maintainer: Some(std::thread::spawn(maintain)),
        })
    }

    fn write(
        &self,
        tx: &engine::Transaction<DelayedDisk>,
        name: &str,
        contents: &[u8],
    ) -> Done<()> {
        let caller = engine::Caller {
            user: privileges().user,
            group: rustix::process::getegid().as_raw(),
        };
        let path = Path::new(name);
        let mut parent = engine::NodeId::ROOT;
        for above in path.parent().into_iter().flat_map(Path::components) {
            parent = tx
                .lookup(parent, above.as_os_str().as_encoded_bytes())?
                .node;
        }
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let file = match tx.lookup(parent, name) {
            Err(Errno::NOENT) => {
                tx.create(parent, name, engine::NewNode::File, 0o666, 0o022, caller)?
            }
            found => {
                let found = found?;
                let empty = engine::SetAttributes {
                    length: Some(0),
                    ..engine::SetAttributes::default()
                };
                tx.set_attributes(found.node, empty, caller)?;
                found
            }
        };
        tx.write(file.node, 0, contents, false).map(drop)
    }
}

fn peer(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(maintainer) = self.maintainer.take() {
            // The thread has printed its panic.
            let _ = maintainer.join();
        }
        if let Err(error) = self.store.close() {
            eprintln!("the store could not be closed: {error}");
        }
    }
}

impl Peer for Engine {
    fn session(&self, _thread: u64) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Engine {
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()> {
        let options = engine::BeginOptions {
            owner: privileges().user,
            isolation: engine::Isolation::Snapshot,
            durability: self.durability,
            conflicts: engine::Conflicts::AtCommit,
            first_try: None,
            label: Vec::new(),
        };
        let tx = self.store.begin(options).map_err(peer)?;
        for name in names {
            self.write(&tx, name, contents)
                .describe("write", name.as_ref())?;
        }
        self.store.commit(&tx).map_err(peer)?;
        Ok(())
    }
}
